package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/fabric/topology"
)

// Which entry of a file a machine is.

// Role is what an entry's daemon does.
type Role string

const (
	RoleBalancer Role = "lb"
	RoleHost     Role = "host"
	RoleSwitch   Role = "switch"
	// RoleController makes changes and keeps the store; it goes by no assignment.
	RoleController Role = "controller"
)

// Article is what people call a daemon of that role, with its article.
func (r Role) Article() string {
	return map[Role]string{RoleBalancer: "a balancer", RoleHost: "an agent", RoleSwitch: "a switch", RoleController: "a controller"}[r]
}

// Roles are those that go by the assignment, in the order of the file's sections.
var Roles = []Role{RoleBalancer, RoleHost, RoleSwitch}

// Self is a daemon's own entry in the configuration.
type Self struct {
	Role       Role
	Name       string
	API        string
	Interfaces []string
	Metrics    string
	// One of them, by role.
	Balancer   *Balancer
	Server     *Server
	Switch     *Switch
	Controller *Controller
}

// Selves are the entries of a role; those of servers without an agent have none as
// their API.
func (c *Config) Selves(role Role) (all []Self) {
	metrics := func(own *string) string {
		if own != nil {
			return *own
		}
		return c.Metrics
	}
	switch role {
	case RoleBalancer:
		for i := range c.Balancers {
			b := &c.Balancers[i]
			all = append(all, Self{Role: role, Name: b.Name, API: b.API, Interfaces: b.Interfaces, Metrics: metrics(b.Metrics), Balancer: b})
		}
	case RoleHost:
		for i := range c.Servers {
			s := &c.Servers[i]
			all = append(all, Self{Role: role, Name: s.Name, API: s.API, Interfaces: s.Interfaces, Metrics: metrics(s.Metrics), Server: s})
		}
	case RoleSwitch:
		for i := range c.Switches {
			s := &c.Switches[i]
			all = append(all, Self{Role: role, Name: s.Name, API: s.API, Metrics: metrics(s.Metrics), Switch: s})
		}
	case RoleController:
		for i := range c.Controllers {
			s := &c.Controllers[i]
			all = append(all, Self{Role: role, Name: s.Name, API: s.API, Metrics: metrics(s.Metrics), Controller: s})
		}
	}
	return all
}

// Daemons are the entries of all roles that have a daemon with an API, less those
// named in without.
func (c *Config) Daemons(without ...string) (all []Self) {
	for _, role := range Roles {
		for _, s := range c.Selves(role) {
			if s.API != NoAgent && !slices.Contains(without, s.Name) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Find is the entry named name; without a name the only entry of the role, else
// the one that is called as this machine.
func (c *Config) Find(role Role, name string) (Self, error) {
	var names []string
	find := map[string]Self{}
	for _, s := range c.Selves(role) {
		switch {
		case s.API != NoAgent:
			names = append(names, s.Name)
			find[s.Name] = s
		case s.Name == name:
			return Self{}, fmt.Errorf("server %s has api: none in the configuration, so it runs no agent: give it an api", name)
		}
	}
	section := map[Role]string{RoleBalancer: "balancers", RoleHost: "servers", RoleSwitch: "switches", RoleController: "controllers"}[role]
	if len(names) == 0 {
		if role == RoleHost {
			section += " with an agent"
		}
		instead := ""
		if role == RoleBalancer && len(c.Switches) > 0 {
			instead = "; if it is one of the file's switches, run fairlead switch"
		}
		return Self{}, fmt.Errorf("the configuration has no %s: add this machine to it%s", section, instead)
	}
	name, err := called(name, "the configuration's "+section, names)
	return find[name], err
}

// FindRouter is the index of the fabric's router called name; without a name
// the only one, else the one that is called as this machine.
func FindRouter(f *topology.Fabric, name string) (int, error) {
	var names []string
	find := map[string]int{}
	for i, n := range f.Nodes {
		if !n.Host {
			names = append(names, n.Name)
			find[n.Name] = i
		}
	}
	if len(names) == 0 {
		return 0, errors.New("fabric.yaml has no routers: add this machine to them")
	}
	name, err := called(name, "the fabric's routers", names)
	return find[name], err
}

// called is the one of names that is meant by name, or without one by this machine's
// own; of says in a sentence whose names they are.
func called(name, of string, names []string) (string, error) {
	switch {
	case slices.Contains(names, name):
		return name, nil
	case name != "":
		return "", fmt.Errorf("--name %s: not among %s (%s)", name, of, strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find this machine's name: %w; say --name", err)
	}
	short, _, _ := strings.Cut(host, ".")
	for _, name := range []string{host, short} {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("this machine is called %s, which is not among %s (%s): say which it is with --name", host, of, strings.Join(names, ", "))
}

// InterfaceOf is the interface of this machine that holds the address.
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
