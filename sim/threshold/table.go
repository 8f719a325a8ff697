package threshold

import (
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
)

// Return is which entries of the table a server gets that returns. What those
// who leave had goes to all others in turn.
type Return string

const (
	// Home: those that it had at the start.
	Home Return = "home"
	// Random: its share of all, any.
	Random Return = "random"
	// Oldest: its share, those that moved longest ago: the product's rule
	// (controller/buckets).
	Oldest Return = "oldest"
)

// Returns are all.
func Returns() []Return { return []Return{Home, Oldest, Random} }

// table is a bucket table and its chains, changed in place: thousands of
// changes are too many for a copy each. A test holds it to controller/buckets.
type table struct {
	current  []uint16
	previous [][buckets.Chain]uint16
	home     []uint16
	homes    [][]int32 // by server: its buckets at the start
	has      [][]int32 // by server: its buckets now
	place    []int32   // of a bucket in its server's
	turn     int
	rule     Return
	random   *rand.Rand
	// Of rule oldest: the product's table.
	product *buckets.Table
}

func newTable(n, servers int, rule Return, random *rand.Rand) *table {
	first := buckets.New(n, weights(make([]bool, servers)))
	t := &table{
		current: slices.Clone(first.Current), previous: slices.Clone(first.Previous), home: first.Current,
		has: make([][]int32, servers), place: make([]int32, n), rule: rule, random: random,
	}
	if rule == Oldest {
		t.product = first
	}
	for b, s := range t.current {
		t.give(int32(b), s)
	}
	for _, has := range t.has {
		t.homes = append(t.homes, slices.Clone(has))
	}
	return t
}

// weights are the servers as controller/buckets sees them.
func weights(out []bool) []buckets.Server {
	list := make([]buckets.Server, len(out))
	for n, o := range out {
		list[n].Number = uint16(n)
		if !o {
			list[n].Weight = 1
		}
	}
	return list
}

func (t *table) give(b int32, s uint16) {
	t.current[b] = s
	t.place[b] = int32(len(t.has[s]))
	t.has[s] = append(t.has[s], b)
}

// move gives a bucket to another server, as buckets.Apply does.
func (t *table) move(b int32, to uint16) {
	from := t.current[b]
	list := t.has[from]
	last := list[len(list)-1]
	list[t.place[b]], t.place[last] = last, t.place[b]
	t.has[from] = list[:len(list)-1]
	t.give(b, to)

	chain, n := buckets.NoPrevious, 1
	chain[0] = from
	for _, s := range t.previous[b] {
		if s != to && s != buckets.None && n < buckets.Chain {
			chain[n] = s
			n++
		}
	}
	t.previous[b] = chain
}

// change moves buckets after servers left or returned, and returns which moved
// (a bucket may be in the list twice).
func (t *table) change(changed []uint16, out []bool, now sim.Time) []int32 {
	if t.rule == Oldest {
		return t.assign(out, now)
	}
	var moved []int32
	for _, s := range changed {
		if !out[s] {
			continue
		}
		for _, b := range slices.Clone(t.has[s]) {
			t.move(b, t.taker(b, out))
			moved = append(moved, b)
		}
	}
	for _, s := range changed {
		if out[s] {
			continue
		}
		for _, b := range t.due(s, out) {
			t.move(b, s)
			moved = append(moved, b)
		}
	}
	return moved
}

// taker is who gets a bucket of a server that leaves.
func (t *table) taker(b int32, out []bool) uint16 {
	if h := t.home[b]; t.rule == Home && !out[h] {
		return h
	}
	for {
		if t.turn++; t.turn >= len(out) {
			t.turn = 0
		}
		if !out[t.turn] {
			return uint16(t.turn)
		}
	}
}

// due are the buckets that server s gets, which has returned.
func (t *table) due(s uint16, out []bool) (due []int32) {
	if t.rule == Home {
		return slices.DeleteFunc(slices.Clone(t.homes[s]), func(b int32) bool { return t.current[b] == s })
	}
	active := 0
	for _, o := range out {
		if !o {
			active++
		}
	}
	taken := map[int32]bool{}
	for len(t.has[s])+len(due) < len(t.current)/active {
		if b := int32(t.random.IntN(len(t.current))); t.current[b] != s && !taken[b] {
			taken[b] = true
			due = append(due, b)
		}
	}
	return due
}

// assign moves what the product moves. Its clock has whole seconds; here they
// are hundredths, and chains last for the whole run.
func (t *table) assign(out []bool, now sim.Time) (moved []int32) {
	o := buckets.Options{Now: 1 + uint32(now/(sim.Second/100)), ChainTime: 1 << 30}
	moves := t.product.Assign(weights(out), o)
	t.product, _ = t.product.Apply(moves, o)
	for _, m := range moves {
		t.move(int32(m.Bucket), m.To)
		moved = append(moved, int32(m.Bucket))
	}
	return moved
}
