package lb

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
)

// The parts of a plan that are of scheme beamer.

// Schemes that go by a bucket table.
const (
	beamer = "beamer"
	faild  = "faild" // a switch's, not a balancer's
)

// moment is when a plan is made.
type moment struct {
	now time.Time
	// shared is the same by the shared clock, ms since 1970, and wall turns
	// seconds of that back. Plans without bucket tables need neither.
	shared uint64
	wall   func(s uint32) time.Time
}

func (l *LB) moment() moment {
	now := l.now()
	return moment{now, l.sharedMS(now), l.wallTime}
}

// stretch is the bucket table of a VIP as it will stand in `tables`.
type stretch struct {
	vip   uint32 // id
	entry int    // in plan.entries
	n     int    // buckets
	first uint32 // its first row's entry of `tables`
	rows  *buckets.Effective
	table *buckets.Table // what rows were brought to
	// due is when time alone changes rows, s since 1970 on the shared clock, 0:
	// never; changed says that rows are not those of the plan before.
	due, chainTime uint32
	changed        bool
}

// ofBalancers is a without the VIPs that switches serve.
func ofBalancers(a *controller.Assignment) *controller.Assignment {
	others := func(v controller.VIP) bool { return v.Scheme == faild }
	if !slices.ContainsFunc(a.VIPs, others) {
		return a
	}
	own := *a
	own.VIPs = slices.DeleteFunc(slices.Clone(a.VIPs), others)
	return &own
}

// bucketed fills in what e says of v's bucket table, and appends that; place
// says where it stands.
func (p *plan) bucketed(v *controller.VIP, e *bpf.VIP, down func(vipID uint32, slot uint16) bool, when moment, tables *bucketTables) error {
	t := v.Buckets
	if t == nil || t.Len() == 0 || t.Len() > buckets.Max {
		return fmt.Errorf("vip %s: buckets: scheme beamer needs a table of 1 to %d buckets; hand out an assignment that a controller of this build made", v.Name, buckets.Max)
	}
	if v.Forwarding == "l2" {
		return fmt.Errorf("vip %s: forwarding l2: nothing carries a packet's hops, which scheme beamer needs; use ipip or gue", v.Name)
	}
	has := make([]bool, buckets.MaxServers+1)
	has[buckets.None] = true
	for _, s := range v.Slots {
		has[s.Number] = true
	}
	served := false
	for b, s := range t.Current {
		if !has[s] {
			return fmt.Errorf("vip %s: buckets: bucket %d is of slot %d, in which no server is; hand out an assignment that was not changed by hand", v.Name, b, s)
		}
		served = served || s != buckets.None
	}
	s := stretch{vip: v.ID, n: t.Len()}
	if tables != nil {
		var err error
		if s, err = tables.update(v, down, uint32(when.shared/1000)); err != nil {
			return err
		}
		p.sooner(when.wall(s.due))
	}
	s.entry = len(p.entries)
	e.HashForm, e.HashSize, e.Generation = uint8(bpf.HashBuckets), uint32(s.n), t.Generation
	if served {
		e.NewSize = e.HashSize
	}
	p.stretches = append(p.stretches, s)
	return nil
}

// place puts the bucket tables behind the others, from entry base of `tables`
// on, each where words of its buckets share a cache line.
func (p *plan) place(base uint32, c capacity) error {
	at, need := uint64(base)+uint64(p.flat), uint64(p.flat)
	rows := 0
	for i := range p.stretches {
		s := &p.stretches[i]
		at = (at + bucketWords - 1) &^ (bucketWords - 1)
		s.first = uint32(at)
		e := &p.entries[s.entry]
		e.HashTable, e.NewTable = s.first, s.first
		at += uint64(bucketEntries(s.n))
		need += uint64(bucketEntries(s.n) + bucketWords - 1) // wherever base is
		rows += s.n
	}
	p.size, p.need = uint32(min(at-uint64(base), 1<<32-1)), need
	if need <= uint64(c.tableEntries) {
		return nil
	}
	of := "the policies' and hash tables need"
	if rows > 0 {
		of = fmt.Sprintf("the policies' and hash tables and those of %d buckets (nine entries for four: their rows, and the chains of those that have moved) need", rows)
	}
	return fmt.Errorf("limits.table_entries %d %w: %s %d (twice %d, for the idle copy)", 2*c.tableEntries, errLimit, of, 2*need, need)
}

// bucketSets are the flags of v's lines: who takes new connections is what its
// bucket table says.
func bucketSets(v *controller.VIP, down func(vipID uint32, slot uint16) bool) sets {
	r := sets{lines: map[uint16]uint8{}}
	for _, s := range v.Slots {
		var f uint8
		if down != nil && down(v.ID, s.Number) {
			f = lineDown | lineClosed
		}
		if s.State != controller.Active || s.Weight == 0 {
			f |= lineClosed
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
	key := cheetah.Key(service.HashKey)
	words := tables.Key{Addr: v.Address}.Words()
	port := tables.Key{Port: v.Port}.PortBE()
	e.JoinHash = cheetah.HashIPv6(&key, words[0], words[1], uint32(port)<<16)
}
