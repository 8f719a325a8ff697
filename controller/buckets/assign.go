package buckets

import (
	"cmp"
	"errors"
	"slices"
)

// live: connections of bucket b may be at its previous server p, whose bucket
// moved last at since.
func (o *Options) live(p uint16, b int, since uint32) bool {
	until, _ := o.Until(p, b, since, since, since)
	return until > uint64(o.Now)
}

// Worth is how much speaks for keeping a previous server in a chain.
type Worth uint8

const (
	ownsNone Worth = iota // it said so, though perhaps too early to believe it
	unknown
	owner // it said so
)

// Until is when the previous server p of bucket b counts no more, as far as
// is known: the chain time after the bucket moved last, at since, or after p
// was last known to own a connection; 0 if p said that it owns none, long
// enough after settled, when the last daemon gave it the last new one. Until
// then its word since left, when it had the bucket last as far as is known
// here, says something of its worth. The time has 64 bits, so that sums do not
// go round.
func (o *Options) Until(p uint16, b int, since, left, settled uint32) (uint64, Worth) {
	from, w := uint64(since), unknown
	if o.Owns != nil {
		switch owned, at := o.Owns(p, b); {
		case at == 0:
		case owned:
			from, w = max(from, uint64(at)), owner
		case uint64(at) >= uint64(settled)+ReportAfter && at >= o.EndAfter:
			return 0, ownsNone
		case at >= left:
			w = ownsNone
		}
	}
	return from + uint64(o.ChainTime), w
}

// Fit drops what is too much of members, the newest first: who owns least, and
// of those the last. It returns how many are left.
func Fit(members []uint16, worths []Worth) int {
	for w := ownsNone; w <= owner; w++ {
		for i := len(members) - 1; i >= 0 && len(members) > Chain; i-- {
			if worths[i] == w {
				members = append(members[:i], members[i+1:]...)
				worths = append(worths[:i], worths[i+1:]...)
			}
		}
	}
	return len(members)
}

// full: if bucket b moves, somebody must be forgotten who counts.
func (o *Options) full(t *Table, b int) bool {
	p, cur := &t.Previous[b], t.Current[b]
	if cur == None || p[Chain-1] == None && o.Owners == nil {
		return false
	}
	n := 0
	for _, s := range p {
		if s != None && o.live(s, b, t.Since[b]) {
			n++
		}
	}
	if o.Owners != nil {
		for _, s := range o.Owners(b) {
			if s != cur && !slices.Contains(p[:], s) {
				n++
			}
		}
	}
	return n >= Chain
}

// Assign is what to move so that every server has its share of the buckets,
// by weight and to within one bucket, and those that drain, or are not among
// servers, have none. There is no way with fewer moves. Of the buckets that a
// server may keep or give away, it gives away those that moved longest ago,
// and those whose move would push a previous server that still counts out of
// the chain only if no other will do. Moves are in ascending order of buckets,
// a bucket at most once. Without a server that takes any, nothing moves.
func (t *Table) Assign(servers []Server, o Options) []Move {
	loads := t.loads()
	targets, ok := targets(t.Len(), servers, loads)
	if !ok {
		return nil
	}
	// Buckets of servers that give some, one server after the other.
	var starts [MaxServers + 2]int
	sum := 0
	for n := range loads {
		starts[n] = sum
		if loads[n] > targets[n] {
			sum += loads[n]
		}
	}
	starts[MaxServers+1] = sum
	if sum == 0 {
		return nil
	}
	keys := make([]uint64, sum)
	fill := starts
	for b, s := range t.Current {
		if loads[s] <= targets[s] {
			continue
		}
		key := uint64(t.Since[b])<<bucketBits | uint64(b)
		if o.full(t, b) {
			key |= fullBit
		}
		keys[fill[s]] = key
		fill[s]++
	}
	d := dealer{to: make([]uint16, t.Len()), left: new([MaxServers + 1]int)}
	for _, s := range servers {
		if left := targets[s.Number] - loads[s.Number]; left > 0 {
			d.left[s.Number] = left
			d.takers = append(d.takers, s.Number)
		}
	}
	plain := NewBitmap(t.Len())
	var full []uint32
	gone := 0
	for n := range loads {
		gives := loads[n] - targets[n]
		if gives <= 0 {
			continue
		}
		gone += gives
		own := keys[starts[n] : starts[n]+loads[n]]
		if gives < len(own) {
			least(own, gives)
		}
		for _, k := range own[:gives] {
			if b := uint32(k & (1<<bucketBits - 1)); k&fullBit != 0 {
				full = append(full, b)
			} else {
				plain.Set(int(b))
			}
		}
	}
	d.home(t, full, o.Owners)
	// In the order of buckets, so that their servers stand in turn in what is handed out:
	// that is a tenth of what it is in any other order.
	plain.each(t.Len(), func(b int) { d.deal(uint32(b)) })
	moves := make([]Move, 0, gone)
	for b, to := range d.to {
		if to != 0 {
			moves = append(moves, Move{uint32(b), to - 1})
		}
	}
	return moves
}

const (
	bucketBits = 23 // Max
	fullBit    = 1 << (32 + bucketBits)
)

// loads is how many buckets each number has, None among them.
func (t *Table) loads() *[MaxServers + 1]int {
	loads := new([MaxServers + 1]int)
	for _, s := range t.Current {
		loads[s]++
	}
	return loads
}

// targets is how many buckets of n each number shall have: its share, rounded
// down, or up for as many as it takes. Up goes to those first that have more
// than their share rounded down, since each saves a move, then by the largest
// fraction. ok: some server takes any.
func targets(n int, servers []Server, loads *[MaxServers + 1]int) (targets *[MaxServers + 1]int, ok bool) {
	total := 0
	for _, s := range servers {
		total += s.Weight
	}
	targets = new([MaxServers + 1]int)
	if total == 0 {
		return targets, false
	}
	type fraction struct {
		number uint16
		saves  bool
		part   int
	}
	var fractions []fraction
	left := n
	for _, s := range servers {
		share := n * s.Weight / total
		targets[s.Number] = share
		left -= share
		if part := n * s.Weight % total; part > 0 {
			fractions = append(fractions, fraction{s.Number, loads[s.Number] > share, part})
		}
	}
	slices.SortFunc(fractions, func(a, b fraction) int {
		if a.saves != b.saves {
			if a.saves {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.part, a.part), cmp.Compare(a.number, b.number))
	})
	for _, f := range fractions[:left] {
		targets[f.number]++
	}
	return targets, true
}

// least brings the k least of keys, which differ, to its front.
func least(keys []uint64, k int) {
	for len(keys) > 16 {
		// The middle of three as a pivot: keys are often in order.
		a, b, c := keys[0], keys[len(keys)/2], keys[len(keys)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := 0, len(keys)-1
		for i <= j {
			for keys[i] < pivot {
				i++
			}
			for keys[j] > pivot {
				j--
			}
			if i <= j {
				keys[i], keys[j] = keys[j], keys[i]
				i++
				j--
			}
		}
		switch {
		case k <= j+1:
			keys = keys[:j+1]
		case k >= i:
			keys, k = keys[i:], k-i
		default:
			return
		}
	}
	slices.Sort(keys)
}

// dealer gives buckets to servers that lack some.
type dealer struct {
	to     []uint16 // by bucket: number plus 1, 0 none
	left   *[MaxServers + 1]int
	takers []uint16
	turn   int
}

// deal gives b to the next server in turn, so that what a server gets comes
// from many others. Each round begins with another, in case that those who give stand in
// turn, too.
func (d *dealer) deal(b uint32) {
	for {
		if d.turn >= len(d.takers) {
			d.turn = 0
			first := d.takers[0]
			copy(d.takers, d.takers[1:])
			d.takers[len(d.takers)-1] = first
		}
		s := d.takers[d.turn]
		if d.left[s] > 0 {
			d.left[s]--
			d.to[b] = s + 1
			d.turn++
			return
		}
		d.takers = slices.Delete(d.takers, d.turn, d.turn+1)
	}
}

// home gives buckets with a full chain back to servers in it, or to others that
// own connections there, for as many as possible, since then nobody falls off;
// the others to whoever lacks some.
func (d *dealer) home(t *Table, full []uint32, owners func(bucket int) []uint16) {
	holder := map[uint16][]uint32{} // what each server got here
	var place func(b uint32, seen map[uint16]bool) bool
	place = func(b uint32, seen map[uint16]bool) bool {
		places := t.Previous[b][:]
		if owners != nil {
			places = slices.Concat(places, owners(int(b)))
		}
		for _, s := range places {
			if seen[s] || d.left[s] == 0 && len(holder[s]) == 0 {
				continue
			}
			seen[s] = true
			if d.left[s] > 0 {
				d.left[s]--
				d.to[b] = s + 1
				holder[s] = append(holder[s], b)
				return true
			}
			for i, other := range holder[s] {
				if place(other, seen) {
					holder[s][i] = b
					d.to[b] = s + 1
					return true
				}
			}
		}
		return false
	}
	var rest []uint32
	for _, b := range full {
		if !place(b, map[uint16]bool{}) {
			rest = append(rest, b)
		}
	}
	for _, b := range rest {
		d.deal(b)
	}
}

// Apply is t after moves: one generation on, all at one time. A bucket's
// server becomes the first of its previous ones; those that count no more are
// dropped from all chains, and owners that a chain does not name come last.
// Where there are too many, those that own nothing go first. forgotten is how many fell off the end of a chain
// though connections may be there. A move to the server that has the bucket
// is none.
func (t *Table) Apply(moves []Move, o Options) (next *Table, forgotten int) {
	next = t.Clone()
	next.Generation++
	for b := range next.Previous {
		if next.Previous[b][0] != None {
			next.Previous[b] = o.keep(t, b)
		}
	}
	for _, m := range moves {
		b := int(m.Bucket)
		cur := next.Current[b]
		if cur == m.To {
			continue
		}
		// The server that has it now, though it may own nothing: until
		// everybody knows of the move it gets new connections.
		list, worths := make([]uint16, 0, 2*Chain), make([]Worth, 0, 2*Chain)
		add := func(s uint16, w Worth) {
			if s != None && s != m.To && !slices.Contains(list, s) {
				list, worths = append(list, s), append(worths, w)
			}
		}
		add(cur, owner)
		for _, s := range next.Previous[b] {
			if s != None {
				_, w := o.Until(s, b, t.Since[b], t.Left(b, s), t.Since[b])
				add(s, w)
			}
		}
		if o.Owners != nil {
			for _, s := range o.Owners(b) {
				add(s, owner)
			}
		}
		n := len(list)
		list = list[:Fit(list, worths)]
		forgotten += n - len(list)
		chain := NoPrevious
		copy(chain[:], list)
		next.Current[b], next.Since[b], next.Previous[b] = m.To, o.Now, chain
	}
	return next, forgotten
}

// Left is when bucket b's previous server s had it last: the newest until the
// last move; the others did not have it in the table before, and all daemons
// knew that one when the last was made.
func (t *Table) Left(b int, s uint16) uint32 {
	if since := t.Since[b]; s == t.Previous[b][0] || since < ReportAfter {
		return since
	}
	return t.Since[b] - ReportAfter
}

// keep is b's chain without those that count no more.
func (o *Options) keep(t *Table, b int) [Chain]uint16 {
	chain, n := NoPrevious, 0
	for _, s := range t.Previous[b] {
		if s != None && o.live(s, b, t.Since[b]) {
			chain[n] = s
			n++
		}
	}
	return chain
}

// Counts tells whether connections may be at server number for a bucket that
// another has now: a packet is passed on to it.
func (t *Table) Counts(number uint16, o Options) bool {
	for b := range t.Previous {
		for _, s := range t.Previous[b] {
			if s == number && o.live(s, b, t.Since[b]) {
				return true
			}
		}
	}
	return false
}

// Without is t, of the same generation, with no number in a chain that known
// does not know; t itself if there is none. Several may ask known at once.
func (t *Table) Without(known func(number uint16) bool) *Table {
	errUnknown := errors.New("some are unknown")
	if inParts(t.Len(), partOf, func(first, end int) error {
		for _, p := range t.Previous[first:end] {
			for _, s := range p {
				if s != None && !known(s) {
					return errUnknown
				}
			}
		}
		return nil
	}) == nil {
		return t
	}
	next := t
	for b := range t.Previous {
		if t.Previous[b][0] == None {
			continue
		}
		chain, n := NoPrevious, 0
		for _, s := range t.Previous[b] {
			if s != None && known(s) {
				chain[n] = s
				n++
			}
		}
		if chain == t.Previous[b] {
			continue
		}
		if next == t {
			next = t.Clone()
		}
		next.Previous[b] = chain
	}
	return next
}
