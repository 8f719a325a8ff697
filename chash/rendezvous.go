package chash

import (
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

var _ = register(KindHRW, implementation{
	new:     func(o Options, servers []Server) (Hash, error) { return newRendezvous(servers), nil },
	compile: compileHRW,
})

// rendezvous is HRW, highest random weight (Thaler and Ravishankar, A
// name-based mapping scheme for rendezvous, 1998; weighted by Schindelhauer
// and Schomaker's logarithmic method; with a horizon: JET, §4): every server
// races for every key, and the least -log(u)/weight wins, u in (0,1) being a
// hash of server and key. A key is to be tracked iff the best of the horizon
// beats the best of the working set.
//
//	cost        a look-up hashes every server: about 0.8 ns each; a change
//	            moves one entry of a list. The table is rows × servers races
//	            on all processors, 60 ms for 1,000 servers and 65,536 rows on
//	            two: table-hrw has the same balance for a twentieth
//	memory      16 bytes a server
//	balance     the best there is: that of the keys themselves
//	disruption  add: the newcomer's share moves to it; remove: only the keys
//	            of the removed move. Weights and order likewise
type rendezvous struct {
	verbs
	sets [inHorizon + 1]classes // by place
}

// classes are the racers of one set, by ascending weight. Among equals the
// greatest hash wins without any logarithm.
type classes []class

type class struct {
	weight uint64
	seeds  []seed
	who    []Node // by seed
}

// A seed is what a server's name puts into its hashes of keys.
type seed struct{ add, mul uint64 }

func seedOf(nameHash uint64) seed { return seed{nameHash, mix(nameHash) | 1} }

// draw is the complement of the server's hash for a key, so the less the
// better: the halves of a 128-bit product folded. (Either half alone is nearly
// linear in the key: two servers whose multipliers are in a simple ratio
// would then win and lose together.)
func (s seed) draw(key uint64) uint64 {
	hi, lo := bits.Mul64(key^s.add, s.mul)
	return hi ^ lo
}

// least returns the first of the least draws below a limit, and its place: -1
// if all are at the limit or above.
func least(seeds []seed, key, limit uint64) (at int, draw uint64) {
	at = -1
	i := 0
	// Four at a time: one branch for all, and it is seldom taken.
	for ; i+4 <= len(seeds); i += 4 {
		s := seeds[i:][:4:4]
		if d := min(s[0].draw(key), s[1].draw(key), s[2].draw(key), s[3].draw(key)); d < limit {
			limit, at = d, i
		}
	}
	for ; i < len(seeds); i++ {
		if d := seeds[i].draw(key); d < limit {
			limit, at = d, i
		}
	}
	if at >= 0 {
		for seeds[at].draw(key) != limit {
			at++
		}
	}
	return at, limit
}

// lead is who is ahead in a race.
type lead struct {
	who    Node // NoNode: nobody yet
	draw   uint64
	weight uint64
	// log is -log2 of its hash in units of 2^-48. It takes as long as 200
	// draws, and is made only to compare different weights; 0: not yet.
	log uint64
}

var nobodyLeads = lead{who: NoNode}

func (l *lead) logarithm() uint64 {
	if l.log == 0 {
		l.log = negLog2(^l.draw)
	}
	return l.log
}

// limit is above all draws with which a racer of some weight can win.
func (l *lead) limit(weight uint64) uint64 {
	switch {
	case l.who == NoNode || l.draw == math.MaxUint64:
		return math.MaxUint64
	case l.weight == weight:
		return l.draw + 1
	}
	// Since -ln(1-x) >= x, a draw d of weight w cannot win if d / 2^64 >
	// w · bound, where bound = -ln(u) / weight of the leader, -ln(u) = log ·
	// ln 2 / 2^48. In units of 2^-32: log · ln 2 >> 16. The product is taken
	// 2^16 finer (ln 2 = 0.B1721 / 2^20), then rounded up.
	bound := min((l.logarithm()>>16+1)*0xB1722>>20/l.weight+1, 1<<33)
	if w := weight*bound + 1; w < 1<<32 {
		return w << 32
	}
	return math.MaxUint64
}

// beats tells whether l is ahead of other: by log / weight, which for equal
// weights goes by the draw, then by name.
func (l *lead) beats(other *lead, before func(a, b Node) bool) bool {
	if l.weight == other.weight {
		return l.draw < other.draw || l.draw == other.draw && before(l.who, other.who)
	}
	h, lo := bits.Mul64(l.logarithm(), other.weight) // without dividing
	oh, ol := bits.Mul64(other.logarithm(), l.weight)
	if h != oh || lo != ol {
		return h < oh || h == oh && lo < ol
	}
	return before(l.who, other.who)
}

// race lets a set's racers have a try at the lead.
func (cs classes) race(key uint64, l lead, before func(a, b Node) bool) lead {
	for i := range cs {
		c := &cs[i]
		best, draw := least(c.seeds, key, l.limit(c.weight))
		if best < 0 {
			if l.who != NoNode {
				continue
			}
			best = 0 // all drew the worst there is
		}
		if n := (lead{who: c.who[best], draw: draw, weight: c.weight}); l.who == NoNode || n.beats(&l, before) {
			l = n
		}
	}
	return l
}

// insert adds a racer; racers of a class stand in the order in which ties
// are decided.
func (cs *classes) insert(weight int, s seed, who Node, before func(a, b Node) bool) {
	at := cs.find(weight)
	if at == len(*cs) || (*cs)[at].weight != uint64(weight) {
		*cs = slices.Insert(*cs, at, class{weight: uint64(weight)})
	}
	c := &(*cs)[at]
	j := len(c.who)
	for j > 0 && before(who, c.who[j-1]) {
		j--
	}
	c.seeds, c.who = slices.Insert(c.seeds, j, s), slices.Insert(c.who, j, who)
}

func (cs *classes) remove(weight int, who Node) {
	at := cs.find(weight)
	c := &(*cs)[at]
	j := slices.Index(c.who, who)
	c.seeds, c.who = slices.Delete(c.seeds, j, j+1), slices.Delete(c.who, j, j+1)
	if len(c.who) == 0 {
		*cs = slices.Delete(*cs, at, at+1)
	}
}

func (cs classes) find(weight int) int {
	at, _ := slices.BinarySearchFunc(cs, uint64(weight), func(c class, w uint64) int { return int(c.weight) - int(w) })
	return at
}

func newRendezvous(servers []Server) *rendezvous {
	h := &rendezvous{verbs: newVerbs(KindHRW, servers)}
	h.keeper = h
	for i, s := range servers {
		h.sets[inWorking].insert(s.Weight, seedOf(h.hashes[i]), Node(i), h.before)
	}
	return h
}

func (h *rendezvous) apply(c change) error {
	if c.from != nowhere {
		h.sets[c.from].remove(c.oldWeight, c.node)
	}
	if c.to != nowhere {
		h.sets[c.to].insert(c.weight, seedOf(h.hashes[c.node]), c.node, h.before)
	}
	return nil
}

// Lookup implements Hash.
func (h *rendezvous) Lookup(key uint64) Node {
	return h.sets[inWorking].race(key, nobodyLeads, h.before).who
}

// Track implements Hash.
func (h *rendezvous) Track(key uint64) (Node, bool) {
	l := h.sets[inWorking].race(key, nobodyLeads, h.before)
	return l.who, h.sets[inHorizon].race(key, l, h.before).who != l.who
}

// compileHRW is the table in which a row is what rendezvous finds for the
// row's key. Members that weigh the same in all sets race once a row.
func compileHRW(s Spec, members []Member) (*Table, error) {
	hashes := make([]uint64, len(members))
	for i, m := range members {
		hashes[i] = nameHash(m.Name)
	}
	earlier := func(a, b Node) bool { return before(hashes[a], members[a].Name, hashes[b], members[b].Name) }
	var steady classes
	var rest [3]classes
	for i, m := range members {
		put := func(cs *classes, weight int) {
			if weight > 0 {
				cs.insert(weight, seedOf(hashes[i]), Node(i), earlier)
			}
		}
		w := [3]int{m.New, m.Held, max(m.New, m.Held, m.Horizon)}
		if w[0] == w[1] && w[1] == w[2] {
			put(&steady, w[0])
			continue
		}
		for set := range rest {
			put(&rest[set], w[set])
		}
	}
	var owners [3][]int32
	for set := range owners {
		owners[set] = make([]int32, s.Rows)
	}
	workers := min(runtime.GOMAXPROCS(0), 1+s.Rows*len(members)/(1<<16))
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for r := s.Rows * w / workers; r < s.Rows*(w+1)/workers; r++ {
				key := rowKey(r)
				ahead := steady.race(key, nobodyLeads, earlier)
				for set := range rest {
					owners[set][r] = int32(rest[set].race(key, ahead, earlier).who)
				}
			}
		})
	}
	wait.Wait()
	return joinSets(members, owners[0], owners[1], owners[2]), nil
}
