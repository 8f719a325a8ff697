package chash

import "slices"

var _ = register(KindBucket, implementation{
	new:     func(o Options, servers []Server) (Hash, error) { return newBucket(o, servers) },
	compile: compileBucket,
})

// bucket is the table of Beamer (Olteanu, Agache, Voinescu, Raiciu: Stateless
// Datacenter Load-balancing with Beamer, NSDI 2018, §4) and Faild (Araújo,
// Saino, Buytenhek, Landa: Balancing on the Edge, NSDI 2018, §3): as many
// buckets as rows, each given to a server. A change gives every server its
// share of them again, rounded up or down, and moves as few as can be: those
// who have too many give the ones they have had longest.
//
//	cost        a look-up reads one row; a change looks at every server, and
//	            makes the table with the horizon added, rows and all: about
//	            0.2 ms for 65,536. Compile folds over the numbers in use:
//	            numbers²/2 steps of 2 ns and rows × ln(numbers) moves: 4 ms for
//	            1,000 servers, 125 ms for 10,000
//	memory      2 bytes a row to look up, 8 a row and 16 a server to change
//	balance     the best of all: every share is right but for rounding
//	disruption  the least number of buckets moves, only from those that have
//	            too many to those that have too few. But which bucket goes
//	            depends on all changes before, so a Hash's table is not a
//	            function of its servers
//
// Track compares with the whole horizon added, exactly. But that does not make
// JET safe with it: a part of the horizon takes other buckets than the whole.
// Beamer has its servers pass on what reaches them too late.
type bucket struct {
	verbs
	flat
	held *holdings // by Node
}

func newBucket(o Options, servers []Server) (*bucket, error) {
	rows, err := flatRows(o.Rows, MaxRows)
	if err != nil {
		return nil, err
	}
	if err := checkFlat(KindBucket, len(servers), rows); err != nil {
		return nil, err
	}
	b := &bucket{verbs: newVerbs(KindBucket, servers), held: newHoldings(rows)}
	b.keeper = b
	// One after the other, so that it does not matter whether servers were
	// there from the start or added later in the order of names.
	weights := make([]int, 0, len(servers))
	for _, s := range servers {
		weights = append(weights, s.Weight)
		b.held.settle(weights)
	}
	b.flat = newFlat(b.held.owner, b.held.owner)
	return b, nil
}

func (b *bucket) apply(c change) error {
	if c.to != nowhere {
		if err := checkFlat(KindBucket, len(b.byName), len(b.held.owner)); err != nil {
			return err
		}
	}
	working, all := make([]int, len(b.servers)), make([]int, len(b.servers))
	for n, s := range b.servers {
		if s.place == nowhere || Node(n) == c.node && c.to == nowhere {
			continue
		}
		all[n] = s.weight
		if s.place == inWorking {
			working[n] = s.weight
		}
	}
	b.held.settle(working)
	with := b.held
	if !slices.Equal(working, all) {
		with = with.clone()
		with.settle(all)
	}
	b.flat = newFlat(b.held.owner, with.owner)
	return nil
}

// holdings are who holds which bucket. Servers are numbered from 0; nobody is
// -1. Each has a list of its buckets, those it has had longest first.
type holdings struct {
	owner  []int32 // by bucket
	later  []int32 // by bucket: the next of the same server, -1 if it is the last
	first  []int32 // by server + 1 (0: nobody); meaningless if it has none
	last   []int32
	count  []int32
	target []int32 // of settle
}

// newHoldings is a table whose buckets nobody holds.
func newHoldings(buckets int) *holdings {
	h := &holdings{owner: make([]int32, buckets), later: make([]int32, buckets)}
	h.grow(0)
	for b := range buckets {
		h.give(int32(b), -1)
	}
	return h
}

func (h *holdings) clone() *holdings {
	return &holdings{slices.Clone(h.owner), slices.Clone(h.later), slices.Clone(h.first),
		slices.Clone(h.last), slices.Clone(h.count), slices.Clone(h.target)}
}

func (h *holdings) grow(servers int) {
	for len(h.count) < servers+1 {
		h.first, h.last = append(h.first, -1), append(h.last, -1)
		h.count, h.target = append(h.count, 0), append(h.target, 0)
	}
}

// take takes the bucket that a server has had longest.
func (h *holdings) take(server int32) int32 {
	b := h.first[server+1]
	h.first[server+1] = h.later[b]
	h.count[server+1]--
	return b
}

// give gives a server a bucket, as its latest.
func (h *holdings) give(b, server int32) {
	if i := server + 1; h.count[i] == 0 {
		h.first[i] = b
	} else {
		h.later[h.last[i]] = b
	}
	h.last[server+1] = b
	h.later[b], h.owner[b] = -1, server
	h.count[server+1]++
}

// settle gives each server buckets in proportion to its weight (0: none),
// rounded down or up, with as few moves as that takes. Where rounding leaves
// a choice, those who have one more keep it, then lower numbers are better
// off. Servers beyond the end of weights get none; nobody holds all buckets
// if there is no weight.
func (h *holdings) settle(weights []int) {
	h.grow(len(weights))
	total := 0
	for _, w := range weights {
		total += w
	}
	clear(h.target)
	spare := int32(len(h.owner)) // what rounding down leaves
	if total == 0 {
		h.target[0], spare = spare, 0
	}
	// Neighbours often weigh the same: a division each would be most of a
	// fold's cost.
	weight, down, odd := 0, int32(0), false
	share := func(w int) {
		if w != weight {
			weight, down, odd = w, int32(len(h.owner)*w/total), len(h.owner)*w%total != 0
		}
	}
	for i, w := range weights {
		share(w)
		h.target[i+1] = down
		spare -= down
	}
	for _, keep := range []bool{true, false} {
		for i := 0; i < len(weights) && spare > 0; i++ {
			share(weights[i])
			if odd && h.count[i+1] > down == keep {
				h.target[i+1]++
				spare--
			}
		}
	}
	taker := 0
	for giver := range h.count {
		for h.count[giver] > h.target[giver] {
			for h.count[taker] >= h.target[taker] {
				taker++
			}
			h.give(h.take(int32(giver)-1), int32(taker)-1)
		}
	}
}

// compileBucket makes a table that is a function of numbers and weights
// alone, for balancers that have not seen the same changes: a fold. Starting
// with nobody, it adds the numbers in order, then takes away, in one step for
// each of the three sets, those who are not in it. So a server that drains,
// rests or is on standby costs the least moves, and so does one added under
// the next number.
//
// A number that is not in use takes part in the fold (and then loses its
// buckets) with its lower neighbour's weight, or, below all, the lowest's:
// removing a server changes nothing for the others if weights are the same.
func compileBucket(s Spec, members []Member) (*Table, error) {
	if err := checkFlat(KindBucket, len(members), s.Rows); err != nil {
		return nil, err
	}
	top := 0
	if len(members) > 0 {
		top = members[len(members)-1].Number + 1
	}
	index := slices.Repeat([]int32{-1}, top) // by number: in members
	fold := make([]int, top)
	all := weightsOf(members, 2)
	for i, m := range members {
		index[m.Number], fold[m.Number] = int32(i), all[i]
	}
	for n := range fold {
		// A member that is in no set is as good as a hole.
		if fold[n] == 0 && n > 0 {
			fold[n] = fold[n-1]
		}
	}
	for n := top - 2; n >= 0; n-- {
		if fold[n] == 0 {
			fold[n] = fold[n+1]
		}
	}
	base := newHoldings(s.Rows)
	for n := range fold {
		base.settle(fold[:n+1])
	}
	var owners [3][]int32
	for set := range owners {
		weights := make([]int, top)
		for i, w := range weightsOf(members, set) {
			weights[members[i].Number] = w
		}
		h := base
		if !slices.Equal(weights, fold) {
			h = base.clone()
			h.settle(weights)
		}
		owners[set] = make([]int32, s.Rows)
		for b, n := range h.owner {
			owners[set][b] = -1
			if n >= 0 {
				owners[set][b] = index[n]
			}
		}
	}
	return joinSets(members, owners[0], owners[1], owners[2]), nil
}
