package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
)

// Bucketed: v has its bucket table.
func (v *VIP) Bucketed() bool { return v.Buckets != nil }

// BucketServers are v's slots as its bucket table sees them, by ascending
// number: those that take no new connections have weight 0.
func (v *VIP) BucketServers() []buckets.Server {
	servers := make([]buckets.Server, len(v.Slots))
	for i, s := range v.Slots {
		servers[i].Number = s.Number
		if s.State == Active {
			servers[i].Weight = s.Weight
		}
	}
	return servers
}

// Owns is what agents said of v's buckets, for changes of its table.
func (l LiveCounts) Owns(v *VIP) buckets.Owns {
	reports := make(map[uint16]Owned, len(v.Slots))
	for _, s := range v.Slots {
		if o, ok := l.Owned[LiveKey{v.ID, s.Server}]; ok && v.answers(&s) {
			reports[s.Number] = o
		}
	}
	if len(reports) == 0 {
		return nil
	}
	return func(number uint16, bucket int) (owned bool, at uint32) {
		o, ok := reports[number]
		switch {
		case !ok || o.At.Unix() <= 0:
			return false, 0
		case o.Buckets == 0:
			owned = o.Connections > 0
		case o.Buckets != v.Buckets.Len() || len(o.Bitmap) != buckets.BitmapLen(o.Buckets):
			return false, 0 // told apart by another table
		default:
			owned = buckets.Bitmap(o.Bitmap).Has(bucket)
		}
		return owned, uint32(o.At.Unix())
	}
}

// answers: what the agent of s's server says is about s. A server that has two
// slots has moved, and nobody answers at the old address.
func (v *VIP) answers(s *Slot) bool {
	return s.State != Resting || !slices.ContainsFunc(v.Slots, func(t Slot) bool { return t.Server == s.Server && t.State != Resting })
}

// Owners are the slots whose agents said that they own connections of a bucket
// of v, ascending; nil if no agent can tell buckets apart.
func (l LiveCounts) Owners(v *VIP) func(bucket int) []uint16 {
	n := v.Buckets.Len()
	var numbers []uint16
	var owned []buckets.Bitmap
	for _, s := range v.Slots {
		if o, ok := l.Owned[LiveKey{v.ID, s.Server}]; ok && v.answers(&s) && o.Buckets == n && len(o.Bitmap) == buckets.BitmapLen(n) {
			numbers, owned = append(numbers, s.Number), append(owned, o.Bitmap)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	return buckets.OwnersOf(n, numbers, owned)
}

// options are what a change of v's table goes by.
func (p *planner) options(v *VIP) buckets.Options {
	o := buckets.Options{Now: uint32(p.now.Unix()), ChainTime: v.ChainSeconds(), Owns: p.live.Owns(v), Owners: p.live.Owners(v)}
	if v.Scheme.Row().Switched {
		o.Owns = p.ownsAny()
	}
	return o
}

// ChainSeconds is v's chain time in whole seconds, never shorter, as package
// buckets counts.
func (v *VIP) ChainSeconds() uint32 { return uint32((v.ChainTime + time.Second - 1) / time.Second) }

// moveBuckets brings v's table to its slots as they are now, in one
// generation.
func (p *planner) moveBuckets(v *VIP, next *Assignment) {
	servers, o := v.BucketServers(), p.options(v)
	t := v.Buckets
	if !slices.ContainsFunc(t.Current, func(s uint16) bool { return s != buckets.None }) {
		// Nobody had any: one range a server is the simplest.
		if slices.ContainsFunc(servers, func(s buckets.Server) bool { return s.Weight > 0 }) {
			v.Buckets = buckets.New(t.Len(), servers)
			v.Buckets.Generation = t.Generation + 1
		}
		return
	}
	moves := t.Assign(servers, o)
	has := make([]bool, buckets.MaxServers)
	for _, s := range v.Slots {
		has[s.Number] = true
	}
	known := func(number uint16) bool { return has[number] }
	if len(moves) == 0 && t.Without(known) == t {
		return
	}
	after, forgotten := t.Apply(moves, o)
	v.Buckets = after.Without(known)
	if len(moves) == 0 {
		return
	}
	words := ""
	if forgotten > 0 {
		words = fmt.Sprintf("; %d of them had %d servers before whose connections may live, and the oldest is forgotten", forgotten, buckets.Chain)
	}
	p.say(next, "vip %s: %d of %d buckets move (generation %d)%s", v.Name, len(moves), t.Len(), v.Buckets.Generation, words)
}

// refuseOwner refuses to remove s, of scheme beamer or faild, while it has
// buckets or packets are passed on to it. It tells whether it did. What a
// server that is gone owned (its agent is not asked) is lost anyway.
func (p *planner) refuseOwner(v *VIP, s *Slot) bool {
	report, asked := p.live.Owned[LiveKey{v.ID, s.Server}]
	if p.force || !s.worked() || !asked {
		return false
	}
	switch {
	case s.State == Active:
		p.refuse("vip %s: %s: it would be removed, but it takes new connections (%s live now); drain it, and remove it when its agent says that it owns none, or --force",
			v.Name, s.Server, count(report.Connections, "connection is", "connections are"))
	case report.Connections > 0:
		p.refuse("vip %s: %s: it would be removed, but %s live; wait until they end, or --force",
			v.Name, s.Server, count(report.Connections, "connection is", "connections are"))
	case v.Buckets.Counts(s.Number, p.options(v)):
		p.refuse("vip %s: %s: it would be removed, but packets are passed on to it, since buckets were its own until lately and its agent was not asked since; wait until %s, or --force",
			v.Name, s.Server, clock(later(p.now.Add(time.Second), s.DrainSince.Add(buckets.ReportAfter*time.Second))))
	default:
		return false
	}
	return true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tableFollows says why w's table must not come after v's.
func (v *VIP) tableFollows(w *VIP) error {
	if !v.Bucketed() || !w.Bucketed() {
		return nil
	}
	if err := v.Buckets.Follows(w.Buckets); err != nil {
		return fmt.Errorf("vip %s: %w", v.Name, err)
	}
	return nil
}

// knowsChains says which server's agent, that has v, does not know to whom to
// pass packets on that come to it by w.
func (v *VIP) knowsChains(w *VIP, server string) error {
	own := map[uint16]bool{}
	for _, s := range w.Slots {
		own[s.Number] = s.Server == server && s.State == Active
	}
	for b, cur := range w.Buckets.Current {
		if !own[cur] {
			continue
		}
		for _, n := range w.Buckets.Previous[b] {
			if _, ok := v.Slot(n); n != buckets.None && !ok {
				return fmt.Errorf("it does not know slot %d of vip %s, to which it would have to pass packets on", n, w.Name)
			}
		}
	}
	return nil
}

// validateChains: see Validate.
func (v *VIP) validateChains() error {
	if !v.Chains() {
		return nil
	}
	if err := v.Buckets.Validate(); err != nil {
		return err
	}
	return v.Buckets.ValidateServers(v.BucketServers())
}

// checkChains refuses pools that verbs make and the file could not have.
func (p *planner) checkChains(w *wanted) {
	if !w.vip.Scheme.Row().Hops {
		return
	}
	for _, m := range w.members {
		if first := w.members[0]; m.address.Is6() != first.address.Is6() {
			p.refuse("vip %s: %s: its address is %s, that of %s is %s, and with scheme %s servers pass packets on to each other from their own addresses; give the pool addresses of one family",
				w.vip.Name, m.server, m.address, first.server, first.address, w.vip.Scheme)
			return
		}
	}
}
