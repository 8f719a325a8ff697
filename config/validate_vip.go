package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/vip"
)

type vipKey struct {
	address  netip.Addr
	port     Port
	protocol string
}

// checkVIPs looks at each VIP alone, then at those that share an address.
func (c *Config) checkVIPs() {
	if len(c.VIPs) == 0 && !c.Bootstrap() {
		c.problem("vips", "", "no VIP", "write at least one address, port and list of servers")
	}
	names, seen := map[string]int{}, map[vipKey]int{}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		path := fmt.Sprintf("vips[%d]", i)
		if v.Name != "" {
			if !vipName.MatchString(v.Name) {
				c.problem(path+".name", v.Name, "not a name", "use letters, digits and . _ : / - [ ], 80 at most")
			}
			if j, dup := names[v.Name]; dup {
				c.problem(path+".name", v.Name, fmt.Sprintf("already the name of vips[%d]", j), "give each VIP a name of its own")
			} else {
				names[v.Name] = i
			}
		}
		c.checkVIPAddress(path, v)
		if v.Address.IsValid() && c.portKnown(path) {
			key := vipKey{v.Address, v.Port, v.Protocol}
			if j, dup := seen[key]; dup {
				c.problem(path+".address", v.Address.String(),
					fmt.Sprintf("vips[%d] (%s) has the same address, port %s and protocol %s", j, c.VIPs[j].Name, v.Port, v.Protocol),
					"make one VIP of the two")
			} else {
				seen[key] = i
			}
		}
		c.checkChoices(path, v)
		c.checkPool(path, v)
		c.checkHealth(path+".health", v)
	}
	c.checkNeighbours()
}

// portGiven says whether the VIP at path has a port: its zero means all, so
// only the file tells. A Config made by hand has one.
func (c *Config) portGiven(path string) bool {
	return c.origin.File == "" || c.origin.At[path+".port"] != nil
}

// portKnown says whether that port could be read, too.
func (c *Config) portKnown(path string) bool {
	return c.portGiven(path) && !c.origin.Bad[path+".port"]
}

func (c *Config) checkVIPAddress(path string, v *VIP) {
	if !v.Address.IsValid() {
		c.problem(path+".address", "", "missing", "write the address that clients connect to")
	} else {
		c.checkUnicast(path+".address", v.Address)
		if server, taken := c.pool.at[v.Address]; taken {
			c.problem(path+".address", v.Address.String(), "also the address of server "+server+", so its tunnels would be taken for the service",
				"give the VIP an address of its own")
		}
		for _, b := range c.Balancers {
			for _, p := range []netip.Prefix{b.Source, b.Source6} {
				if p.IsValid() && p.Contains(v.Address) {
					c.problem(path+".address", v.Address.String(), "lies in "+p.String()+", the tunnel source of balancer "+b.Name,
						"keep the source prefix apart from VIPs")
				}
			}
		}
	}
	if !c.portGiven(path) {
		c.problem(path+".port", "", "missing", "write 1 to 65535, or all")
	}
}

// checkChoices refuses values that do not exist and combinations that cannot
// work, with the reason.
func (c *Config) checkChoices(path string, v *VIP) {
	size := vip.Size{Buckets: v.Buckets, Servers: len(v.Servers)}
	for _, m := range v.Servers {
		if !m.Standby && !m.Drain {
			size.Working++
		}
	}
	for _, p := range v.Check(size, func(field string) bool {
		if field == "port" { // as far as it could be read
			return c.portKnown(path)
		}
		return c.written(path, field)
	}) {
		c.wrong(path, p)
	}
	c.checkSteer(path, v)
}

func (c *Config) checkPool(path string, v *VIP) {
	if len(v.Servers) == 0 {
		c.problem(path+".servers", "", "an empty pool: nobody would answer", "name at least one server")
	}
	first := map[string]int{}
	if !v.Weighted() {
		if j := slices.IndexFunc(v.Servers, func(m Member) bool { return m.Weight != v.Servers[0].Weight }); j >= 0 {
			c.problem(fmt.Sprintf("%s.servers[%d].weight", path, j), v.Servers[j].Weight,
				fmt.Sprintf("servers[0] has %d, and hash %s gives every server the same", v.Servers[0].Weight, v.Hash), "write the same weight for all, or hash: table-hrw")
		}
	}
	for j, m := range v.Servers {
		p := fmt.Sprintf("%s.servers[%d]", path, j)
		if m.Name == "" {
			if !c.origin.Bad[p] {
				c.problem(p+".name", "", "missing", "name a server from servers")
			}
			continue
		}
		s, ok := c.pool.named[m.Name]
		if !ok {
			remedy := "add it to servers"
			if near := c.near(m.Name, c.pool.names); near != "" {
				remedy = "write " + near + ", or add it to servers"
			}
			c.problem(p, m.Name, "no such server", remedy)
		}
		if k, dup := first[m.Name]; dup {
			c.problem(p, m.Name, fmt.Sprintf("already servers[%d] of this VIP", k), "give it a weight instead of naming it twice")
		} else {
			first[m.Name] = j
		}
		if ok && s.API == NoAgent && v.Chains() {
			c.problem(p, m.Name, "its api is none: with scheme "+string(v.Scheme)+" servers pass packets on to each other, which the agent does", "run `fairlead host` there and give it an api, or write scheme: jet, which needs no agent")
		}
		if ok && s.API == NoAgent && v.Cookies() {
			c.problem(p, m.Name, "its api is none: without the agent nobody stamps cookies", "run `fairlead host` there and give it an api, or write scheme: jet, which needs no agent")
		}
		if m.Standby && m.Drain {
			c.problem(p+".standby", "true", "the server also has drain: true, and one that never worked has nothing to drain", "remove one of the two")
		}
		switch {
		case m.Weight < 1 || m.Weight > vip.MaxWeight:
			c.problem(p+".weight", m.Weight, "out of range", fmt.Sprintf("write 1 to %d; drain: true gives it no new connections", vip.MaxWeight))
		case m.Weight != 1 && v.Policy.Row().Name != "" && !v.Policy.Row().Weighted:
			c.problem(p+".weight", m.Weight, "policy "+string(v.Policy)+" gives every server the same", "write policy: wrr")
		}
	}
	if n := len(v.Servers); n > 0 && !slices.ContainsFunc(v.Servers, func(m Member) bool { return !m.Standby }) {
		c.problem(path+".servers[0].standby", "true", "so has every server of the VIP: nobody would answer", "remove it from at least one")
	}
}

// checkNeighbours: echo requests and fragments carry no port, so VIPs on one
// address must agree about them.
func (c *Config) checkNeighbours() {
	c.checkJoins()
	echo := map[netip.Addr]int{}
	fragments := map[vipKey]int{}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if !v.Address.IsValid() {
			continue
		}
		path := fmt.Sprintf("vips[%d]", i)
		if j, ok := echo[v.Address]; !ok {
			echo[v.Address] = i
		} else if *c.VIPs[j].ICMPEcho != *v.ICMPEcho {
			c.problem(path+".icmp_echo", fmt.Sprint(*v.ICMPEcho),
				fmt.Sprintf("vips[%d] (%s) on the same address says %t, and an echo request names no port", j, c.VIPs[j].Name, *c.VIPs[j].ICMPEcho),
				"write the same for both")
		}
		key := vipKey{address: v.Address, protocol: v.Protocol}
		j, ok := fragments[key]
		if !ok {
			fragments[key] = i
			continue
		}
		if v.Fragments == vip.Addresses || c.VIPs[j].Fragments == vip.Addresses {
			c.problem(path+".fragments", v.Fragments,
				fmt.Sprintf("vips[%d] (%s) has the same address and protocol, and a fragment names no port: which VIP it belongs to cannot be told", j, c.VIPs[j].Name),
				"write fragments: drop for both, or give one an address of its own")
		}
	}
}
