package config

import (
	"fmt"
	"slices"
)

// Who holds the VIPs' addresses where no router speaks BGP: balancers on the
// Ethernet, by ARP and neighbour discovery (docs/l2.md).

// L2 is what a balancer has for it. Without fields it is the balancer's interfaces.
type L2 struct {
	// Interfaces are those of the Ethernets on which the VIPs' addresses are asked
	// for; default: the balancer's own.
	Interfaces []string `yaml:"interfaces"`
}

// Layer2 is how a daemon holds addresses; nil: it does not.
func (s Self) Layer2() *L2 {
	if s.Balancer == nil {
		return nil
	}
	return s.Balancer.L2
}

// Layered says whether balancers hold addresses on their Ethernet.
func (c *Config) Layered() bool { return c.layer2() != "" }

// layer2 is the path of the first entry that has l2, "" if none has.
func (c *Config) layer2() string {
	i := slices.IndexFunc(c.Balancers, func(b Balancer) bool { return b.L2 != nil })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("balancers[%d].l2", i)
}

func (b *Balancer) fillL2() {
	if b.L2 != nil && b.L2.Interfaces == nil {
		b.L2.Interfaces = b.Interfaces
	}
}

func (c *Config) checkL2() {
	speaks := ""
	c.speakers(func(path string, _ *Speaker) {
		if speaks == "" {
			speaks = path
		}
	})
	for i := range c.Balancers {
		b, path := &c.Balancers[i], fmt.Sprintf("balancers[%d].l2", i)
		switch {
		case b.L2 == nil:
			continue
		case speaks != "":
			c.problem(path, "", "there is "+speaks+" as well, so that packets would come by two ways", "keep one of them")
		}
		for j, name := range b.L2.Interfaces {
			p := fmt.Sprintf("%s.interfaces[%d]", path, j)
			if c.origin.File != "" && c.origin.At[path+".interfaces"] == nil {
				break // they are the balancer's, and looked at there
			}
			c.checkInterface(p, name)
			if slices.Contains(b.L2.Interfaces[:j], name) {
				c.problem(p, name, "named twice", "remove one")
			}
		}
		if len(b.L2.Interfaces) == 0 {
			c.problem(path+".interfaces", "", "missing", "list those of the Ethernets on which the VIPs' addresses are asked for")
		}
	}
}
