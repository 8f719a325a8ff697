package controller

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/config"
)

// wanted is one VIP as it shall become: its settings and its pool. ID, Slots,
// HashRows, HorizonSteps and Buckets are unset; Capacity 0 is the one it has.
type wanted struct {
	vip     VIP
	buckets int // how many (schemes beamer and faild; else 0)
	members []member
	tier    []member // balancers of tier two, where the VIP has tiers
	// byName indexes members, once they are settled (planner.run).
	byName map[string][]int
}

// member is a server in a pool. A server is who it is by name and address
// together: the same name at another address is another server to cookies.
type member struct {
	server  string
	address netip.Addr
	api     string
	weight  int
	drain   bool
	standby bool // not with drain
}

// identity is what makes a VIP the same VIP under other settings.
type identity struct {
	address  netip.Addr
	port     uint16
	protocol string
}

func (v *VIP) identity() identity { return identity{v.Address, v.Port, v.Protocol} }

// desired is the file's VIPs in its order.
func desired(cfg *config.Config) ([]wanted, error) {
	var all []wanted
	servers := map[string]*config.Server{}
	for i := range cfg.Servers {
		servers[cfg.Servers[i].Name] = &cfg.Servers[i]
	}
	for i := range cfg.VIPs {
		c := &cfg.VIPs[i]
		if c.ICMPEcho == nil || c.MSSClamp == nil || c.Horizon == nil || c.Share == nil {
			return nil, fmt.Errorf("vip %s: defaults are not filled in; call Validate before", c.Name)
		}
		w := wanted{vip: VIP{Settings: c.Settings}, buckets: c.Buckets}
		if !w.vip.Steers() {
			w.vip.Steer = "" // as in assignments of builds that knew no other
		}
		for _, m := range c.Servers {
			s := servers[m.Name]
			if s == nil {
				return nil, fmt.Errorf("vip %s: no server %s; add it to servers", c.Name, m.Name)
			}
			w.members = append(w.members, member{s.Name, s.Address, s.API, m.Weight, m.Drain, m.Standby})
		}
		if w.vip.TierBits() > 0 {
			for _, b := range cfg.SecondTier() {
				w.tier = append(w.tier, member{server: b.Name, address: b.Address, api: config.NoAgent, weight: 1, drain: b.Drain})
			}
		}
		all = append(all, w)
	}
	return all, nil
}

// asIs is the state that cur is in or on its way to: what a verb starts from.
func asIs(cur *Assignment) []wanted {
	var all []wanted
	for i := range cur.VIPs {
		w := wanted{vip: cur.VIPs[i]}
		w.vip.ID, w.vip.Slots, w.vip.HorizonSteps, w.vip.Buckets, w.vip.TierTwo = 0, nil, nil, nil, nil
		w.vip.Migration = nil
		if t := cur.VIPs[i].Buckets; t != nil {
			w.buckets = t.Len()
		}
		w.vip.complete()
		for _, s := range cur.VIPs[i].Slots {
			if s.State != Resting {
				w.members = append(w.members, member{s.Server, s.Address, s.API, s.Weight, s.State == Draining, s.State == Standby})
			}
		}
		for _, s := range cur.VIPs[i].TierTwo {
			if s.State != Resting {
				w.tier = append(w.tier, member{s.Server, s.Address, s.API, s.Weight, s.State == Draining, false})
			}
		}
		all = append(all, w)
	}
	return all
}
