package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
)

// The machine's entry is that of its name before the only one; where nothing
// says which it is, nothing was looked at, and that fails.
func TestFind(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const agent = "unix:/run/fairlead/x.sock"
	lb := func(names ...string) (all []config.Balancer) {
		for _, n := range names {
			all = append(all, config.Balancer{Name: n, API: agent})
		}
		return all
	}
	servers := func(api string, names ...string) (all []config.Server) {
		for _, n := range names {
			all = append(all, config.Server{Name: n, API: api})
		}
		return all
	}
	for _, c := range []struct {
		about string
		cfg   config.Config
		name  string
		want  string // roles and names; "": the check "name" fails
		err   string
	}{
		{"a server by its host name beside one balancer", config.Config{Balancers: lb("lb1"), Servers: servers(agent, "s1", host)}, "", "server " + host, ""},
		{"a balancer by its host name beside one server", config.Config{Balancers: lb("lb1", host), Servers: servers(agent, "s1")}, "", "balancer " + host, ""},
		{"both by the host name", config.Config{Balancers: lb(host), Servers: servers(agent, host)}, "", "balancer " + host + " server " + host, ""},
		{"the only one", config.Config{Balancers: lb("lb1")}, "", "balancer lb1", ""},
		{"one balancer and one server", config.Config{Balancers: lb("lb1"), Servers: servers(agent, "s1")}, "", "", ""},
		{"several", config.Config{Balancers: lb("lb1", "lb2")}, "", "", ""},
		{"by name", config.Config{Balancers: lb("lb1"), Servers: servers(agent, "s1", host)}, "s1", "server s1", ""},
		{"a wrong name", config.Config{Balancers: lb("lb1"), Servers: servers(agent, "s1")}, "s7", "", "--name s7: not among the file's entries (lb1, s1)"},
		{"a server without an agent", config.Config{Balancers: lb("lb1"), Servers: servers(config.NoAgent, "s1", host)}, "", "", "it runs no agent"},
	} {
		o, err := Find(&c.cfg, c.name)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.about, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.about, err)
			continue
		}
		var got []string
		if o.Balancer != nil {
			got = append(got, "balancer "+o.Balancer.Name)
		}
		if o.Server != nil {
			got = append(got, "server "+o.Server.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: found %q, want %q", c.about, got, c.want)
		}
		r := &report{}
		r.named(o)
		if Failed(r.checks) != (c.want == "") || c.want == "" && !strings.Contains(r.checks[0].Remedy, "--name") {
			t.Errorf("%s: %+v", c.about, r.checks)
		}
	}
}
