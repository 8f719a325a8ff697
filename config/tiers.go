package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// SecondTier are the balancers of tier two.
func (c *Config) SecondTier() (all []*Balancer) {
	for i := range c.Balancers {
		if c.Balancers[i].Tier == 2 {
			all = append(all, &c.Balancers[i])
		}
	}
	return all
}

// checkTiers looks at what two tiers need of each other.
func (c *Config) checkTiers() {
	taken := map[netip.Addr]string{}
	for i, v := range c.VIPs {
		taken[v.Address] = fmt.Sprintf("vips[%d] (%s): packets to it are a VIP's", i, v.Name)
	}
	for i, s := range c.Servers {
		taken[s.Address] = fmt.Sprintf("servers[%d] (%s)", i, s.Name)
	}
	tiered := slices.ContainsFunc(c.VIPs, func(v VIP) bool { return v.Tiers != nil })
	second := c.SecondTier()
	for i, b := range c.Balancers {
		path := fmt.Sprintf("balancers[%d]", i)
		switch {
		case b.Tier < 0 || b.Tier > 2:
			c.problem(path+".tier", b.Tier, "there are two", "write 1 or 2, or remove it, which is 1")
			continue
		case b.Tier != 2:
			if b.Address.IsValid() {
				c.problem(path+".address", b.Address, "only tier two's balancers are sent tunnels", "remove it, or write tier: 2")
			}
			if b.Drain {
				c.problem(path+".drain", "true", "only tier two's balancers have connections of their own", "remove it; to take this one out of service stop its daemon")
			}
			continue
		case !tiered:
			c.problem(path+".tier", b.Tier, "no VIP has tiers, so it would get nothing", "write tiers: {} in a VIP's entry, or remove tier")
		}
		if b.BGP != nil || b.L2 != nil {
			c.problem(path+".tier", b.Tier, "tier two announces no address: its packets come from tier one", "remove bgp and l2 here")
		}
		if !b.Address.IsValid() {
			c.problem(path+".address", "", "missing", "write the balancer's own address, to which tier one sends")
			continue
		}
		c.checkUnicast(path+".address", b.Address)
		if whose, is := taken[b.Address]; is {
			c.problem(path+".address", b.Address, "already the address of "+whose, "write the balancer's own address")
		}
		taken[b.Address] = fmt.Sprintf("balancers[%d] (%s)", i, b.Name)
		if !c.SourcesKnown(b.Address.Is6()) {
			key := "source"
			if b.Address.Is6() {
				key = "source6"
			}
			c.problem(path+".address", b.Address, "tier two takes tunnels from known balancers alone, and not every balancer has a "+key, "write "+key+" in every balancer's entry")
		}
	}
	for i, v := range c.VIPs {
		path := fmt.Sprintf("vips[%d].tiers", i)
		switch {
		case v.Tiers == nil || v.TierBits() == 0:
		case len(second) == 0:
			c.problem(path, v.Name, "no balancer is of tier two", "write tier: 2 and an address in the entry of one, or remove tiers")
		case len(second) == len(c.Balancers):
			c.problem(path, v.Name, "all balancers are of tier two, so that clients reach none", "add balancers without tier")
		case len(second) > 1<<v.TierBits():
			c.problem(path+".bits", v.Tiers.Bits, fmt.Sprintf("they name %d balancers, and %d are of tier two", 1<<v.Tiers.Bits, len(second)), "write more, up to 6")
		}
	}
}
