package tables

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/vip"
)

// Scheme beamer: what packets go by is the assignment's bucket table with this
// daemon's health and the agents' reports laid over (effective.Table). It is
// kept from plan to plan, since whom a bucket was given to meanwhile, a
// deputy say, is written nowhere else; but for the rows in force, from which a
// daemon that starts anew reads it.
//
//	assignment's table ─┐
//	health (down) ──────┼─▶ effective ─▶ rows of the idle half ─▶ flip
//	reports (Report) ───┘       ▲                                   │
//	                            └─── rows in force: a restart, ◀────┘
//	                                 a plan not brought into force

// Chains are the bucket tables of all VIPs, by id. A nil one is for plans that are
// only to say what they need.
type Chains struct {
	tables  map[uint32]*effective.Table
	inForce map[uint32]uint32       // generation by which packets go
	reports map[uint32][]ownReport  // by VIP, then by slot as far as any reported
	moved   map[uint32]BucketStatus // of those in force
	kept    map[uint32]uint64       // chains forgotten by tables that were read again since
	// newUntil is until when a table that began with no rows of before, was read
	// again, or missed generations asks everybody, and takes every owner that
	// reports itself into its chains.
	newUntil map[uint32]uint32
	// endAfter: see SetEndAfter; s since 1970 on the shared clock.
	endAfter uint32
	ahead    bool // a table may be ahead of the rows in force
}

// ownReport is what one server's agent said that it owns.
type ownReport struct {
	buckets buckets.Bitmap
	at      uint32 // s since 1970 on the shared clock
}

// NewFor is how many seconds servers that no row names are asked, and taken into
// chains, by a table that may know less than other balancers': as long as it
// takes to ask everybody a few times.
const NewFor = 15

// ownersOf turns reports round: who owns connections of each of n buckets.
func ownersOf(n int, reports []ownReport) func(bucket int) []uint16 {
	var numbers []uint16
	var owned []buckets.Bitmap
	for slot, r := range reports {
		if len(r.buckets) > 0 {
			numbers, owned = append(numbers, uint16(slot)), append(owned, r.buckets)
		}
	}
	return buckets.OwnersOf(n, numbers, owned)
}

// NewChains is empty.
func NewChains() *Chains {
	return &Chains{tables: map[uint32]*effective.Table{}, inForce: map[uint32]uint32{},
		reports: map[uint32][]ownReport{}, newUntil: map[uint32]uint32{}, moved: map[uint32]BucketStatus{}, kept: map[uint32]uint64{}}
}

// BucketStatus is how the bucket table of a VIP stands.
type BucketStatus struct {
	VIP        uint32 // id
	Buckets    int
	Generation uint32 // of the table in force
	// Chains is how many buckets name previous servers, to which packets are
	// passed on.
	Chains int
	// NextEnd is when time alone changes a chain next; zero: never.
	NextEnd time.Time
	// FirstEnd and LastEnd are when the first and the last chain end if nobody
	// reports anything any more; zero without chains.
	FirstEnd, LastEnd time.Time
	// Previous are the slots whose agents are to be asked what they own (Report),
	// ascending: those that chains name or may name again, and all of them for
	// NewFor after this daemon may have missed others' chains.
	Previous []uint16
	// Loads is how many buckets each slot has, PreviousOf in how many chains it
	// stands; slots without any are left out.
	Loads, PreviousOf map[uint16]int
	// Deputies is how many buckets another server has than the assignment
	// says, for its health. 0 until the first Apply.
	Deputies int
	// Renewed is how many chains last longer than their time, since previous
	// servers own connections.
	Renewed int
	// Forgotten counts previous servers that found no place in a chain though
	// connections may be there, since this process began.
	Forgotten uint64

	// In s since 1970 on the shared clock: NextEnd, 0: never; the earliest and
	// the latest time that a chain's packets carry; and how long after that
	// they are passed on.
	due, first, last, chainTime uint32
}

// Report tells of which buckets of a VIP the server in a slot has a
// connection: a bit a bucket, lowest first; those behind the end have none.
// at is when the server looked, s since 1970 on the shared clock. The next plan
// goes by it: chains end early where nobody owns anything any more, and last
// longer where somebody does. A report that is older than the one before is
// ignored.
func (b *Chains) Report(vip uint32, slot uint16, owned []byte, at uint32) {
	of := b.reports[vip]
	for len(of) <= int(slot) {
		of = append(of, ownReport{})
	}
	b.reports[vip] = of
	if int32(at-of[slot].at) >= 0 || of[slot].at == 0 {
		of[slot] = ownReport{slices.Clone(owned), at}
	}
}

// SetEndAfter says from when on, s since 1970 on the shared clock, a report that
// a server owns nothing of a bucket ends its chain. 0 is no bound.
func (b *Chains) SetEndAfter(s uint32) { b.endAfter = s }

// update brings the table of v up to date at a time, s since 1970 on the
// shared clock.
func (b *Chains) update(v *controller.VIP, down func(vipID uint32, slot uint16) bool, now uint32) (s Stretch, err error) {
	t := v.Buckets
	if have, ok := b.inForce[v.ID]; ok && buckets.Newer(have, t.Generation) {
		return s, fmt.Errorf("vip %s: buckets: generation %d is older than %d, by which packets go; hand out the newest assignment again (fairlead apply), or, if the older one is right, drain and unload this balancer first", v.Name, t.Generation, have)
	}
	e := b.tables[v.ID]
	if e == nil || e.Len() != t.Len() {
		e = new(effective.Table)
		b.tables[v.ID] = e
	}
	if e.Missed(t) {
		b.newUntil[v.ID] = now + NewFor
	}
	view := effective.View{Now: now, ChainTime: seconds(v.ChainTime), Servers: v.BucketServers(), EndAfter: b.endAfter, Datagrams: v.Protocol == vip.UDP}
	resting := make([]bool, buckets.MaxServers)
	for i := range v.Slots {
		resting[v.Slots[i].Number] = v.Slots[i].State == controller.Resting
	}
	view.Down = func(slot uint16) bool {
		// Nobody checks a server that was removed. Removed by force it is often
		// a dead one, and would swallow what is for servers behind it.
		return resting[slot] || down != nil && down(v.ID, slot)
	}
	if of := b.reports[v.ID]; len(of) > 0 {
		view.Owns = func(slot uint16, bucket int) (bool, uint32) {
			if int(slot) >= len(of) {
				return false, 0
			}
			return of[slot].buckets.Has(bucket), of[slot].at
		}
		if now < b.newUntil[v.ID] {
			view.Owners = ownersOf(t.Len(), of)
		}
	}
	s = Stretch{VIP: v.ID, n: t.Len(), Rows: e, table: t, chainTime: view.ChainTime}
	if now < b.newUntil[v.ID] {
		for _, server := range view.Servers {
			s.everybody = append(s.everybody, server.Number)
		}
	}
	b.ahead = true
	s.due, s.changed = e.Update(t, view)
	return s, nil
}

func seconds(d time.Duration) uint32 {
	return uint32(min((d+time.Second-1)/time.Second, math.MaxUint32))
}

// statusOf counts the chains of e.
func statusOf(e *effective.Table) BucketStatus {
	s := BucketStatus{Buckets: e.Len(), Loads: map[uint16]int{}, PreviousOf: map[uint16]int{}}
	var loads, named [buckets.MaxServers + 1]int
	for b, p := range e.Previous {
		loads[e.Current[b]]++
		if p[0] == buckets.None {
			continue
		}
		if s.Chains++; s.Chains == 1 {
			s.first, s.last = e.Since[b], e.Since[b]
		}
		s.first, s.last = min(s.first, e.Since[b]), max(s.last, e.Since[b])
		for _, slot := range p {
			named[slot]++
		}
	}
	for slot := range uint16(buckets.None) {
		if loads[slot] > 0 {
			s.Loads[slot] = loads[slot]
		}
		if named[slot] > 0 {
			s.PreviousOf[slot] = named[slot]
			s.Previous = append(s.Previous, slot)
		}
	}
	return s
}

// Enforced notes that packets go by p's tables.
func (b *Chains) Enforced(p *Plan) {
	clear(b.inForce)
	for _, s := range p.Stretches {
		e, status := s.Rows, b.moved[s.VIP]
		b.inForce[s.VIP] = e.Generation
		if s.changed || status.Buckets != e.Len() {
			status = statusOf(e)
		}
		status.VIP, status.Generation, status.Forgotten = s.VIP, e.Generation, b.kept[s.VIP]+e.Forgotten
		status.due, status.chainTime = s.due, s.chainTime
		status.Deputies, status.Renewed, status.Previous = 0, e.Renewed(), s.everybody
		if s.everybody == nil {
			status.Previous = e.Asked()
		}
		for bucket, slot := range s.table.Current {
			if e.Current[bucket] != slot {
				status.Deputies++
			}
		}
		b.moved[s.VIP] = status
	}
	b.ahead = false
}

// forgetOthers drops what is kept of VIPs that a does not have, or that have
// no bucket table any more.
func (b *Chains) forgetOthers(a *controller.Assignment) {
	if b == nil {
		return
	}
	has := map[uint32]bool{}
	for i := range a.VIPs {
		has[a.VIPs[i].ID] = a.VIPs[i].Bucketed()
	}
	for id := range b.tables {
		if !has[id] {
			b.ahead = true
			delete(b.tables, id)
			delete(b.moved, id)
			delete(b.kept, id)
			delete(b.newUntil, id)
		}
	}
	for id := range b.reports {
		if !has[id] {
			delete(b.reports, id)
		}
	}
}

// Ahead says that a plan that was not brought into force has changed tables:
// they must be read again (Adopt).
func (b *Chains) Ahead() bool { return b.ahead }

// Adopt takes the tables from the rows by which packets go: entries are the VIP
// table's in force, memory is map tables, and now the shared clock.
func (b *Chains) Adopt(entries []bpf.VIP, memory func() ([]uint64, error), nowMS uint64) error {
	for id, e := range b.tables {
		b.kept[id] += e.Forgotten
	}
	clear(b.tables)
	clear(b.inForce)
	clear(b.moved)
	for _, e := range entries {
		if !vip.SchemeOf(e.Scheme).Hops || bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry != 0 {
			continue
		}
		all, err := memory()
		if err != nil {
			return err
		}
		if int(e.HashTable) > len(all) {
			return fmt.Errorf("VIP %d: its bucket table lies outside of map tables", e.Id)
		}
		rows, err := ReadRows(all[e.HashTable:], int(e.HashSize), e.Generation, nowMS)
		if err != nil {
			return fmt.Errorf("VIP %d: %w", e.Id, err)
		}
		b.tables[e.Id], b.inForce[e.Id] = rows, e.Generation
		b.newUntil[e.Id] = uint32(nowMS/1000) + NewFor
		status := statusOf(rows)
		status.VIP, status.Generation, status.Forgotten = e.Id, e.Generation, b.kept[e.Id]
		b.moved[e.Id] = status
	}
	b.ahead = false
	return nil
}

// Status is how the tables in force stand, by VIP id. What it points to does not
// change.
func (b *Chains) Status(m Moment) (list []BucketStatus) {
	for id, s := range b.moved {
		if _, ok := b.inForce[id]; ok {
			s.NextEnd = m.Wall(s.due)
			if s.Chains > 0 && s.chainTime > 0 {
				s.FirstEnd, s.LastEnd = m.Wall(s.first+s.chainTime), m.Wall(s.last+s.chainTime)
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b BucketStatus) int { return int(a.VIP) - int(b.VIP) })
	return list
}

// What balancers tell each other of their chains. Each has deputies and times
// of its own, by what it saw of health; a connection that a router moves to
// another balancer must find the same servers asked there.

// Rows are the rows of a VIP that its assignment alone does not tell: those with
// a chain, and those whose server is a deputy. At most limit, of the buckets from
// first on; next is the bucket to go on from, 0: these are all. generation is
// that of the table in force. A VIP without a bucket table in force has no rows.
func (b *Chains) Rows(vip uint32, first, limit int) (rows []effective.BucketRow, generation uint32, next int) {
	e := b.Of(vip)
	if e == nil {
		return nil, 0, 0
	}
	rows, next = e.Rows(first, limit)
	return rows, b.inForce[vip], next
}

// Learn takes note of a peer's rows, as its Rows gives them: the next plan has
// the servers that they name asked, too, for as long as the chain time since
// their moves lasts. news says that some row names a server that is not asked yet
// and of which no report says that it owns nothing, so that a plan makes a
// difference.
func (b *Chains) Learn(vip uint32, rows []effective.BucketRow, m Moment) (news bool) {
	e := b.Of(vip)
	if e == nil {
		return false
	}
	e.Learn(rows)
	over := m.seconds() - b.moved[vip].chainTime
	for _, r := range rows {
		if int(r.Bucket) >= e.Len() {
			continue
		}
		own := e.At(int(r.Bucket))
		asked := func(s uint16) bool {
			return s == buckets.None || s == own.Current || slices.Contains(own.Previous[:], s)
		}
		if !asked(r.Current) {
			return true // it gets new connections there
		}
		if r.Since <= over {
			continue
		}
		for _, s := range r.Previous {
			if !asked(s) && !b.disowned(vip, s, r) {
				return true
			}
		}
	}
	return false
}

// Of is the bucket table of a VIP, nil if packets go by none; read only.
func (b *Chains) Of(vip uint32) *effective.Table {
	if _, ok := b.inForce[vip]; ok {
		return b.tables[vip]
	}
	return nil
}

// disowned says that a slot's agent reported, late enough, that it owns nothing
// of a peer's row.
func (b *Chains) disowned(vip uint32, slot uint16, r effective.BucketRow) bool {
	of := b.reports[vip]
	if int(slot) >= len(of) || of[slot].at == 0 {
		return false
	}
	return !of[slot].buckets.Has(int(r.Bucket)) && of[slot].at >= r.Since+buckets.ReportAfter && of[slot].at >= b.endAfter
}
