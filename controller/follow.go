package controller

import (
	"slices"
	"time"
)

// Follow is next as one balancer carries it out whose packets go by had until
// now: its Follow of the version before, of whatever age, or nil. The two
// differ in times alone, and in one case in a slot's state.
//
// An assignment says since when servers are new, drain or have another
// weight, and every balancer that was told then has tracked by then what the
// change moves. One whose daemon was away, or cut off, went on by the version
// before and tracked nothing for it; were it to take the assignment's times,
// a warm-up that it never saw would be over. So the changes from had to next
// are made here as a planner makes them, as of now: what this balancer did
// not foresee, it warms up for now, whatever others did meanwhile.
//
// VIPs of schemes beamer and faild have no such times: nothing is tracked.
//
// A balancer that gets each version when it is made gets the assignment's
// own times, but for the moment that the way took.
//
// What is the same in both they share: nobody changes either.
func Follow(had, next *Assignment, now time.Time) *Assignment {
	own := *next
	own.VIPs = slices.Clone(next.VIPs)
	if had == nil || had.HashKey != next.HashKey {
		return &own
	}
	stamp := stampOf(now)
	for i := range own.VIPs {
		v := &own.VIPs[i]
		// A VIP that is new here has no connections from before.
		if o := had.byIdentity(v.identity()); o != nil && o.ID == v.ID && !v.Chains() {
			*v = v.clone()
			v.follow(o.clone(), now, stamp)
		}
	}
	return &own
}

// follow gives v the times of o, which becomes what v is: see Follow.
func (v *VIP) follow(o VIP, now, stamp time.Time) {
	o.complete()
	before := o.WarmUp
	o.settle(now)
	if v.WarmUp != o.WarmUp {
		o.seal(now)
	}
	if v.Hash != o.Hash || v.Capacity != o.Capacity {
		o.replace()
	}
	slots, steps := o.Slots, o.HorizonSteps
	o = *v
	o.Slots, o.HorizonSteps = slots, steps

	// In a planner's order: who is there, who comes back, who is new, who
	// goes. A number that is another's by now is gone before.
	o.Slots = slices.DeleteFunc(o.Slots, func(s Slot) bool {
		t, ok := v.Slot(s.Number)
		return ok && (t.Server != s.Server || t.Address != s.Address)
	})
	for _, resting := range []bool{false, true} {
		for i := range o.Slots {
			s := &o.Slots[i]
			if (s.State == Resting) != resting {
				continue
			}
			if t, ok := v.Slot(s.Number); ok {
				o.followSlot(s, t, before, now, stamp)
			} else {
				s.State = Resting
			}
		}
	}
	for i := range v.Slots {
		if _, ok := o.Slot(v.Slots[i].Number); !ok {
			o.followNew(&v.Slots[i], now, stamp)
		}
	}
	o.Slots = slices.DeleteFunc(o.Slots, func(s Slot) bool {
		_, ok := v.Slot(s.Number)
		return !ok
	})
	o.settle(now)
	o.stepHorizon(stamp)
	v.Slots, v.HorizonSteps = o.Slots, o.HorizonSteps
}

// followNew adds t, which this balancer does not know yet.
func (o *VIP) followNew(t *Slot, now, stamp time.Time) {
	s := *t
	s.Since, s.OldWeight, s.WeightSince = time.Time{}, 0, time.Time{}
	if slices.ContainsFunc(o.Slots, func(s Slot) bool { return s.State == Active || o.holds(&s, now) }) {
		s.Since = o.inHorizonSince(s.Number, stamp)
	}
	at := slices.IndexFunc(o.Slots, func(s Slot) bool { return s.Number > t.Number })
	if at < 0 {
		at = len(o.Slots)
	}
	o.Slots = slices.Insert(o.Slots, at, s)
}

// followSlot brings s, the slot as this balancer has it, to t. warmUp is how
// long connections were held until now.
func (o *VIP) followSlot(s *Slot, t *Slot, warmUp time.Duration, now, stamp time.Time) {
	if s.Weight != t.Weight {
		o.reweigh(s, t.Weight, stamp)
	}
	s.API, s.RestUntil = t.API, t.RestUntil
	if s.State == t.State {
		return
	}
	was := s.State
	if t.State == Active || t.State == Draining && was != Active {
		o.begin(s, stamp)
	}
	switch s.State = t.State; t.State {
	case Draining, Resting:
		if was == Active {
			s.DrainSince = stamp
		} else if s.DrainSince.IsZero() {
			s.DrainSince = t.DrainSince
		}
	case Standby:
		// It got the last new connections of this balancer later than of
		// the others, or gets them until now: they are held meanwhile.
		if was == Active {
			s.DrainSince = stamp
		}
		if now.Before(s.DrainSince.Add(warmUp)) {
			s.State = Draining
			return
		}
		s.DrainSince = time.Time{}
	default:
		s.DrainSince = time.Time{}
	}
}
