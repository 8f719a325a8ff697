package effective

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/controller/buckets"
)

// Update brings e to table t as seen by v. e may be new: new(Table).Update(…).
// due is when (seconds since 1970) time alone changes something, so that
// Update must be called again at that time; 0: never. changed: some row, or
// the generation, did.
//
// Where the table's server is up, it has the bucket; else a deputy has it, if
// there is any, and the server that is down stays in the chain. Whoever has a
// bucket here and loses it, by the table or by health, becomes its previous
// server as of now: this daemon gave it connections until now. What the table
// says of previous servers is added, since other daemons did, too.
func (e *Table) Update(t *buckets.Table, v View) (due uint32, changed bool) {
	u := update{Table: e, v: v, o: buckets.Options{Now: v.Now, ChainTime: v.ChainTime, Owns: v.Owns, EndAfter: v.EndAfter}, due: math.MaxUint64}
	u.skipped = e.Missed(t)
	if len(e.Current) != t.Len() {
		changed = true
		n := t.Len()
		e.Current, e.Since, e.Previous = slices.Clone(t.Current), make([]uint32, n), make([][buckets.Chain]uint16, n)
		for b := range e.Previous {
			e.Previous[b] = buckets.NoPrevious
		}
		e.table = nil
	}
	changed = changed || e.Generation != t.Generation
	if u.fresh = e.table != t; u.fresh {
		e.come = e.upTo(t, v.Now)
	}
	u.t = e.come
	u.look()
	e.Generation, e.table = t.Generation, t
	u.begin()
	if !u.all {
		for _, c := range u.open {
			for len(u.heard) > 0 && u.heard[0].Bucket < c.bucket {
				changed = u.row(u.plain(int(u.heard[0].Bucket))) || changed
			}
			changed = u.row(c) || changed
		}
		for len(u.heard) > 0 {
			changed = u.row(u.plain(int(u.heard[0].Bucket))) || changed
		}
		return u.dueAt(), changed
	}
	changed = u.rows() || changed
	return u.dueAt(), changed
}

// upTo is t without moves that are yet to come: where the controller's clock was ahead of
// the shared one, they were made by now, or when they came here. Packets would carry a
// time that, far enough ahead, looks long past.
func (e *Table) upTo(t *buckets.Table, now uint32) *buckets.Table {
	come := t
	for b, since := range t.Since {
		if since <= now {
			continue
		}
		if come == t {
			come = t.Clone()
		}
		if come.Since[b] = now; e.Since[b] > 0 && e.Since[b] < now {
			come.Since[b] = e.Since[b]
		}
	}
	return come
}

// rowsAtOnce is how many rows one goroutine does before it takes others; tests have it
// smaller.
var rowsAtOnce = 1 << 16

// rows looks at all rows. Parts of them are looked at at the same time: a row depends on
// no other, unless deputies are counted (Fewest), rows of peers are taken in, or
// the caller's Owners are asked, who are few or none when a large table changes.
func (u *update) rows() (changed bool) {
	n := u.t.Len()
	if n <= rowsAtOnce || u.v.Fewest || u.v.Owners != nil || len(u.heard) > 0 {
		return u.stretch(0, n)
	}
	if slices.Contains(u.out, true) {
		u.muster() // before many want to
	}
	type part struct {
		update
		table      Table
		first, end int
		count      int // rows that are not settled
		changed    bool
	}
	parts := make([]part, (n+rowsAtOnce-1)/rowsAtOnce)
	atOnce(len(parts), func(i int) {
		p := &parts[i]
		p.first, p.end = i*rowsAtOnce, min((i+1)*rowsAtOnce, n)
		for b := p.first; b < p.end; b++ {
			if !u.settled(b) {
				p.count++
			}
		}
	})
	count := 0
	for i := range parts {
		count += parts[i].count
	}
	// What each part leaves open has its place in one list.
	open := make([]chained, count)
	at := 0
	for i := range parts {
		p := &parts[i]
		// Rows are common; what is counted and gathered is each part's.
		p.update, p.table = *u, *u.Table
		p.Table, p.table.open, p.table.Forgotten = &p.table, open[at:at:at+p.count], 0
		at += p.count
	}
	atOnce(len(parts), func(i int) {
		p := &parts[i]
		before, _ := slices.BinarySearchFunc(u.open, uint32(p.first), func(c chained, b uint32) int { return cmp.Compare(c.bucket, b) })
		p.update.open = u.open[before:]
		p.changed = p.stretch(p.first, p.end)
	})
	at = 0
	for i := range parts {
		p := &parts[i]
		at += copy(open[at:], p.table.open)
		u.Forgotten += p.table.Forgotten
		u.due = min(u.due, p.due)
		changed = changed || p.changed
	}
	u.Table.open = open[:at]
	return changed
}

// atOnce calls f for 0 to n-1, on all processors.
func atOnce(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// stretch looks at the rows from first up to end.
func (u *update) stretch(first, end int) (changed bool) {
	open, alone := u.open, u.v.Owners == nil && len(u.heard) == 0
	for b := first; b < end; b++ {
		if u.settled(b) && (len(u.heard) == 0 || u.heard[0].Bucket != uint32(b)) {
			continue
		}
		if alone && u.firstMove(b) {
			changed = true
			continue
		}
		c := u.plain(b)
		for len(open) > 0 && open[0].bucket <= uint32(b) {
			if open[0].bucket == uint32(b) {
				c = open[0]
			}
			open = open[1:]
		}
		changed = u.row(c) || changed
	}
	return changed
}

// plain is bucket b if its row says all.
func (u *update) plain(b int) chained {
	since := u.Since[b]
	return chained{uint32(b), since, [buckets.Chain]uint32{since, since, since}}
}

// settled: bucket b is where the table has it and nobody had it before, so
// that there is nothing to do.
func (u *update) settled(b int) bool {
	want := u.t.Current[b]
	if u.v.Owners != nil && slices.ContainsFunc(u.v.Owners(b), func(s uint16) bool { return s != u.Current[b] }) {
		return false
	}
	return want == u.Current[b] && u.Previous[b][0] == buckets.None && u.t.Previous[b][0] == buckets.None && !u.out.has(want)
}

// update is one Update's state.
type update struct {
	*Table
	t       *buckets.Table // come
	fresh   bool           // its table was not there before
	v       View
	o       buckets.Options
	skipped bool        // Missed
	all     bool        // table, servers or health are others than before
	open    []chained   // Table.open before
	heard   []BucketRow // Table.heard that is still to come, by bucket
	due     uint64

	// Of deputies, once one is needed: who takes buckets, their weights summed
	// up, and with Fewest how many each may still get.
	takers  []uint16
	weights []int
	room    []int
}

// look takes v's servers and health over.
func (u *update) look() {
	e := u.Table
	all := u.fresh || u.v.Owners != nil
	top := 0
	for _, s := range u.v.Servers {
		top = max(top, int(s.Number)+1)
	}
	down, out := make(set, top), make(set, top)
	for _, s := range u.v.Servers {
		down[s.Number] = u.v.Down != nil && u.v.Down(s.Number)
		out[s.Number] = down[s.Number] || u.v.Disabled != nil && u.v.Disabled(s.Number)
	}
	downAt := make([]uint32, top)
	for n, is := range down {
		if is && e.down.has(uint16(n)) {
			downAt[n] = e.downAt[n]
		} else if is {
			downAt[n] = max(u.v.Now, 1)
		}
	}
	e.downAt = downAt
	all = all || !e.down.equal(down) || !e.out.equal(out)
	e.down, e.out = down, out
	if all || !slices.Equal(e.servers, u.v.Servers) {
		was := e.known
		e.servers = slices.Clone(u.v.Servers)
		e.known = make(set, top)
		for _, s := range e.servers {
			e.known[s.Number] = true
		}
		// Weights count for deputies alone, and who is new is in no row.
		all = all || slices.Contains(out, true) || slices.ContainsFunc(was.numbers(), func(n uint16) bool { return !e.known.has(n) })
	}
	u.all = all
}

// row brings c's bucket to what it must be.
func (u *update) row(c chained) (changed bool) {
	e, t, b := u.Table, u.t, int(c.bucket)
	was := e.At(b)
	if !u.all && u.stays(&c, &was) {
		e.open = append(e.open, c)
		return false
	}
	now := buckets.Row{Current: t.Current[b], Previous: buckets.NoPrevious}
	if !u.all {
		now.Current = was.Current
	} else if e.out.has(now.Current) {
		now.Current = u.deputy(b)
	}
	moved := was.Current != now.Current
	c.moved = max(c.moved, t.Since[b])
	switch kept := min(u.v.ChainTime, grace); {
	case moved:
		c.moved = u.v.Now
	case u.skipped && t.Previous[b][0] != buckets.None && u.v.Now+kept > c.moved+u.v.ChainTime:
		c.moved = u.v.Now + kept - u.v.ChainTime
	}
	now.Since = max(was.Since, c.moved)
	told := u.told(&c, &was, now.Current)
	now.Since = max(now.Since, c.moved)

	var all candidates
	inTable := func(s uint16) bool { return slices.Contains(t.Previous[b][:], s) }
	add := func(servers ...uint16) {
		for _, s := range servers {
			left, settled := uint32(0), uint32(0)
			if i := slices.Index(was.Previous[:], s); i >= 0 {
				left, settled = c.left[i], c.left[i]
			}
			switch {
			case inTable(s):
				left, settled = u.leftByTable(s, t.Left(b, s), left, &was, &all), max(settled, c.moved)
			case s == t.Current[b]:
				left, settled = u.leftByTable(s, t.Since[b], left, &was, &all), max(settled, c.moved)
			}
			if s == was.Current && moved {
				left, settled = u.v.Now, u.v.Now
			}
			all.add(s, left, settled)
		}
	}
	if moved {
		add(was.Current)
	}
	add(was.Previous[:]...)
	add(t.Current[b])
	open := uint64(c.moved)+uint64(u.v.ChainTime) > uint64(u.v.Now)
	if open {
		add(t.Previous[b][:]...)
	}
	oldest := slices.Min(append(all.left[:all.n:all.n], u.v.Now))
	for _, s := range told {
		if s.has {
			all.add(s.number, s.left, s.left)
		} else {
			all.add(s.number, min(s.left, oldest), min(s.left, oldest))
		}
	}
	if u.v.Owners != nil {
		for _, s := range u.v.Owners(b) {
			all.add(s, c.moved, 0)
		}
	}
	all.sort()
	u.chain(&c, &now, &all, moved)

	if now.Previous[0] != buckets.None || now.Current != t.Current[b] || t.Previous[b][0] != buckets.None && open {
		e.open = append(e.open, c)
	}
	if now == was {
		return false
	}
	e.Current[b], e.Previous[b], e.Since[b] = now.Current, now.Previous, now.Since
	return true
}

// leftByTable is when s, which the table names as a server or previous server of
// the bucket whose row is was, had it last: told by the table, left by what is
// known here; all are the candidates so far. The table's is a late bound: s may
// have had the bucket at other daemons. Where no table was missed, whoever has a
// place in the chain has its time already; whoever has none never had the bucket
// here, or lost its place, and comes behind those who have one: else it would push
// out a deputy whose connections there are. A daemon that does give s connections
// tells so (Learn).
func (u *update) leftByTable(s uint16, told, left uint32, was *buckets.Row, all *candidates) uint32 {
	switch {
	case u.skipped:
		return max(left, told)
	case slices.Contains(was.Previous[:], s):
		return left
	}
	return slices.Min(append(all.left[:all.n:all.n], told))
}

// spoke: s, which is down, has said since that it owns something of bucket b.
func (u *update) spoke(s uint16, b int) bool {
	if u.v.Owns == nil {
		return false
	}
	owned, at := u.v.Owns(s, b)
	return owned && at > u.downAt[s]
}

// firstMove does what is to be done to bucket b if it is settled and the table gives it to
// another server, and nobody had it but the one before: what nearly all moves are. It
// tells whether it is one. Where reports or peers name others (View.Owners, Learn) none is.
func (u *update) firstMove(b int) bool {
	e, to, was := u.Table, u.t.Current[b], u.Current[b]
	if to == was || e.Previous[b][0] != buckets.None || u.t.Previous[b] != [buckets.Chain]uint16{was, buckets.None, buckets.None} ||
		e.out.has(to) || !e.known.has(was) || u.v.Datagrams && e.down.has(was) {
		return false
	}
	now := u.v.Now
	e.open = append(e.open, chained{uint32(b), now, [buckets.Chain]uint32{now}})
	e.Current[b], e.Previous[b], e.Since[b] = to, u.t.Previous[b], max(e.Since[b], now)
	u.due = min(u.due, uint64(now)+uint64(u.v.ChainTime))
	return true
}

// stays: c's bucket, whose row is was, has one previous server, the table's,
// which counts as before: what nearly all chains are at nearly all times.
func (u *update) stays(c *chained, was *buckets.Row) bool {
	s := was.Previous[0]
	alone := [buckets.Chain]uint16{s, buckets.None, buckets.None}
	if s == buckets.None || was.Previous != alone || u.t.Previous[c.bucket] != alone || was.Current != u.t.Current[c.bucket] || len(u.heard) > 0 || u.v.Datagrams && u.down.has(s) {
		return false
	}
	until, _ := u.o.Until(s, int(c.bucket), c.moved, c.left[0], max(c.left[0], c.moved))
	if until <= uint64(u.v.Now) || until != uint64(c.moved)+uint64(u.v.ChainTime) {
		return false // it ends, or is renewed
	}
	u.due = min(u.due, until)
	return true
}

func (u *update) dueAt() uint32 {
	if u.due == math.MaxUint64 {
		return 0
	}
	return uint32(min(u.due, math.MaxUint32))
}
