package lb

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
)

// Scheme beamer: what packets go by is the assignment's bucket table with this
// daemon's health and the agents' reports laid over (buckets.Effective). It is
// kept from Apply to Apply, since whom a bucket was given to meanwhile, a
// deputy say, is written nowhere else; but for the rows in force, from which a
// daemon that starts anew reads it.
//
//	assignment's table ─┐
//	health (down) ──────┼─▶ Effective ─▶ rows of the idle half ─▶ flip
//	reports (SetOwned) ─┘       ▲                                   │
//	                            └─── rows in force: a restart, ◀────┘
//	                                 an Apply that failed

// bucketTables are those of all VIPs, by id. A nil one is for plans that are
// only to say what they need.
type bucketTables struct {
	tables  map[uint32]*buckets.Effective
	inForce map[uint32]uint32       // generation by which packets go
	reports map[uint32][]ownReport  // by VIP, then by slot as far as any reported
	moved   map[uint32]BucketStatus // of those in force
	kept    map[uint32]uint64       // chains forgotten by tables that were read again since
	// newUntil is until when a table that began with no rows of before takes
	// every owner that reports itself into its chains.
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

// newFor is how many seconds reports of servers that no row names are taken
// into the chains of a table that began with no rows of before: as long as it
// takes to ask everybody a few times.
const newFor = 15

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

func newBucketTables() *bucketTables {
	return &bucketTables{tables: map[uint32]*buckets.Effective{}, inForce: map[uint32]uint32{},
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
	// Previous are the slots that chains name or may name again, ascending:
	// whose agents are to be asked what they own (SetOwned).
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

// SetOwned tells of which buckets of a VIP the server in a slot has a
// connection: a bit a bucket, lowest first; those behind the end have none.
// at is when the server looked. The next Apply goes by it: chains end early
// where nobody owns anything any more, and last longer where somebody does. A
// report that is older than the one before is ignored.
func (l *LB) SetOwned(vipID uint32, slot uint16, owned []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.buckets.reports[vipID]
	for len(of) <= int(slot) {
		of = append(of, ownReport{})
	}
	l.buckets.reports[vipID] = of
	r := ownReport{slices.Clone(owned), uint32(l.sharedMS(at) / 1000)}
	if int32(r.at-of[slot].at) >= 0 || of[slot].at == 0 {
		of[slot] = r
	}
}

// SetEndAfter says from when on a report that a server owns nothing of a bucket
// ends its chain: since every balancer has the newest table, and nobody gives
// that server connections of the bucket any more. Reports from before still
// say whom a full chain drops. The zero time is no bound, one far ahead keeps
// all chains for their whole time. The next Apply goes by it.
func (l *LB) SetEndAfter(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buckets.endAfter = 0
	if !t.IsZero() {
		l.buckets.endAfter = uint32(min((l.sharedMS(t)+999)/1000, math.MaxUint32))
	}
}

// sharedMS is the moment t of the wall clock in ms since 1970 on the shared
// clock, which is not stepped when the wall clock is: the times that hops carry
// are of that one.
func (l *LB) sharedMS(t time.Time) uint64 {
	wall := uint64(max(t.UnixMilli(), 0))
	if !l.clockSet {
		return wall
	}
	now := uint32(time.Now().UnixMilli())
	return wall + uint64(int64(int32(monotonicMS()+l.clockD-now)))
}

// wallTime undoes sharedMS for whole seconds; zero for 0.
func (l *LB) wallTime(s uint32) time.Time {
	if s == 0 {
		return time.Time{}
	}
	now := time.Now()
	ahead := int64(l.sharedMS(now)) - now.UnixMilli()
	// A little later, so that the second has begun by a clock read again.
	return time.UnixMilli(int64(s)*1000 - ahead + 5)
}

// update brings the table of v up to date at a time, s since 1970 on the
// shared clock.
func (b *bucketTables) update(v *controller.VIP, down func(vipID uint32, slot uint16) bool, now uint32) (s stretch, err error) {
	t := v.Buckets
	if have, ok := b.inForce[v.ID]; ok && buckets.Newer(have, t.Generation) {
		return s, fmt.Errorf("vip %s: buckets: generation %d is older than %d, by which packets go; hand out the newest assignment again (fairlead apply), or, if the older one is right, drain and unload this balancer first", v.Name, t.Generation, have)
	}
	e := b.tables[v.ID]
	if e == nil || e.Len() != t.Len() {
		e = new(buckets.Effective)
		b.tables[v.ID], b.newUntil[v.ID] = e, now+newFor
	}
	view := buckets.View{Now: now, ChainTime: seconds(v.ChainTime), Servers: v.BucketServers(), EndAfter: b.endAfter, Datagrams: v.Protocol == config.UDP}
	view.Down = func(slot uint16) bool {
		// Nobody checks a server that was removed. Removed by force it is often
		// a dead one, and would swallow what is for servers behind it.
		if s, ok := v.Slot(slot); ok && s.State == controller.Resting {
			return true
		}
		return down != nil && down(v.ID, slot)
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
	b.ahead = true
	due, changed := e.Update(t, view)
	return stretch{vip: v.ID, n: t.Len(), rows: e, table: t, due: due, changed: changed, chainTime: view.ChainTime}, nil
}

func seconds(d time.Duration) uint32 {
	return uint32(min((d+time.Second-1)/time.Second, math.MaxUint32))
}

// statusOf counts the chains of e.
func statusOf(e *buckets.Effective) BucketStatus {
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

// enforced notes that packets go by p's tables.
func (b *bucketTables) enforced(p *plan) {
	clear(b.inForce)
	for _, s := range p.stretches {
		e, status := s.rows, b.moved[s.vip]
		b.inForce[s.vip] = e.Generation
		if s.changed || status.Buckets != e.Len() {
			status = statusOf(e)
		}
		status.VIP, status.Generation, status.Forgotten = s.vip, e.Generation, b.kept[s.vip]+e.Forgotten
		status.due, status.chainTime = s.due, s.chainTime
		status.Deputies, status.Renewed, status.Previous = 0, e.Renewed(), e.Asked()
		for bucket, slot := range s.table.Current {
			if e.Current[bucket] != slot {
				status.Deputies++
			}
		}
		b.moved[s.vip] = status
	}
	b.ahead = false
}

// forgetOthers drops what is kept of VIPs that a does not have, or that have
// no bucket table any more.
func (b *bucketTables) forgetOthers(a *controller.Assignment) {
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

// readBuckets takes the tables from the rows by which packets go.
func (l *LB) readBuckets() error {
	o := l.running()
	control, err := o.readControl()
	if err != nil {
		return err
	}
	entries, err := o.readVIPs(control.Active & 1)
	if err != nil {
		return err
	}
	b := l.buckets
	for id, e := range b.tables {
		b.kept[id] += e.Forgotten
	}
	clear(b.tables)
	clear(b.inForce)
	clear(b.moved)
	for _, e := range entries {
		if bpf.Scheme(e.Scheme) != bpf.SchemeBeamer || bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry != 0 {
			continue
		}
		memory, err := o.mapEntries()
		if err != nil {
			return err
		}
		if int(e.HashTable) > len(memory) {
			return fmt.Errorf("VIP %d: its bucket table lies outside of map %s", e.Id, mapTables)
		}
		rows, err := readRows(memory[e.HashTable:], int(e.HashSize), e.Generation, l.sharedMS(l.now()))
		if err != nil {
			return fmt.Errorf("VIP %d: %w", e.Id, err)
		}
		b.tables[e.Id], b.inForce[e.Id] = rows, e.Generation
		status := statusOf(rows)
		status.VIP, status.Generation, status.Forgotten = e.Id, e.Generation, b.kept[e.Id]
		b.moved[e.Id] = status
	}
	b.ahead = false
	return nil
}

// undoBuckets lets the tables be again what packets go by, after an Apply that
// failed.
func (l *LB) undoBuckets() {
	if !l.buckets.ahead {
		return
	}
	if err := l.readBuckets(); err != nil {
		l.log.Error("read the bucket tables in force", "error", err)
	}
}

// bucketStatus is that of all VIPs, by id. What it points to does not change.
func (l *LB) bucketStatus() (list []BucketStatus) {
	for id, s := range l.buckets.moved {
		if _, ok := l.buckets.inForce[id]; ok {
			s.NextEnd = l.wallTime(s.due)
			if s.Chains > 0 && s.chainTime > 0 {
				s.FirstEnd, s.LastEnd = l.wallTime(s.first+s.chainTime), l.wallTime(s.last+s.chainTime)
			}
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b BucketStatus) int { return int(a.VIP) - int(b.VIP) })
	return list
}
