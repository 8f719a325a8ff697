package buckets

import (
	"math"
	"slices"
)

// View is what one daemon knows besides the table.
type View struct {
	// Now is the time in seconds since 1970.
	Now uint32
	// ChainTime: see Options.
	ChainTime uint32
	// Servers are all that the daemon has a way to, by ascending number.
	// Those with weight 0 (joining, draining, resting) are no deputies.
	Servers []Server
	// Down are the servers that do not answer, nil: none. They stand last in
	// chains.
	Down func(number uint16) bool
	// Datagrams: the packets are UDP, so that one which nobody owns goes down
	// the whole chain before it is taken. A server that is down and has not
	// said since that it owns something would swallow it, and is left out.
	Datagrams bool
	// Disabled are those that take no new connections, but have theirs; nil:
	// none. Others take their buckets as those of servers that are down.
	Disabled func(number uint16) bool
	// Owns is what agents reported; nil: nothing is known.
	Owns Owns
	// Owners: see Options. Where it is given, whoever owns connections of a
	// bucket and has no place in its chain gets one: other daemons may have
	// had deputies that this one, which is new, knows nothing of. Every row is
	// looked at then.
	Owners func(bucket int) []uint16
	// EndAfter is when everybody of this daemon's kind went by the newest
	// table, in seconds since 1970: a report from before, of a server that
	// owns nothing, ends no chain, since somebody may have given it new
	// connections after that. It still tells whom a full chain drops. 0: no
	// bound.
	EndAfter uint32
	// Fewest: deputies are chosen among those that have fewer buckets than
	// their share, so that no server gets more. Else they are drawn by weight,
	// whatever they have. Either way table, servers and health alone
	// determine them, the same at every daemon.
	Fewest bool
}

// Row is what packets of a bucket go by.
type Row struct {
	Current  uint16
	Previous [Chain]uint16 // see Table.Previous; servers that are down stand last
	// Since is the time that its packets carry, in seconds since 1970: of the
	// last move, or when a previous server was last known to own one of its
	// connections.
	Since uint32
}

// Effective is what one daemon's packets go by: the table with its health and
// the agents' reports laid over. Its slices have one element a bucket, are
// read only, and change with Update.
type Effective struct {
	// Generation is the table's.
	Generation uint32
	Current    []uint16
	Since      []uint32
	Previous   [][Chain]uint16
	// Forgotten counts previous servers that found no place in a chain though
	// connections may be there.
	Forgotten uint64

	history
}

// history is what the last Update went by.
type history struct {
	table   *Table // nil: none yet
	servers []Server
	known   set      // among servers
	down    set      // unreachable
	downAt  []uint32 // by number: since when, as seen here; 0: it is not
	out     set      // down or disabled
	// heard is what Learn took since the last Update.
	heard []BucketRow
	// open are the buckets that another Update may change without another
	// table and another health, ascending. All with a chain are among them.
	open []chained
}

// set is a set of servers, by number as far as it goes.
type set []bool

func (s set) has(number uint16) bool { return int(number) < len(s) && s[number] }

// chained is a bucket, and what its row does not say: when its last move was,
// which the time that its packets carry may have left behind, and when each of
// its previous servers had it last.
type chained struct {
	bucket, moved uint32
	left          [Chain]uint32
}

// grace is how many seconds a daemon that starts without rows of its own keeps
// previous servers of which the table says nothing newer, so that their agents
// can report what they own.
const grace = 10

// Restore is an Effective of rows that were in force before, so that their
// deputies and chains are kept (a daemon that starts anew). The slices become
// the Effective's own; all must be of one length.
func Restore(generation uint32, current []uint16, since []uint32, previous [][Chain]uint16) *Effective {
	return &Effective{Generation: generation, Current: current, Since: since, Previous: previous}
}

// Clone is a copy that Update brings on as it would e: it has the same
// history.
func (e *Effective) Clone() *Effective {
	c := *e
	c.Current, c.Since, c.Previous = slices.Clone(e.Current), slices.Clone(e.Since), slices.Clone(e.Previous)
	// What else there is is replaced as a whole, not changed, but for these.
	c.open, c.heard = slices.Clone(e.open), slices.Clone(e.heard)
	return &c
}

// At is bucket b's row.
func (e *Effective) At(b int) Row { return Row{e.Current[b], e.Previous[b], e.Since[b]} }

// Asked are the servers whose agents' reports may change a row, ascending:
// those in chains, and those that the table's chains name and that may come
// back since they own something after all.
func (e *Effective) Asked() (servers []uint16) {
	asked := make([]bool, MaxServers+1)
	for _, c := range e.open {
		for _, chain := range [2]*[Chain]uint16{&e.Previous[c.bucket], &e.table.Previous[c.bucket]} {
			for _, s := range chain {
				asked[s] = true
			}
		}
	}
	for s, yes := range asked[:None] {
		if yes {
			servers = append(servers, uint16(s))
		}
	}
	return servers
}

// Renewed is how many buckets have a chain whose end was put off since a
// previous server owned a connection then.
func (e *Effective) Renewed() (n int) {
	for _, c := range e.open {
		if e.Previous[c.bucket][0] != None && e.Since[c.bucket] > c.moved {
			n++
		}
	}
	return n
}

// Len is how many buckets e has.
func (e *Effective) Len() int { return len(e.Current) }

// Update brings e to table t as seen by v. e may be new: Update(new(Effective)).
// due is when (seconds since 1970) time alone changes something, so that
// Update must be called again at that time; 0: never. changed: some row, or
// the generation, did.
//
// Where the table's server is up, it has the bucket; else a deputy has it, if
// there is any, and the server that is down stays in the chain. Whoever has a
// bucket here and loses it, by the table or by health, becomes its previous
// server as of now: this daemon gave it connections until now. What the table
// says of previous servers is added, since other daemons did, too.
func (e *Effective) Update(t *Table, v View) (due uint32, changed bool) {
	u := update{Effective: e, t: t, v: v, o: Options{Now: v.Now, ChainTime: v.ChainTime, Owns: v.Owns, endAfter: v.EndAfter}, due: math.MaxUint64}
	if len(e.Current) != t.Len() {
		u.fresh, changed = true, true
		n := t.Len()
		e.Current, e.Since, e.Previous = slices.Clone(t.Current), make([]uint32, n), make([][Chain]uint16, n)
		for b := range e.Previous {
			e.Previous[b] = NoPrevious
		}
		e.table = nil
	}
	changed = changed || e.Generation != t.Generation
	u.look()
	u.skipped = u.fresh || t.Generation-e.Generation > 1
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
	open := u.open
	for b := range t.Current {
		if u.settled(b) && (len(u.heard) == 0 || u.heard[0].Bucket != uint32(b)) {
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
	return u.dueAt(), changed
}

// plain is bucket b if its row says all.
func (u *update) plain(b int) chained {
	since := u.Since[b]
	return chained{uint32(b), since, [Chain]uint32{since, since, since}}
}

// settled: bucket b is where the table has it and nobody had it before, so
// that there is nothing to do.
func (u *update) settled(b int) bool {
	want := u.t.Current[b]
	if u.v.Owners != nil {
		for _, s := range u.v.Owners(b) {
			if s != u.Current[b] {
				return false
			}
		}
	}
	return want == u.Current[b] && u.Previous[b][0] == None && u.t.Previous[b][0] == None && !u.out.has(want)
}

// update is one Update's state.
type update struct {
	*Effective
	t       *Table
	v       View
	o       Options
	fresh   bool        // e has no rows from before
	skipped bool        // tables between the last one and this were never seen
	all     bool        // table, servers or health are others than before
	open    []chained   // Effective.open before
	heard   []BucketRow // Effective.heard that is still to come, by bucket
	due     uint64

	// Of deputies, once one is needed: who takes buckets, their weights summed
	// up, and with Fewest how many each may still get.
	takers  []uint16
	weights []int
	room    *[MaxServers + 1]int
}

// look takes v's servers and health over.
func (u *update) look() {
	e := u.Effective
	all := e.table != u.t || u.v.Owners != nil
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
	if all = all || !slices.Equal(e.down, down) || !slices.Equal(e.out, out); all {
		e.down, e.out = down, out
	}
	if all = all || !slices.Equal(e.servers, u.v.Servers); all {
		e.servers = slices.Clone(u.v.Servers)
		e.known = make(set, top)
		for _, s := range e.servers {
			e.known[s.Number] = true
		}
	}
	u.all = all
}

// row brings c's bucket to what it must be.
func (u *update) row(c chained) (changed bool) {
	e, t, b := u.Effective, u.t, int(c.bucket)
	was := e.At(b)
	if !u.all && u.stays(&c, &was) {
		e.open = append(e.open, c)
		return false
	}
	now := Row{Current: t.Current[b], Previous: NoPrevious}
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
	case u.fresh && t.Previous[b][0] != None && u.v.Now+kept > c.moved+u.v.ChainTime:
		c.moved = u.v.Now + kept - u.v.ChainTime
	}
	now.Since = max(was.Since, c.moved)
	if moved && u.firstMove(b, &was, &now) {
		e.open = append(e.open, chained{c.bucket, c.moved, [Chain]uint32{c.moved}})
		e.Current[b], e.Previous[b], e.Since[b] = now.Current, now.Previous, now.Since
		return true
	}
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
				left, settled = u.leftByTable(s, t.left(b, s), left, &was, &all), max(settled, c.moved)
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

	if now.Previous[0] != None || now.Current != t.Current[b] || t.Previous[b][0] != None && open {
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
func (u *update) leftByTable(s uint16, told, left uint32, was *Row, all *candidates) uint32 {
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

// firstMove fills in now.Previous of a settled bucket that the table gives to
// another server, which nobody else had: what nearly all moves are. It tells
// whether it is one.
func (u *update) firstMove(b int, was, now *Row) bool {
	alone := [Chain]uint16{was.Current, None, None}
	if u.t.Previous[b] != alone || was.Previous[0] != None || now.Current != u.t.Current[b] ||
		!u.known.has(was.Current) || u.v.Datagrams && u.down.has(was.Current) || u.v.Owners != nil || len(u.heard) > 0 {
		return false
	}
	now.Previous = alone
	u.due = min(u.due, uint64(u.v.Now)+uint64(u.v.ChainTime))
	return true
}

// stays: c's bucket, whose row is was, has one previous server, the table's,
// which counts as before: what nearly all chains are at nearly all times.
func (u *update) stays(c *chained, was *Row) bool {
	s := was.Previous[0]
	alone := [Chain]uint16{s, None, None}
	if s == None || was.Previous != alone || u.t.Previous[c.bucket] != alone || was.Current != u.t.Current[c.bucket] || len(u.heard) > 0 || u.v.Datagrams && u.down.has(s) {
		return false
	}
	until, _ := u.o.until(s, int(c.bucket), c.moved, c.left[0], max(c.left[0], c.moved))
	if until <= uint64(u.v.Now) || until != uint64(c.moved)+uint64(u.v.ChainTime) {
		return false // it ends, or is renewed
	}
	u.due = min(u.due, until)
	return true
}

// candidates are servers that may stand in a chain, once each, and when each
// had the bucket last: here, and at all daemons.
type candidates struct {
	all           [6*Chain + 2]uint16
	left, settled [6*Chain + 2]uint32
	n             int
}

func (c *candidates) add(s uint16, left, settled uint32) {
	if s != None && c.n < len(c.all) && !slices.Contains(c.all[:c.n], s) {
		c.all[c.n], c.left[c.n], c.settled[c.n] = s, left, settled
		c.n++
	}
}

// sort puts those first that had the bucket last.
func (c *candidates) sort() {
	for i := 1; i < c.n; i++ {
		for j := i; j > 0 && c.left[j] > c.left[j-1]; j-- {
			c.all[j], c.all[j-1] = c.all[j-1], c.all[j]
			c.left[j], c.left[j-1] = c.left[j-1], c.left[j]
			c.settled[j], c.settled[j-1] = c.settled[j-1], c.settled[j]
		}
	}
}

// chain fills in r.Previous and c.left from the candidates, and what time does
// to them.
func (u *update) chain(c *chained, r *Row, from *candidates, moved bool) {
	e := u.Effective
	var kept candidates
	var worths [len(kept.all)]worth
	owned := uint64(0)
	// Of those who are down, whoever has spoken since stands first: one whose
	// checks fail passes on what it does not own, and one that is dead
	// swallows it.
	standing := func(s uint16) int {
		switch {
		case !e.down.has(s):
			return 0
		case u.spoke(s, int(c.bucket)):
			return 1
		case u.v.Datagrams:
			return -1
		}
		return 2
	}
	for place := range 3 {
		for i, s := range from.all[:from.n] {
			if s == r.Current || !e.known.has(s) || standing(s) != place {
				continue
			}
			until, w := u.o.until(s, int(c.bucket), c.moved, from.left[i], from.settled[i])
			if until <= uint64(u.v.Now) {
				continue
			}
			u.due = min(u.due, until)
			if at := until - uint64(u.v.ChainTime); at > uint64(c.moved) {
				owned = max(owned, at)
			}
			worths[kept.n] = w
			kept.add(s, 0, 0)
		}
	}
	n := fit(kept.all[:kept.n], worths[:kept.n])
	if moved {
		e.Forgotten += uint64(kept.n - n)
	}
	for i, s := range kept.all[:n] {
		r.Previous[i] = s
		// fit may have moved it up.
		c.left[i] = from.left[slices.Index(from.all[:from.n], s)]
	}
	// Who owns something is passed packets for as long as it does: they carry
	// a time that is renewed when half of the chain time has gone by, not
	// with each report.
	if half := uint64(r.Since) + uint64(u.v.ChainTime+1)/2; owned > uint64(r.Since) && uint64(u.v.Now) >= half {
		r.Since = uint32(owned)
	} else if owned > uint64(r.Since) {
		u.due = min(u.due, half)
	}
}

func (u *update) dueAt() uint32 {
	if u.due == math.MaxUint64 {
		return 0
	}
	return uint32(min(u.due, math.MaxUint32))
}
