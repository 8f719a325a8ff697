package tables

import (
	"cmp"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// Who takes what in a VIP, by the state of its slots, their health and the
// time. Three sets (JET §3) come of it:
//
//	working  take new connections
//	held     keep those that they have, though they may take no new one
//	horizon  may take connections soon: what they would take is tracked now
//
// A server that enters the working set without having been in the horizon is
// warming up for VIP.WarmUp, the time after which a silent connection is
// forgotten anyway. Meanwhile the earlier connections are held where they
// were, and each is tracked at its next packet if the newcomer would take it
// (table forms); or the newcomer waits in the horizon until that is done
// (Anchor, which has one placement for all sets). A weight that grew is a
// newcomer's share of the rows, and treated alike.
//
// Where newcomers alone work, what they take now is not what they will have
// when an earlier server is back, which nothing but its health may bring about
// (no history says that it ever was away). So all of it is tracked.

// sets is a VIP's slots by their parts. Making one changes nothing.
type sets struct {
	// members are for a hash that has a table.
	members []chash.Member
	// buckets are for Anchor: by slot number, the horizon's spare ones too.
	buckets []chash.BucketState
	// takers stand in the policy's table. In Anchor form a server that is
	// warming up stands there before the hash gives it anything.
	takers []controller.Slot
	// lines are the FL_LINE_* flags by slot number.
	lines map[uint16]uint8
	// working says that the hash has a server for new connections.
	working bool
	// all connections are to be tracked, since another set of servers may hold
	// those that are not, from one moment to the next.
	all bool
	// due is when a part changes by time alone; zero: never.
	due time.Time
}

// setsOf decides the parts of v's slots at the time now. down, which may be
// nil, names slots that health checks found down; if no server would be left
// to take new connections, all active ones take them whatever it says.
func setsOf(v *controller.VIP, down func(vipID uint32, slot uint16) bool, now time.Time) sets {
	if v.Scheme.Row().Chains() {
		return bucketSets(v, down)
	}
	c := casting{v: v, now: now, kind: cmp.Or(v.Hash, vip.DefaultHash), down: map[uint16]bool{}}
	up := false
	for i := range v.Slots {
		s := &v.Slots[i]
		c.down[s.Number] = down != nil && down(v.ID, s.Number)
		if s.State == controller.Active {
			c.active, up = true, up || !c.down[s.Number]
		}
	}
	if c.active && !up {
		clear(c.down)
	}
	none, weighs := true, false
	for i := range v.Slots {
		s := &v.Slots[i]
		_, end := v.HeldWeight(s, now)
		weighs = weighs || !end.IsZero()
		if end = v.WarmUntil(s); c.takes(s) && (none || end.Before(c.first)) {
			c.first, none = end, false
		}
	}
	r := sets{lines: map[uint16]uint8{}}
	// With an Active slot those that another keeps are tracked anyway.
	r.all = !none && now.Before(c.first) || !c.active && (v.Protocol == vip.UDP || weighs)
	if c.kind == chash.KindAnchor {
		r.buckets = make([]chash.BucketState, v.HorizonTop())
		for n := range r.buckets {
			r.buckets[n] = chash.Horizon
		}
	}
	for i := range v.Slots {
		s := &v.Slots[i]
		works := c.takes(s)
		if works {
			r.takers = append(r.takers, *s)
		}
		if c.kind == chash.KindAnchor {
			for len(r.buckets) <= int(s.Number) { // beyond capacity: refused later
				r.buckets = append(r.buckets, chash.Unused)
			}
			r.buckets[s.Number] = c.bucket(s)
			works = r.buckets[s.Number] == chash.Working
		} else {
			r.members = append(r.members, c.member(s))
		}
		r.working = r.working || works
		r.lines[s.Number] = c.flags(s, works)
	}
	r.due = c.due
	return r
}

// casting is setsOf at work.
type casting struct {
	v    *controller.VIP
	kind chash.Kind
	now  time.Time
	down map[uint16]bool
	// active says that a slot is Active.
	active bool
	// first is when the first of those that take new connections is warm: a
	// time that is past, or while all are newcomers that of the earliest.
	// Anchor does not wait for it, or nobody would answer. That gives the
	// newcomer what it would have been given had it been in the horizon for
	// longer, and so also connections from before it came that have been
	// silent since, of servers that are down or drain (docs/jet.md).
	first time.Time
	due   time.Time
}

// until says whether the time end is still to come, and notes that something
// changes then.
func (c *casting) until(end time.Time) bool {
	if !c.now.Before(end) {
		return false
	}
	if c.due.IsZero() || end.Before(c.due) {
		c.due = end
	}
	return true
}

func (c *casting) warming(s *controller.Slot) bool { return c.until(c.v.WarmUntil(s)) }

// takes says that new connections may go to s.
func (c *casting) takes(s *controller.Slot) bool {
	return s.State == controller.Active && !c.down[s.Number]
}

// keeps says that s keeps the connections that were not tracked. Those of
// UDP leave a server that is down at once, for nothing tells the client to
// begin anew, and a draining one after the time in which each that lives has
// sent a packet and so was tracked; but not to go nowhere, while no slot is
// Active.
func (c *casting) keeps(s *controller.Slot) bool {
	switch s.State {
	case controller.Active, controller.Draining, controller.Resting:
	default:
		return false
	}
	if c.v.Protocol != vip.UDP {
		return true
	}
	if c.down[s.Number] {
		return false
	}
	return s.State == controller.Active || !s.DrainSince.IsZero() && (!c.active || c.until(s.DrainSince.Add(c.v.WarmUp)))
}

// member is s for a hash that has a table.
func (c *casting) member(s *controller.Slot) chash.Member {
	// One server may stand in two slots, when its address changes: a place
	// in the hash is the two together.
	m := chash.Member{Name: s.Server, Number: int(s.Number)}
	if s.Address.IsValid() { // a simulation's have none
		m.Name += " " + s.Address.String()
	}
	weight, before := s.Weight, s.Weight
	if !c.kind.Weighted() {
		weight, before = 1, 1
	} else if w, end := c.v.HeldWeight(s, c.now); w != s.Weight && c.until(end) {
		before = w
	}
	// Also one that keeps none now may do so again, by the weight before.
	m.Horizon = max(weight, before)
	if c.takes(s) {
		m.New = weight
	}
	if c.keeps(s) && !c.warming(s) {
		m.Held = before
	}
	return m
}

// bucket is s for Anchor.
func (c *casting) bucket(s *controller.Slot) chash.BucketState {
	switch {
	case c.takes(s) && (!c.warming(s) || c.v.WarmUntil(s).Equal(c.first)):
		return chash.Working
	case c.keeps(s) && !c.warming(s):
		return chash.Draining
	}
	return chash.Horizon
}

// flags are those of s's line that the flow table asks for.
func (c *casting) flags(s *controller.Slot, works bool) (f uint8) {
	if !works {
		f |= bpf.LineClosed
	}
	if c.down[s.Number] {
		f |= bpf.LineDown
	}
	return f
}
