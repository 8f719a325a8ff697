package fattree

import "math/rand/v2"

// subflow of a connection on one of its paths.
type subflow struct {
	connection int
	links      []int32
}

// hashed puts every subflow on a path that a hash chooses: plain ECMP.
func (t tree) hashed(all []connection, subflows int, random *rand.Rand) []subflow {
	var placed []subflow
	for i, c := range all {
		for range subflows {
			n := random.IntN(t.paths(c.from, c.to))
			placed = append(placed, subflow{i, t.path(c.from, c.to, n, nil)})
		}
	}
	return placed
}

// scheduler is the central scheduler of CFLB §4.2.1: it keeps the number of
// subflows of every link small. A subflow gets the path whose most loaded link
// has the fewest; of those, the one whose links have the fewest in all; of equal
// ones any. It is the path service's scheduler (fabric/paths)
// by numbers alone; a test holds it against that one.
type scheduler struct {
	tree
	random *rand.Rand
	loads  []int32 // subflows, by link
	equal  []int   // paths that are equally good
}

func newScheduler(t tree, random *rand.Rand) *scheduler {
	return &scheduler{tree: t, random: random, loads: make([]int32, t.links())}
}

// schedule places the subflows of all connections as they come, one after the
// other. Then, in every round, each is taken off its links and placed again,
// in the same order; a MultiPath TCP connection that is moved opens the new
// subflow before it ends the old one. placed is told of the paths as they are
// before the first round and after each.
func (s *scheduler) schedule(all []connection, subflows, rounds int, placed func(round int, of []subflow)) {
	var of []subflow
	for i, c := range all {
		for range subflows {
			links := s.path(c.from, c.to, s.best(c), nil)
			s.count(links, 1)
			of = append(of, subflow{i, links})
		}
	}
	placed(0, of)
	for round := range rounds {
		for i := range of {
			f, c := &of[i], all[of[i].connection]
			s.count(f.links, -1)
			f.links = s.path(c.from, c.to, s.best(c), f.links[:0])
			s.count(f.links, 1)
		}
		placed(round+1, of)
	}
}

func (s *scheduler) count(links []int32, n int32) {
	for _, l := range links {
		s.loads[l] += n
	}
}

// best is the number of the least loaded path. The hosts' own links are on all
// of a pair's paths and decide nothing.
func (s *scheduler) best(c connection) int {
	e, f := c.from/s.half, c.to/s.half
	p, q := e/s.half, f/s.half
	s.equal = s.equal[:0]
	if e == f {
		return 0
	}
	least := ^uint64(0)
	consider := func(n int, key uint64) {
		if key < least {
			least, s.equal = key, s.equal[:0]
		}
		if key == least {
			s.equal = append(s.equal, n)
		}
	}
	for a := range s.half {
		up, down := s.loads[s.edgeUp(e, a)], s.loads[s.edgeDown(f, a)]
		if p == q {
			consider(a, load(up, down))
			continue
		}
		if uint64(max(up, down))<<32 > least {
			continue // whatever the core
		}
		for c := range s.half {
			consider(a*s.half+c, load(up, down, s.loads[s.coreUp(p, a, c)], s.loads[s.coreDown(q, a, c)]))
		}
	}
	return s.equal[s.random.IntN(len(s.equal))]
}

// load of a path: its most loaded link decides, then the sum of all, which is
// below 2^32 as maxSubflows says.
func load(links ...int32) uint64 {
	most, sum := int32(0), uint64(0)
	for _, n := range links {
		most = max(most, n)
		sum += uint64(n)
	}
	return uint64(most)<<32 | sum
}
