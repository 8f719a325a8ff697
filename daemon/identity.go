package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/fairlead/fairlead/config"
)

// Role is which of the daemons this is.
type Role string

const (
	RoleBalancer Role = "lb"
	RoleHost     Role = "host"
	RoleSwitch   Role = "switch"
)

// what is the role in a sentence.
func (r Role) what() string {
	return map[Role]string{RoleBalancer: "a balancer", RoleHost: "a host's agent", RoleSwitch: "a switch"}[r]
}

// self is a daemon's own entry in the configuration.
type self struct {
	role       Role
	name       string
	api        string
	interfaces []string
	metrics    string
	balancer   *config.Balancer
	server     *config.Server
	sw         *config.Switch
}

// findSelf is the entry named name; without a name the only entry of the
// role, else the one that is called as this machine.
func findSelf(cfg *config.Config, role Role, name string) (self, error) {
	var names []string
	find := map[string]self{}
	metrics := func(own *string) string {
		if own != nil {
			return *own
		}
		return cfg.Metrics
	}
	switch role {
	case RoleBalancer:
		for i := range cfg.Balancers {
			b := &cfg.Balancers[i]
			names = append(names, b.Name)
			find[b.Name] = self{role: role, name: b.Name, api: b.API, interfaces: b.Interfaces, metrics: metrics(b.Metrics), balancer: b}
		}
	case RoleHost:
		for i := range cfg.Servers {
			s := &cfg.Servers[i]
			if s.API == "none" {
				if s.Name == name {
					return self{}, fmt.Errorf("server %s has api: none in the configuration, so it runs no agent: give it an api", name)
				}
				continue
			}
			names = append(names, s.Name)
			find[s.Name] = self{role: role, name: s.Name, api: s.API, interfaces: s.Interfaces, metrics: metrics(s.Metrics), server: s}
		}
	case RoleSwitch:
		for i := range cfg.Switches {
			s := &cfg.Switches[i]
			names = append(names, s.Name)
			find[s.Name] = self{role: role, name: s.Name, api: s.API, metrics: metrics(s.Metrics), sw: s}
		}
	}
	section := map[Role]string{RoleBalancer: "balancers", RoleHost: "servers", RoleSwitch: "switches"}[role]
	if len(names) == 0 {
		if role == RoleHost {
			section += " with an agent"
		}
		instead := ""
		if role == RoleBalancer && len(cfg.Switches) > 0 {
			instead = "; if it is one of the file's switches, run fairlead switch"
		}
		return self{}, fmt.Errorf("the configuration has no %s: add this machine to it%s", section, instead)
	}
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return self{}, fmt.Errorf("find this machine's name: %w; say --name", err)
		}
		name = host
		if _, ok := find[name]; !ok {
			name, _, _ = strings.Cut(host, ".")
		}
		if _, ok := find[name]; !ok {
			return self{}, fmt.Errorf("this machine is called %s, which is not among the configuration's %s (%s): say which it is with --name",
				host, section, strings.Join(names, ", "))
		}
	}
	me, ok := find[name]
	if !ok {
		return self{}, fmt.Errorf("--name %s: not among the configuration's %s (%s)", name, section, strings.Join(names, ", "))
	}
	return me, nil
}

// FindBalancer is the balancer's entry of this machine, as findSelf finds it.
func FindBalancer(cfg *config.Config, name string) (*config.Balancer, error) {
	me, err := findSelf(cfg, RoleBalancer, name)
	return me.balancer, err
}

// FindServer is the server's entry of this machine, as findSelf finds it.
func FindServer(cfg *config.Config, name string) (*config.Server, error) {
	me, err := findSelf(cfg, RoleHost, name)
	return me.server, err
}

// FindSwitch is the switch's entry of this machine, as findSelf finds it.
func FindSwitch(cfg *config.Config, name string) (*config.Switch, error) {
	me, err := findSelf(cfg, RoleSwitch, name)
	return me.sw, err
}

// InterfaceOf is the interface that holds the address.
func InterfaceOf(a netip.Addr) (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it vanished meanwhile
		}
		for _, n := range addrs {
			if p, err := netip.ParsePrefix(n.String()); err == nil && p.Addr().Unmap() == a.Unmap() {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface of this machine has the address %s", a)
}
