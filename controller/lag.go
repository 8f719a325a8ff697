package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// AgentsMayLag says why some agent must not stay at version a while balancers and
// switches go by b, nil if all may: what HostMayLag and TunnelsMayLag say of one, of all
// servers at once. Where they may, nobody has to wait for them.
func AgentsMayLag(a, b *Assignment) error {
	for i := range a.VIPs {
		v := &a.VIPs[i]
		w := b.byIdentity(v.identity())
		if w != nil && (stampsForm(w) != stampsForm(v) || agentsForm(w) != agentsForm(v) || chainForm(w) != chainForm(v)) {
			w = nil
		}
		for j := range v.Slots {
			s := &v.Slots[j]
			if s.State == Resting {
				continue
			}
			if w == nil {
				return fmt.Errorf("%s serves vip %s, which version %d does not have, or otherwise", s.Server, v.Name, b.Version)
			}
			if t, ok := w.Slot(s.Number); !ok || t.Server != s.Server || t.Address != s.Address {
				return fmt.Errorf("slot %d of vip %s is another's, or gone, in version %d", s.Number, v.Name, b.Version)
			}
		}
	}
	for i := range b.VIPs {
		w := &b.VIPs[i]
		known, active := make([]bool, buckets.MaxServers+1), make([]bool, buckets.MaxServers+1)
		known[buckets.None] = true
		if v := a.byIdentity(w.identity()); v != nil {
			for j := range v.Slots {
				known[v.Slots[j].Number] = true
			}
		}
		for j := range w.Slots {
			s := &w.Slots[j]
			if active[s.Number] = s.State == Active; active[s.Number] && !known[s.Number] {
				return fmt.Errorf("%s does not know its slot %d of vip %s, which takes new connections in version %d", s.Server, s.Number, w.Name, b.Version)
			}
		}
		if !w.Bucketed() {
			continue
		}
		for bucket, cur := range w.Buckets.Current {
			if !active[cur] {
				continue
			}
			for _, n := range w.Buckets.Previous[bucket] {
				if !known[n] {
					return fmt.Errorf("slot %d of vip %s would have to pass packets on to slot %d, which it does not know", cur, w.Name, n)
				}
			}
		}
	}
	if !slices.ContainsFunc(b.Keys, func(k Key) bool { return k.Epoch == a.StampEpoch }) {
		return fmt.Errorf("agents stamp epoch %d, which version %d does not decode", a.StampEpoch, b.Version)
	}
	return errors.Join(TunnelsMayLag(a, b, ""), sourcesMayLag(a, b))
}

// sourcesMayLag says whose tunnels an agent would refuse that stays at version a while
// others have b.
func sourcesMayLag(a, b *Assignment) error {
	for _, p := range b.Sources {
		sameFamily := func(q netip.Prefix) bool { return q.Addr().Is6() == p.Addr().Is6() }
		if slices.ContainsFunc(a.Sources, sameFamily) && !slices.Contains(a.Sources, p) {
			return fmt.Errorf("it takes no tunnels from %s, where they come from in version %d", p, b.Version)
		}
	}
	return nil
}
