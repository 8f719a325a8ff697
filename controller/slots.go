package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/cheetah"
)

// slot is m's first state in a VIP.
func (m *member) slot(number uint16) Slot {
	s := Slot{Number: number, Server: m.server, Address: m.address, API: m.api, Weight: m.weight, State: Joining}
	switch {
	case m.drain:
		s.State = Draining
	case m.standby:
		s.State = Standby
	}
	return s
}

// stepVIP brings v one step nearer to w. What removing and adding do to each
// other is settled by going through the slots as they were.
func (p *planner) stepVIP(v *VIP, w *wanted, next *Assignment) (changed bool) {
	was := slices.Clone(v.Slots)
	v.settle(p.now)
	changed = p.settings(v, w, next)
	for i := range v.Slots {
		s := &v.Slots[i]
		if s.State == Resting {
			continue
		}
		if m := w.member(s); m != nil {
			changed = p.keep(v, s, m, next) || changed
			continue
		}
		changed = true
		if m := w.named(s.Server); m != nil && !holds(was, m, Active, Draining, Standby) {
			continue // it moves: the old slot serves until the new one does
		}
		switch s.State {
		case Standby:
			if p.restedOut(v, s) {
				s.RestUntil = time.Time{}
				p.say(next, "vip %s: remove standby %s (slot %d)", v.Name, s.Server, s.Number)
			} else {
				p.say(next, "vip %s: remove standby %s: %s", v.Name, s.Server, p.restWords(v, s))
			}
			s.State = Resting
			continue
		case Active, Joining:
			p.drain(s)
			p.say(next, "vip %s: drain %s (slot %d)", v.Name, s.Server, s.Number)
			continue
		}
		s.State = Resting
		s.RestUntil = p.restUntil(v)
		p.say(next, "vip %s: remove %s: %s", v.Name, s.Server, p.restWords(v, s))
	}
	in := map[place]bool{}
	for _, s := range v.Slots {
		if s.State != Resting {
			in[place{s.Server, s.Address}] = true
		}
	}
	// Who comes back first, and in the order of slots: what becomes of
	// others' warm-ups does not depend on the order in the file.
	for i := range v.Slots {
		s := &v.Slots[i]
		if m := w.member(s); m != nil && s.State == Resting && !in[place{s.Server, s.Address}] {
			changed = true
			in[place{s.Server, s.Address}] = true
			p.comeBack(v, s, m, next)
		}
	}
	for i := range w.members {
		m := &w.members[i]
		if in[place{m.server, m.address}] {
			continue
		}
		changed = true
		p.join(v, m, next)
	}
	rested := func(s Slot) bool { return s.State == Resting && !s.RestUntil.IsZero() && p.restedOut(v, &s) }
	changed = changed || p.tidies && slices.ContainsFunc(v.Slots, rested)
	if changed {
		// Numbers that rested out become free, for the version after this.
		kept := make([]Slot, 0, len(v.Slots))
		for i := range v.Slots {
			if s := v.Slots[i]; s.State != Resting || !p.restedOut(v, &s) {
				kept = append(kept, s)
			} else if !s.RestUntil.IsZero() {
				p.say(next, "vip %s: slot %d, which was %s's, has rested and is free", v.Name, s.Number, s.Server)
			}
		}
		v.Slots = kept
		v.settle(p.now)
		v.stepHorizon(p.stamp())
		if v.Chains() {
			p.moveBuckets(v, next)
		}
	}
	return changed
}

// drain gives s no new connections any more.
func (p *planner) drain(s *Slot) {
	if s.State == Active {
		s.DrainSince = p.stamp()
	}
	s.State = Draining
}

// stamp is now as it stands in an assignment: rounded up, so that it is the
// same after a way through JSON.
func (p *planner) stamp() time.Time { return stampOf(p.now) }

func stampOf(now time.Time) time.Time {
	return now.UTC().Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// restUntil is when a slot of v that is removed now has rested.
func (p *planner) restUntil(v *VIP) time.Time {
	return p.now.UTC().Add(v.restFor() + time.Second - 1).Truncate(time.Second)
}

// restWords says what the rest of a removed slot is for, and what becomes of
// its server meanwhile.
func (p *planner) restWords(v *VIP, s *Slot) string {
	who := "balancers may remember it"
	switch {
	case v.Chains():
		who = "its packets are passed on to it"
	case v.Tracks():
		who = "flow tables remember it"
	case v.Cookies():
		who = "cookies name it"
	}
	off := "once its connections have ended"
	n, silent := p.live.of(v.ID, s.Server)
	if n == 0 && uncounted(v, s, silent) == "" && !p.now.Before(s.DrainSince.Add(handshake)) {
		off = "now"
	}
	return fmt.Sprintf("slot %d rests until %s (until then %s, and nobody else gets the number); the server may be switched off %s",
		s.Number, s.RestUntil.Format(time.RFC3339), who, off)
}

// place is who a slot stands for.
type place struct {
	server  string
	address netip.Addr
}

// restFor is how long the slot of a removed server is not reused: until no
// connection that may still speak carries a cookie that decodes to it, or has
// an entry in a flow table that names it.
func (v *VIP) restFor() time.Duration { return v.Rest() + handingOver }

// restedOut: no connection can name the slot any more. Live ones (removed by
// force, or opened while it was) hold it longer than its time, and so does an
// agent that does not answer. A standby that never worked rests no time.
func (p *planner) restedOut(v *VIP, s *Slot) bool {
	if v.Scheme.Row().Switched {
		return p.restedOutEverywhere(s)
	}
	return p.restedOutIn(v, s)
}

func (p *planner) restedOutIn(v *VIP, s *Slot) bool {
	if s.RestUntil.IsZero() {
		return true
	}
	n, silent := p.live.of(v.ID, s.Server)
	return !s.RestUntil.After(p.now) && n == 0 && (silent == "" || !v.Cookies() && !v.Chains())
}

func holds(slots []Slot, m *member, states ...State) bool {
	return slices.ContainsFunc(slots, func(s Slot) bool {
		return s.Server == m.server && s.Address == m.address && slices.Contains(states, s.State)
	})
}

// keep brings the slot of a wanted member to its weight and state.
func (p *planner) keep(v *VIP, s *Slot, m *member, next *Assignment) (changed bool) {
	if s.Weight != m.weight {
		p.say(next, "vip %s: %s: weight %d, was %d", v.Name, s.Server, m.weight, s.Weight)
		v.reweigh(s, m.weight, p.stamp())
		changed = true
	}
	if s.API != m.api {
		p.say(next, "vip %s: %s: api %s, was %s", v.Name, s.Server, m.api, s.API)
		s.API, changed = m.api, true
	}
	goal := Active
	switch {
	case m.drain:
		goal = Draining
	case m.standby:
		goal = Standby
	}
	if s.State == goal {
		return changed
	}
	was := s.State
	if goal != Standby && was != Active {
		v.begin(s, p.stamp())
	}
	s.State = goal
	switch {
	case goal == Draining:
		s.State = was
		p.drain(s)
		s.RestUntil = time.Time{}
		p.say(next, "vip %s: drain %s (slot %d)", v.Name, s.Server, s.Number)
	case goal == Standby && was == Active:
		// By force alone (see refuseMove), and even then new connections
		// end before those that are held are given up.
		s.State = was
		p.drain(s)
		p.say(next, "vip %s: drain %s (slot %d), which becomes a standby", v.Name, s.Server, s.Number)
	case goal == Standby:
		s.DrainSince = time.Time{}
		if was == Draining {
			s.RestUntil = p.restUntil(v) // if it is removed before
		}
		p.say(next, "vip %s: %s (slot %d) is a standby", v.Name, s.Server, s.Number)
	case was == Joining:
		p.say(next, "vip %s: %s (slot %d) takes new connections%s", v.Name, s.Server, s.Number, v.onceWarm(s, p.now))
	case was == Standby:
		s.RestUntil = time.Time{}
		p.say(next, "vip %s: %s (slot %d), a standby, takes new connections%s", v.Name, s.Server, s.Number, v.onceWarm(s, p.now))
	default:
		s.DrainSince = time.Time{}
		p.say(next, "vip %s: %s (slot %d) takes new connections again%s", v.Name, s.Server, s.Number, v.onceWarm(s, p.now))
	}
	return true
}

// join gives m a slot in v, the lowest free number. v still has every slot of
// the version before, so none of those is free.
func (p *planner) join(v *VIP, m *member, next *Assignment) {
	number := v.lowestFree()
	if int(number) >= v.slotLimit() {
		p.refuseExhausted(v, m)
		return
	}
	s := m.slot(number)
	s.Version = next.Version
	if slices.ContainsFunc(v.Slots, func(t Slot) bool { return t.State == Active || v.holds(&t, p.now) }) {
		s.Since = v.inHorizonSince(s.Number, p.stamp())
	}
	v.Slots = slices.Insert(v.Slots, int(number), s)
	what := "add"
	if m.standby {
		what = "add standby"
	}
	p.say(next, "vip %s: %s %s in slot %d (%s, weight %d)%s", v.Name, what, m.server, number, m.address, m.weight, v.warmUpWords(&s, p.now))
}

func (v *VIP) lowestFree() uint16 {
	// Numbers ascend, so that behind a gap all are above their places.
	return uint16(sort.Search(len(v.Slots), func(i int) bool { return int(v.Slots[i].Number) != i }))
}

// comeBack: every daemon knows a slot that rests, and balancers hold what its
// server still has, so it works again at once.
func (p *planner) comeBack(v *VIP, s *Slot, m *member, next *Assignment) {
	if s.Weight != m.weight {
		v.reweigh(s, m.weight, p.stamp())
	}
	s.API = m.api
	if !m.standby {
		v.begin(s, p.stamp())
	}
	what := "and takes new connections again"
	switch s.State = Active; {
	case m.drain:
		s.State, what = Draining, "and drains"
	case m.standby:
		// Its rest goes on beside, for the case that it is removed again.
		s.State, what = Standby, "as a standby"
	}
	if s.State != Standby {
		s.RestUntil = time.Time{}
	}
	if s.State != Draining {
		s.DrainSince = time.Time{}
	}
	if s.State == Active {
		what += v.onceWarm(s, p.now)
	}
	p.say(next, "vip %s: %s is back in slot %d, which rested (%s, weight %d), %s", v.Name, m.server, s.Number, m.address, m.weight, what)
}

// refuseExhausted: no number is free, not even in the version after this one.
func (p *planner) refuseExhausted(v *VIP, m *member) {
	var soonest time.Time
	resting, held := 0, 0
	for i := range v.Slots {
		s := &v.Slots[i]
		switch {
		case s.State != Resting:
			continue
		case p.restedOut(v, s):
			return
		case !s.RestUntil.After(p.now):
			held++
		case soonest.IsZero() || s.RestUntil.Before(soonest):
			soonest = s.RestUntil
		}
		resting++
	}
	remedy := "give it a VIP of its own"
	if resting > held {
		remedy = fmt.Sprintf("the next rests out at %s (in %s): wait until then",
			soonest.Format(time.RFC3339), soonest.Sub(p.now).Round(time.Second))
	} else if held > 0 {
		remedy = "wait until the live connections of a removed server end (--without it if the machine is gone)"
	}
	limit := v.slotLimit()
	all := fmt.Sprintf("all %d that a VIP can number", limit)
	switch byCookie := v.Cookies() && limit == v.Layout().Slots(); {
	case byCookie:
		all = fmt.Sprintf("all %d of a cookie of %d bits", limit, v.CookieBits)
		if v.CookieBits < cheetah.MaxBits {
			remedy += fmt.Sprintf(", or make a new VIP with cookie_bits: %d", v.CookieBits+1)
		}
	case v.Capacity > 0:
		all = fmt.Sprintf("all %d of hash %s with capacity %d", limit, v.Hash, v.Capacity)
		if limit < chash.MaxSlots {
			remedy += fmt.Sprintf(", or make a new VIP with capacity: %d (another capacity moves connections)", min(2*limit, chash.MaxSlots))
		}
	}
	p.refuse("vip %s: no slot for %s: %s are taken, %d in use and %d resting; %s",
		v.Name, m.server, all, len(v.Slots)-resting, resting, remedy)
}
