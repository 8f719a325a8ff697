// Package doctor looks at a machine and says what would keep Fairlead from
// working on it, or from working well, and what to do about each. It changes
// nothing; the one thing it sends is neighbour solicitations for next hops
// and the API's GetTime to the other daemons.
package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/topology"
)

// Status is how a check came out.
type Status string

// A fail keeps Fairlead from working, a warn from working well or surely.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one line of the report.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Remedy says what to do; empty where all is well.
	Remedy string `json:"remedy,omitempty"`
}

// Options say what to look at.
type Options struct {
	// Config may be nil: then only the machine itself is looked at.
	Config *config.Config
	// Entries are this machine's own entries of Config, by role.
	Balancer *config.Balancer
	Server   *config.Server
	Switch   *config.Switch
	// PinDir is where the daemon has its pins; empty: where they are by its name.
	PinDir string
	// Fabric may be nil. Router is this machine's node of it.
	Fabric *topology.Fabric
	Router int
}

// report collects checks.
type report struct {
	pinDir string
	checks []Check
}

func (r *report) ok(name, detail string) {
	r.checks = append(r.checks, Check{name, OK, detail, ""})
}

func (r *report) warn(name, detail, remedy string) {
	r.checks = append(r.checks, Check{name, Warn, detail, remedy})
}

func (r *report) fail(name, detail, remedy string) {
	r.checks = append(r.checks, Check{name, Fail, detail, remedy})
}

// Run looks at everything that concerns this machine, in the order in which
// problems should be solved.
func Run(ctx context.Context, o Options) []Check {
	r := &report{pinDir: o.PinDir}
	r.privileges()
	if o.Switch == nil || o.Balancer != nil || o.Server != nil {
		r.kernel(o.Server != nil)
		r.bpffs()
		if o.Server != nil {
			r.cgroup()
		}
		r.jit()
	}
	if o.Fabric == nil { // a router counts in no clock that others share
		r.synchronised()
	}
	if o.Config != nil {
		r.named(o)
		r.own(o)
		r.certificate(o, time.Now())
		r.daemonClocks(ctx, o)
	}
	if o.Balancer != nil {
		r.balancer(ctx, o.Config, o.Balancer)
	}
	if o.Server != nil {
		r.server(o.Config, o.Server)
	}
	if o.Switch != nil {
		r.switches(o.Config, o.Switch)
	}
	if o.Fabric != nil {
		r.router(o.Fabric, o.Router)
	}
	return r.checks
}

// named: without an entry of the file nothing of what it asks of this machine
// is looked at, and that is no good news.
func (r *report) named(o Options) {
	if o.Balancer != nil || o.Server != nil || o.Switch != nil {
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = err.Error()
	}
	r.fail("name", fmt.Sprintf("this machine (%s) was not found in the file, so neither a balancer, a server nor a switch was looked at", host),
		"say which entry it is with --name; or call the entry as the machine is called")
}

// Find fills in this machine's entries: those called name, or without a name
// those called as the machine, else the only entry of the file. Without either
// there are none, which Run says.
func Find(cfg *config.Config, name string) (Options, error) {
	o := Options{Config: cfg}
	if name == "" {
		name = hostName(cfg)
	}
	lb, errLB := cfg.Find(config.RoleBalancer, name)
	host, errHost := cfg.Find(config.RoleHost, name)
	sw, errSwitch := cfg.Find(config.RoleSwitch, name)
	o.Balancer, o.Server, o.Switch = lb.Balancer, host.Server, sw.Switch
	if name != "" && errLB != nil && errHost != nil && errSwitch != nil {
		if slices.ContainsFunc(cfg.Servers, func(s config.Server) bool { return s.Name == name }) {
			return o, errHost // it runs no agent
		}
		return o, fmt.Errorf("--name %s: not among the file's entries (%s)", name, strings.Join(entries(cfg), ", "))
	}
	// A file with one balancer and one server does not say which we are.
	names := map[string]bool{}
	if o.Balancer != nil {
		names[o.Balancer.Name] = true
	}
	if o.Server != nil {
		names[o.Server.Name] = true
	}
	if o.Switch != nil {
		names[o.Switch.Name] = true
	}
	if len(names) > 1 {
		o.Balancer, o.Server, o.Switch = nil, nil, nil
	}
	return o, nil
}

// hostName is the machine's name, whole or its first part, if an entry of the
// file has it; "" if none has.
func hostName(cfg *config.Config) string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(host, ".")
	for _, name := range []string{host, first} {
		if slices.Contains(entries(cfg), name) {
			return name
		}
	}
	return ""
}

// entries are the names of the file's balancers, servers and switches.
func entries(cfg *config.Config) (names []string) {
	for _, role := range config.Roles {
		for _, s := range cfg.Selves(role) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Failed says whether any check failed.
func Failed(checks []Check) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Status == Fail })
}
