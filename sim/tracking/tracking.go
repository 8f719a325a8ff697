package tracking

// rank is what the hash says of an entry: the lower, the sooner it may go.
type rank int8

const (
	// rankPlaced: the hash places the connection where it is, and would if
	// the whole horizon came: the entry says nothing new.
	rankPlaced rank = iota
	// rankStandby: a server on standby would take it, which nobody waits for.
	rankStandby
	// rankReturning: a server that failed and is expected back would take it.
	rankReturning
	// rankMoved: the hash places it elsewhere already. Without its entry the
	// connection breaks with its next packet.
	rankMoved
	ranks
)

// Evictions of the tracking table.
const (
	// EvictLRU: the entry used longest ago goes, whatever it is.
	EvictLRU = "lru"
	// EvictRank: the entry of the lowest rank goes, of these the one used
	// longest ago, and only for one of a higher rank.
	EvictRank = "rank"
	// EvictState is the program's own flow table: what has expired, fades or
	// is new goes, within the set; a confirmed connection never does. Under
	// full-ct it is the one of the set that was used longest ago.
	EvictState = "state"
)

// tracking is the bounded table of tracked connections: for each rank a list
// of entries in the order of their last use. With EvictLRU all have rank 0.
type tracking struct {
	entries  []tracked
	free     []int32
	lists    [ranks]list
	used     int
	capacity int
	order    []int32 // scratch of lane.rerank
}

type tracked struct {
	connection int32 // handle
	rank       rank
	next, prev int32 // in the list of its rank; -1: none
}

// list runs from the entry used longest ago to the last one.
type list struct{ first, last int32 }

const none = -1

func newTracking(capacity int) *tracking {
	t := &tracking{capacity: capacity}
	for i := range t.lists {
		t.lists[i] = list{none, none}
	}
	return t
}

func (t *tracking) unlink(i int32) {
	e := &t.entries[i]
	l := &t.lists[e.rank]
	if e.prev == none {
		l.first = e.next
	} else {
		t.entries[e.prev].next = e.next
	}
	if e.next == none {
		l.last = e.prev
	} else {
		t.entries[e.next].prev = e.prev
	}
}

// link puts an entry at its rank's end: used just now.
func (t *tracking) link(i int32) {
	e := &t.entries[i]
	l := &t.lists[e.rank]
	e.prev, e.next = l.last, none
	if l.last == none {
		l.first = i
	} else {
		t.entries[l.last].next = i
	}
	l.last = i
}

// touch says that an entry is used.
func (t *tracking) touch(i int32) {
	if t.entries[i].next != none {
		t.unlink(i)
		t.link(i)
	}
}

// setRank gives an entry another rank, where it counts as used just now.
func (t *tracking) setRank(i int32, r rank) {
	if t.entries[i].rank != r {
		t.unlink(i)
		t.entries[i].rank = r
		t.link(i)
	}
}

// victim is the entry that would give way to one of rank r; none: nobody.
// strict: only lower ranks give way.
func (t *tracking) victim(r rank, strict bool) int32 {
	for lower := rank(0); lower < r || lower == r && !strict; lower++ {
		if i := t.lists[lower].first; i != none {
			return i
		}
	}
	return none
}

// full tells whether an insertion needs a victim.
func (t *tracking) full() bool { return t.used >= t.capacity }

// insert makes an entry; there must be room.
func (t *tracking) insert(connection int32, r rank) int32 {
	var i int32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = int32(len(t.entries))
		t.entries = append(t.entries, tracked{})
	}
	t.entries[i] = tracked{connection: connection, rank: r}
	t.link(i)
	t.used++
	return i
}

func (t *tracking) remove(i int32) {
	t.unlink(i)
	t.free = append(t.free, i)
	t.used--
}
