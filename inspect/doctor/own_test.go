package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
)

// An entry of another machine is told by its addresses.
func TestOwnAddresses(t *testing.T) {
	for _, c := range []struct {
		about   string
		options Options
		want    Status // "": no line
		detail  string
	}{
		{"another machine's", Options{Balancer: &config.Balancer{Name: "lb1", API: "https://192.0.2.1:7471", Source: netip.MustParsePrefix("192.0.2.1/32")}},
			Warn, "this machine has no api 192.0.2.1, no source 192.0.2.1"},
		{"this one's", Options{Balancer: &config.Balancer{Name: "lb1", API: "https://127.0.0.1:7471"}}, OK, ""},
		{"a prefix for tunnels", Options{Balancer: &config.Balancer{Name: "lb1", API: "unix:/run/fairlead/lb1.sock", Source: netip.MustParsePrefix("192.0.2.0/24")}}, "", ""},
		{"every address", Options{Balancer: &config.Balancer{Name: "lb1", API: "https://0.0.0.0:7471"}}, "", ""},
		{"another server's", Options{Server: &config.Server{Name: "s1", API: "none", Address: netip.MustParseAddr("192.0.2.21")}},
			Warn, "this machine has no address 192.0.2.21"},
	} {
		r := &report{}
		r.own(c.options)
		switch {
		case c.want == "" && len(r.checks) == 0:
		case len(r.checks) != 1 || r.checks[0].Status != c.want || !strings.Contains(r.checks[0].Detail, c.detail) || (c.want == Warn) != (r.checks[0].Remedy != ""):
			t.Errorf("%s: %+v, want %s %q", c.about, r.checks, c.want, c.detail)
		}
	}
}
