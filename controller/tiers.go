package controller

import (
	"slices"

	"github.com/fairlead/fairlead/chash"
)

// front is v as a balancer of tier one sees it: the balancers of tier two are its servers.
func (v *VIP) front() VIP {
	f := *v
	f.Settings = v.Settings.Front()
	f.Slots, f.TierTwo, f.HorizonSteps, f.Buckets = v.TierTwo, nil, nil, nil
	f.HashRows = chash.Rows(2 << v.TierBits())
	return f
}

// At is what a balancer of a tier (2, else one) goes by. Tier one has the balancers of
// tier two for servers where a VIP has tiers; tier two has these VIPs alone.
func (a *Assignment) At(tier int) *Assignment {
	tiered := func(v VIP) bool { return v.TierBits() > 0 }
	if tier != 2 && !slices.ContainsFunc(a.VIPs, tiered) {
		return a
	}
	own := *a
	own.VIPs = nil
	for i := range a.VIPs {
		switch v := &a.VIPs[i]; {
		case tier == 2 && v.TierBits() > 0:
			own.VIPs = append(own.VIPs, *v)
		case tier != 2 && v.TierBits() > 0:
			own.VIPs = append(own.VIPs, v.front())
		case tier != 2:
			own.VIPs = append(own.VIPs, *v)
		}
	}
	return &own
}

// InTierTwo is the number of a balancer of tier two, that of its work if it has two.
func (v *VIP) InTierTwo(name string) (number uint16, ok bool) {
	for _, s := range v.TierTwo {
		if s.Server == name && (!ok || s.State != Resting) {
			number, ok = s.Number, true
		}
	}
	return number, ok
}

// stepTiers brings the balancers of tier two one step nearer to those that w wants, as
// servers are.
func (p *planner) stepTiers(v *VIP, w *wanted, next *Assignment) (changed bool) {
	if v.TierBits() == 0 {
		return false
	}
	front := v.front()
	front.Name += " tier two"
	to := wanted{vip: front, members: w.tier, byName: map[string][]int{}}
	for i, m := range w.tier {
		to.byName[m.server] = append(to.byName[m.server], i)
	}
	front.Slots = slices.Clone(front.Slots)
	changed = p.stepVIP(&front, &to, next)
	v.TierTwo = front.Slots
	return changed
}

// tierSlots are the first slots of balancers of tier two.
func (w *wanted) tierSlots(version uint64, state func(State) State) (slots []Slot) {
	for i, m := range w.tier {
		s := m.slot(uint16(i))
		s.Version, s.State = version, state(s.State)
		slots = append(slots, s)
	}
	return slots
}
