package fattree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// matrix is one kind of traffic in one fat-tree.
type matrix struct {
	k int
	// each is how many connections a host opens to any others; permuted: it has
	// one, of a permutation.
	each int
}

const permuted = 0

// stream of a purpose under a matrix. What a number of subflows draws is its
// own, so that others beside it change nothing.
func (m matrix) stream(seed uint64, purpose string, subflows int) *rand.Rand {
	return sim.Stream(seed, fmt.Sprintf("%s, k %d, %d a host, %d subflows", purpose, m.k, m.each, subflows))
}

// connections are drawn under a seed.
func (m matrix) connections(seed uint64) []connection {
	random := m.stream(seed, "matrix", 0)
	if m.each == permuted {
		return permutation(newTree(m.k).hosts, random)
	}
	return overloaded(newTree(m.k).hosts, m.each, random)
}

// way is how subflows come to their paths: by a hash, or by the scheduler with
// some rounds.
type way int

const hashed way = -1

// point is what is compared.
type point struct {
	matrix
	subflows int
	way      way
}

// outcome of a point under one seed, as shares of the optimum.
type outcome struct {
	throughput float64 // of all connections
	least      float64 // of the connection that gets the least of its own optimum
	fairness   float64 // Jain's index of what each gets of its own optimum
}

func newOutcome(rates, optimum []float64) outcome {
	sum, best := 0.0, 0.0
	shares := make([]float64, len(rates))
	for i, r := range rates {
		sum += r
		best += optimum[i]
		shares[i] = r / optimum[i]
	}
	return outcome{sum / best, slices.Min(shares), jain(shares)}
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// shownRounds are those of the figure that compares them.
var shownRounds = []int{0, 1, 2, 3, 5, 10, 20, 30, 50}

// ways that are run in a fat-tree of k ports with a number of subflows.
func (o *Options) ways(m matrix, subflows int) []way {
	all := []way{hashed, 0, way(o.Rounds)}
	if m == o.main() && slices.Contains(roundsOf, subflows) {
		for _, r := range shownRounds {
			all = append(all, way(r))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// roundsOf are the subflows whose rounds are compared.
var roundsOf = []int{1, 2, 4}

// compared are the subflows of the figures that compare matrices.
var compared = []int{1, 2, 8}

// main is the paper's matrix.
func (o *Options) main() matrix { return matrix{o.K, permuted} }

// job is all points of one matrix and one number of subflows under one seed.
type job struct {
	matrix
	subflows, seed int
}

func (o *Options) jobs(seeds int) []job {
	var all []job
	for _, m := range o.matrices() {
		for _, s := range o.Subflows {
			if m != o.main() && !slices.Contains(compared, s) {
				continue
			}
			for seed := range seeds {
				all = append(all, job{m, s, seed})
			}
		}
	}
	// What takes longest begins first.
	slices.SortStableFunc(all, func(a, b job) int { return b.k*b.k*b.k*b.subflows - a.k*a.k*a.k*a.subflows })
	return all
}

func (o *Options) matrices() []matrix {
	all := []matrix{o.main()}
	for _, k := range o.Larger {
		all = append(all, matrix{k, permuted})
	}
	for _, each := range o.Connections {
		all = append(all, matrix{o.K, each})
	}
	return all
}

// outcomes are those of each point, by seed.
type outcomes map[point][]outcome

func (o *Options) runAll(ctx context.Context, c sim.Common) (outcomes, error) {
	seeds := c.SeedList()
	all := outcomes{}
	jobs := o.jobs(len(seeds))
	for _, j := range jobs {
		for _, w := range o.ways(j.matrix, j.subflows) {
			all[point{j.matrix, j.subflows, w}] = make([]outcome, len(seeds))
		}
	}
	err := c.Each(ctx, len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		o.run(j, seeds[j.seed], func(w way, found outcome) { all[point{j.matrix, j.subflows, w}][j.seed] = found })
		return nil
	})
	return all, err
}

func (o *Options) run(j job, seed uint64, found func(way, outcome)) {
	t := newTree(j.k)
	connections := j.connections(seed)
	optimum := t.optimum(connections)
	judge := func(w way, placed []subflow) {
		found(w, newOutcome(throughputs(len(connections), placed, maxMin(t.links(), placed)), optimum))
	}
	judge(hashed, t.hashed(connections, j.subflows, j.stream(seed, "hash", j.subflows)))
	ways := o.ways(j.matrix, j.subflows)
	s := newScheduler(t, j.stream(seed, "scheduler", j.subflows))
	s.schedule(connections, j.subflows, int(slices.Max(ways)), func(round int, placed []subflow) {
		if slices.Contains(ways, way(round)) {
			judge(way(round), placed)
		}
	})
}
