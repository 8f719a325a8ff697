package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/vip"
)

// What schemes beamer and faild share: buckets, and chains of previous
// servers.

const (
	DefaultAnnounceTable = 177
	DefaultLockPercent   = 50
	DefaultLockWindow    = 10 * time.Second
	DefaultFlaps         = 3
)

// fillChain fills in what is about buckets.
func (v *VIP) fillChain(at positions, path string) {
	if !v.Chains() {
		return
	}
	if at[path+".buckets"] == nil {
		v.Buckets = cmp.Or(v.Buckets, v.Scheme.Row().Buckets)
	}
	if at[path+".chain_time"] == nil {
		v.ChainTime = cmp.Or(v.ChainTime, vip.DefaultChainTime)
	}
}

func (s *Switch) fill(c *Config, path string) {
	s.API = cmp.Or(s.API, DefaultAPI(s.Name))
	if s.Metrics == nil {
		s.Metrics = new(c.Metrics)
	}
	s.Bridge = cmp.Or(s.Bridge, DefaultBridge)
	number := func(key string, v *int, usual int) {
		if c.origin.At[path+"."+key] == nil {
			*v = cmp.Or(*v, usual)
		}
	}
	number("announce_table", &s.AnnounceTable, DefaultAnnounceTable)
	number("lock_percent", &s.LockPercent, DefaultLockPercent)
	number("flaps", &s.Flaps, DefaultFlaps)
	if c.origin.At[path+".lock_window"] == nil {
		s.LockWindow = cmp.Or(s.LockWindow, DefaultLockWindow)
	}
}

// written says whether the file has key in the mapping at path.
func (c *Config) written(path, key string) bool { return c.origin.At[path+"."+key] != nil }

// checkJoins: Multipath TCP's joins arrive at ports of the VIP's address that
// stand for servers, so nothing else may be there.
func (c *Config) checkJoins() {
	joins := map[netip.Addr]int{}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if !v.MPTCP || !v.Scheme.Row().Hops || v.Protocol != vip.TCP {
			continue
		}
		if j, ok := joins[v.Address]; ok {
			c.problem(fmt.Sprintf("vips[%d].mptcp", i), "true",
				fmt.Sprintf("vips[%d] (%s) has the same address and mptcp: true, and a join's port names a server, no VIP", j, c.VIPs[j].Name),
				"remove it from one of the two, or give one an address of its own")
			continue
		}
		joins[v.Address] = i
	}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		j, ok := joins[v.Address]
		if !ok || j == i || v.Protocol != vip.TCP || v.Port != 0 && v.Port < vip.FirstJoinPort {
			continue
		}
		path := fmt.Sprintf("vips[%d]", i)
		if c.portKnown(path) {
			c.problem(path+".port", v.Port.String(), fmt.Sprintf("vips[%d] (%s) on the same address has mptcp: true, whose joins take ports %d to 65535", j, c.VIPs[j].Name, vip.FirstJoinPort),
				fmt.Sprintf("write a port below %d, or give one of the two an address of its own", vip.FirstJoinPort))
		}
	}
}

// checkSources: servers take tunnels of scheme beamer from balancers' sources
// alone, so that these must be known, and pass packets on from their own
// address, which takes one family.
func (c *Config) checkSources() {
	address := func(name string) (a netip.Addr) {
		if s := c.pool.named[name]; s != nil {
			a = s.Address
		}
		return a
	}
	need := map[bool]int{} // by whether it is IPv6: the VIP whose servers need it
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if !v.Scheme.Row().Hops {
			continue
		}
		first := -1
		for j, m := range v.Servers {
			a := address(m.Name)
			switch {
			case !a.IsValid():
			case first < 0:
				first = j
				if _, ok := need[a.Is6()]; !ok {
					need[a.Is6()] = i
				}
			case a.Is6() != address(v.Servers[first].Name).Is6():
				c.problem(fmt.Sprintf("vips[%d].servers[%d]", i, j), m.Name,
					fmt.Sprintf("its address is %s, that of servers[%d] (%s) is %s, and with scheme beamer servers pass packets on to each other from their own addresses",
						family(a), first, v.Servers[first].Name, family(address(v.Servers[first].Name))),
					"give the pool addresses of one family")
			}
		}
	}
	for i, b := range c.Balancers {
		for _, f := range []struct {
			six    bool
			key    string
			source netip.Prefix
		}{{false, "source", b.Source}, {true, "source6", b.Source6}} {
			if vip, ok := need[f.six]; ok && !f.source.IsValid() {
				path, example := fmt.Sprintf("balancers[%d].%s", i, f.key), "10.200.0.0/16"
				if f.six {
					example = "2001:db8:f::/64"
				}
				c.problem(path, "", fmt.Sprintf("missing, and vips[%d] (%s) has scheme beamer: its servers accept tunnels from balancers' sources alone", vip, c.VIPs[vip].Name),
					"write the prefix, such as "+example+", or the address that this balancer's tunnels come from")
			}
		}
	}
}

// SourcesKnown says whether every balancer's tunnel source of the family is in
// the file.
func (c *Config) SourcesKnown(six bool) bool {
	return !slices.ContainsFunc(c.Balancers, func(b Balancer) bool {
		if six {
			return !b.Source6.IsValid()
		}
		return !b.Source.IsValid()
	})
}

func family(a netip.Addr) string {
	if a.Is6() {
		return "IPv6"
	}
	return "IPv4"
}

// checkFaild: all VIPs of scheme faild go by the same nexthops, so that they
// are the same servers in every respect.
func (c *Config) checkFaild() {
	first := -1
	routed := map[netip.Addr]int{}
	for i := range c.VIPs {
		if v := &c.VIPs[i]; v.Scheme.Row().Switched && v.Address.IsValid() {
			routed[v.Address] = i
		}
	}
	for i := range c.VIPs {
		if j, ok := routed[c.VIPs[i].Address]; ok && !c.VIPs[i].Scheme.Row().Switched && !c.origin.Bad[fmt.Sprintf("vips[%d].scheme", i)] {
			c.problem(fmt.Sprintf("vips[%d].scheme", i), c.VIPs[i].Scheme,
				fmt.Sprintf("vips[%d] (%s) on the same address has scheme faild, and a switch routes addresses, not ports", j, c.VIPs[j].Name),
				"write scheme: faild for both, or give one an address of its own")
		}
	}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		path := fmt.Sprintf("vips[%d]", i)
		if len(c.Switches) == 0 && !c.origin.Bad["switches"] {
			c.problem(path+".scheme", vip.Faild, "the file names no switch, and nobody else forwards for it", "write switches: [{name: sw1}], and run `fairlead switch` there")
		}
		if first < 0 {
			first = i
			continue
		}
		one := &c.VIPs[first]
		differs := func(key, value, other string) {
			if value != other {
				c.problem(path+"."+key, value, fmt.Sprintf("vips[%d] (%s) has %s, and all VIPs of scheme faild share the switch's nexthops", first, one.Name, other), "write the same for both")
			}
		}
		differs("buckets", fmt.Sprint(v.Buckets), fmt.Sprint(one.Buckets))
		differs("chain_time", v.ChainTime.String(), one.ChainTime.String())
		if !slices.Equal(v.Servers, one.Servers) {
			c.problem(path+".servers", "", fmt.Sprintf("vips[%d] (%s) has another pool, and all VIPs of scheme faild share the switch's nexthops", first, one.Name),
				"write the same servers with the same settings in the same order, or scheme: beamer")
		}
	}
}

// checkSwitches looks at each switch's own settings.
func (c *Config) checkSwitches() {
	for i, s := range c.Switches {
		path := fmt.Sprintf("switches[%d]", i)
		c.checkInterface(path+".bridge", s.Bridge)
		for _, name := range slices.Sorted(maps.Keys(s.Ports)) {
			p := path + ".ports." + name
			if c.pool.named[name] == nil {
				remedy := "add it to servers"
				if near := c.near(name, c.pool.names); near != "" {
					remedy = "write " + near + ", or add it to servers"
				}
				c.problem(p, "", "no such server", remedy)
			}
			c.checkInterface(p, s.Ports[name])
			if s.Ports[name] == s.Bridge {
				c.problem(p, s.Bridge, "the bridge itself, no port of it", "`bridge link` lists its ports")
			}
		}
		// The kernel's own tables: default, main, local.
		if t := s.AnnounceTable; t < 1 || t > math.MaxUint32 || t >= 253 && t <= 255 {
			c.problem(path+".announce_table", t, "no routing table of its own", "write 1 to 252 or 256 to 4294967295, which nothing else uses")
		}
		if s.LockPercent < 1 || s.LockPercent > 100 {
			c.problem(path+".lock_percent", s.LockPercent, "out of range", "write 1 to 99, or 100 for a switch that never locks itself")
		}
		if s.LockWindow < time.Second || s.LockWindow > time.Hour {
			c.problem(path+".lock_window", s.LockWindow.String(), "out of range", "write 1s to 1h")
		}
		if s.Flaps < 1 || s.Flaps > 60 {
			c.problem(path+".flaps", s.Flaps, "out of range", "write 1 to 60 a minute")
		}
	}
}
