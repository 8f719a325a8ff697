package tables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
)

// The parts of a plan that are of scheme beamer.

// Moment is when a plan is made.
type Moment struct {
	Now time.Time
	// SharedMS is the same by the shared clock, ms since 1970. Plans without
	// bucket tables do not need it.
	SharedMS uint64
}

// Wall turns seconds since 1970 on the shared clock back; zero for 0.
func (m Moment) Wall(s uint32) time.Time {
	if s == 0 {
		return time.Time{}
	}
	ahead := int64(m.SharedMS) - m.Now.UnixMilli()
	// A little later, so that the second has begun by a clock read again.
	return time.UnixMilli(int64(s)*1000 - ahead + 5)
}

func (m Moment) seconds() uint32 { return uint32(m.SharedMS / 1000) }

// Stretch is the bucket table of a VIP as it will stand in `tables`.
type Stretch struct {
	VIP   uint32           // id
	First uint32           // its first row's entry of `tables`
	Rows  *effective.Table // nil where they are only measured
	entry int              // in Plan.Entries
	n     int              // buckets
	table *buckets.Table   // what Rows were brought to
	// everybody is all slots while their agents are to be asked, whoever is named.
	everybody []uint16
	// due is when time alone changes rows, s since 1970 on the shared clock, 0:
	// never; changed says that rows are not those of the plan before.
	due, chainTime uint32
	changed        bool
}

// ofBalancers is a without the VIPs that switches serve.
func ofBalancers(a *controller.Assignment) *controller.Assignment {
	others := func(v controller.VIP) bool { return v.Scheme.Row().Switched }
	if !slices.ContainsFunc(a.VIPs, others) {
		return a
	}
	own := *a
	own.VIPs = slices.DeleteFunc(slices.Clone(a.VIPs), others)
	return &own
}

// bucketed fills in what e says of v's bucket table, and appends that; place
// says where it stands.
func (p *Plan) bucketed(v *controller.VIP, e *bpf.VIP, view *View) error {
	t := v.Buckets
	s := Stretch{VIP: v.ID, n: t.Len()}
	if view.Chains != nil {
		var err error
		if s, err = view.Chains.update(v, view.Down, view.seconds()); err != nil {
			return err
		}
		p.sooner(view.Wall(s.due))
	}
	s.entry = len(p.Entries)
	e.HashForm, e.HashSize, e.Generation = uint8(bpf.HashBuckets), uint32(s.n), t.Generation
	if slices.ContainsFunc(t.Current, func(s uint16) bool { return s != buckets.None }) {
		e.NewSize = e.HashSize
	}
	p.Stretches = append(p.Stretches, s)
	return nil
}

// place puts the bucket tables behind the others, from entry base of `tables`
// on, each where words of its buckets share a cache line.
func (p *Plan) place(base uint32, room uint32) error {
	at, need := uint64(base)+uint64(p.flat), uint64(p.flat)
	rows := 0
	for i := range p.Stretches {
		s := &p.Stretches[i]
		at = (at + BucketWords - 1) &^ (BucketWords - 1)
		s.First = uint32(at)
		e := &p.Entries[s.entry]
		e.HashTable, e.NewTable = s.First, s.First
		at += uint64(BucketEntries(s.n))
		need += uint64(BucketEntries(s.n) + BucketWords - 1) // wherever base is
		rows += s.n
	}
	p.Size, p.Need = uint32(min(at-uint64(base), 1<<32-1)), need
	if need <= uint64(room) {
		return nil
	}
	of := "the policies' and hash tables need"
	if rows > 0 {
		of = fmt.Sprintf("the policies' and hash tables and those of %d buckets (nine entries for four: their rows, and the chains of those that have moved) need", rows)
	}
	return fmt.Errorf("limits.table_entries %d %w: %s %d (twice %d, for the idle copy)", 2*room, ErrLimit, of, 2*need, need)
}

// bucketSets are the flags of v's lines: who takes new connections is what its
// bucket table says, and no packet asks a line. So lines stay as they are while servers
// join, drain and leave.
func bucketSets(v *controller.VIP, down func(vipID uint32, slot uint16) bool) sets {
	r := sets{lines: map[uint16]uint8{}}
	for _, s := range v.Slots {
		var f uint8
		if down != nil && down(v.ID, s.Number) {
			f = bpf.LineDown | bpf.LineClosed
		}
		r.lines[s.Number] = f
	}
	return r
}

// joinEntry makes e, the settings of v's address, serve the joins of v's MPTCP
// connections as well.
func joinEntry(e *bpf.VIP, v *controller.VIP, service bpf.VIP) {
	flags := e.Flags & uint8(bpf.VIPAddressEntry|bpf.VIPICMPEcho)
	*e = service
	e.Flags |= flags | uint8(bpf.VIPJoin)
	e.JoinHash = joinHash(service.HashKey, netip.AddrPortFrom(v.Address, v.Port))
}
