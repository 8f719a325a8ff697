package chash

import (
	"math"
	"math/bits"
	"slices"
	"sort"
)

// runner is a server in table-HRW's race.
type runner struct {
	permutation
	weight uint64
	slow   uint64 // 2^64 / weight: a time times this, its upper half, is time / weight
	hash   uint64 // of the name
	name   string
}

func newRunner(name string, weight, rowBits int) runner {
	r := runner{hash: nameHash(name), name: name}
	r.permutation = newPermutation(r.hash, rowBits)
	r.weigh(weight)
	return r
}

// weigh sets the weight; one of 0 may not run.
func (r *runner) weigh(weight int) {
	if weight > 0 {
		r.weight, r.slow = uint64(weight), math.MaxUint64/uint64(weight)
	}
}

// pass is when a runner passes the position that a runner of weight 1 passes
// at that time.
func (r *runner) pass(time uint64) uint64 {
	t, _ := bits.Mul64(time, r.slow)
	return t
}

// tie draws who wins a row that runners pass at the same time, which those of
// the same weight often do: the least.
func (r *runner) tie(row uint32) uint64 { return mix(r.hash + uint64(row)*0x9e3779b97f4a7c15) }

// race is who passes each row first, among the runners that are in.
type race struct {
	rowBits int
	times   []uint64 // of raceTimes
	in      []int32  // indices of runners
	// best is by row the first pass, as time with the runner's index in the
	// low runnerBits: passes at different times differ above those, for
	// positions are 2^36 apart or more and weights below 2^16.
	best []uint64
}

const (
	runnerBits = 20
	maxRunners = 1<<runnerBits - 1
	nobody     = math.MaxUint64 // in best
)

func newRace(rowBits int) race {
	return race{
		rowBits: rowBits,
		times:   raceTimes(rowBits),
		best:    slices.Repeat([]uint64{nobody}, 1<<rowBits),
	}
}

func (r *race) clone() race {
	c := *r
	c.in, c.best = slices.Clone(r.in), slices.Clone(r.best)
	return c
}

// owner is the runner of a pass, -1 for nobody.
func owner(best uint64) int32 {
	if best == nobody {
		return -1
	}
	return int32(best & maxRunners)
}

// owners are the rows' winners, -1 for nobody.
func (r *race) owners() []int32 {
	o := make([]int32, len(r.best))
	for row, b := range r.best {
		o[row] = owner(b)
	}
	return o
}

// sooner tells whether pass a of a row comes before another one, nobody
// included.
func sooner(runners []runner, row uint32, a, b uint64) bool {
	if (a^b)>>runnerBits != 0 || b == nobody {
		return a < b
	}
	return winsTie(runners, row, a, b)
}

func winsTie(runners []runner, row uint32, a, b uint64) bool {
	x, y := &runners[a&maxRunners], &runners[b&maxRunners]
	if tx, ty := x.tie(row), y.tie(row); tx != ty {
		return tx < ty
	}
	return before(x.hash, x.name, y.hash, y.name)
}

// limit is a time by which all but about one row in as many as there are
// runners has been passed: in time c/total weight a row is missed with
// probability e^-c.
func (r *race) limit(runners []runner) uint64 {
	total := uint64(1)
	for _, i := range r.in {
		total += runners[i].weight
	}
	c := uint64(bits.Len(uint(len(r.in)))) * 45426 // ln 2 in units of 2^-16
	return c << (58 - 16) / total
}

// run races for rows that nobody has passed yet.
func (r *race) run(runners []runner, rows []uint32) {
	limit := r.limit(runners)
	for _, i := range r.in {
		r.sprint(runners, i, limit)
	}
	r.finish(runners, rows)
}

// sprint lets one run until a time. The lesser of two passes is chosen
// without a branch, which would be guessed wrong half of the time.
func (r *race) sprint(runners []runner, i int32, limit uint64) {
	me := runners[i]
	n := sort.Search(len(r.times), func(k int) bool { return me.pass(r.times[k]) > limit })
	for k, t := range r.times[:n] {
		t = me.pass(t)&^maxRunners | uint64(i)
		row := me.row(uint32(k))
		b := r.best[row]
		if (t^b)>>runnerBits == 0 {
			if winsTie(runners, row, t, b) {
				r.best[row] = t
			}
			continue
		}
		r.best[row] = min(b, t)
	}
}

// finish decides those of the rows that nobody has passed, by asking all. Who
// is no faster than the first so far and further away is not timed: times
// rise with the position.
func (r *race) finish(runners []runner, rows []uint32) {
	for _, row := range rows {
		if r.best[row] != nobody {
			continue
		}
		best := uint64(nobody)
		position, weight := uint32(math.MaxUint32), uint64(math.MaxUint64)
		for _, i := range r.in {
			me := &runners[i]
			p := me.position(row)
			if p > position && me.weight <= weight {
				continue
			}
			t := me.pass(r.times[p])&^maxRunners | uint64(i)
			if sooner(runners, row, t, best) {
				best, position, weight = t, p, me.weight
			}
		}
		r.best[row] = best
	}
}

// enter lets more run, and appends the rows that they win to won, some
// perhaps more than once.
func (r *race) enter(runners []runner, who []int32, won []uint32) []uint32 {
	r.in = append(r.in, who...)
	last := slices.Max(r.best) | maxRunners // nobody wins anything later
	for _, i := range who {
		me := runners[i]
		for k, t := range r.times {
			t = me.pass(t)&^maxRunners | uint64(i)
			if t > last {
				break
			}
			if row := me.row(uint32(k)); sooner(runners, row, t, r.best[row]) {
				r.best[row] = t
				won = append(won, row)
			}
		}
	}
	return won
}

// leave takes one out, races for its rows again, and appends them to lost.
func (r *race) leave(runners []runner, i int32, lost []uint32) []uint32 {
	r.in = slices.DeleteFunc(r.in, func(j int32) bool { return j == i })
	for row, b := range r.best {
		if owner(b) == i {
			lost = append(lost, uint32(row))
			r.best[row] = nobody
		}
	}
	// Running costs about rows × ln(runners), asking everybody runners a row.
	if len(lost)*len(r.in) > 8*len(r.best) {
		r.run(runners, lost)
	} else {
		r.finish(runners, lost)
	}
	return lost
}
