package chash

import (
	"math"
	"math/bits"
	"slices"
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
	time    []uint64 // by row: when it was passed; MaxUint64: not yet
	owner   []int32  // by row: who passed it first; -1: nobody
}

func newRace(rowBits int) race {
	return race{
		rowBits: rowBits,
		times:   raceTimes(rowBits),
		time:    slices.Repeat([]uint64{math.MaxUint64}, 1<<rowBits),
		owner:   slices.Repeat([]int32{-1}, 1<<rowBits),
	}
}

func (r *race) clone() race {
	c := *r
	c.in, c.time, c.owner = slices.Clone(r.in), slices.Clone(r.time), slices.Clone(r.owner)
	return c
}

// passes tells whether i, passing a row at that time, wins it.
func (r *race) passes(runners []runner, row uint32, time uint64, i int32) bool {
	if time != r.time[row] {
		return time < r.time[row]
	}
	o := r.owner[row]
	if o < 0 {
		return true
	}
	a, b := &runners[i], &runners[o]
	if ta, tb := a.tie(row), b.tie(row); ta != tb {
		return ta < tb
	}
	return before(a.hash, a.name, b.hash, b.name)
}

// limit is a time by which all but about one row in 2 × runners has been
// passed: in time c/total weight a row is missed with probability e^-c.
func (r *race) limit(runners []runner) uint64 {
	total := uint64(1)
	for _, i := range r.in {
		total += runners[i].weight
	}
	c := uint64(bits.Len(uint(len(r.in)))+1) * 45426 // ln 2 in units of 2^-16
	return c << (58 - 16) / total
}

// run races for rows that nobody has passed yet.
func (r *race) run(runners []runner, rows []uint32) {
	limit := r.limit(runners)
	r.sprint(runners, r.in, limit)
	r.finish(runners, rows, limit)
}

// sprint lets some runners run until a time.
func (r *race) sprint(runners []runner, who []int32, limit uint64) {
	for _, i := range who {
		r.sprintOne(runners, i, limit, nil)
	}
}

// sprintOne lets one run, and lists the rows that it wins, if asked to.
func (r *race) sprintOne(runners []runner, i int32, limit uint64, won []uint32) []uint32 {
	me := runners[i]
	list := won != nil
	for k, t := range r.times {
		t = me.pass(t)
		if t > limit {
			break
		}
		row := me.row(uint32(k))
		if t > r.time[row] || t == r.time[row] && !r.passes(runners, row, t, i) {
			continue
		}
		r.time[row], r.owner[row] = t, i
		if list {
			won = append(won, row)
		}
	}
	return won
}

// finish decides those of the rows that nobody passed until the limit by
// asking everybody.
func (r *race) finish(runners []runner, rows []uint32, limit uint64) {
	for _, row := range rows {
		if r.time[row] <= limit {
			continue
		}
		r.time[row], r.owner[row] = math.MaxUint64, -1
		for _, i := range r.in {
			me := &runners[i]
			if t := me.pass(r.times[me.position(row)]); t <= r.time[row] && r.passes(runners, row, t, i) {
				r.time[row], r.owner[row] = t, i
			}
		}
	}
}

// enter lets one more run, and appends the rows that it wins to won.
func (r *race) enter(runners []runner, i int32, won []uint32) []uint32 {
	r.in = append(r.in, i)
	return r.sprintOne(runners, i, slices.Max(r.time), won)
}

// leave takes one out, races for its rows again, and appends them to lost.
func (r *race) leave(runners []runner, i int32, lost []uint32) []uint32 {
	r.in = slices.DeleteFunc(r.in, func(j int32) bool { return j == i })
	for row, o := range r.owner {
		if o == i {
			lost = append(lost, uint32(row))
			r.time[row], r.owner[row] = math.MaxUint64, -1
		}
	}
	// Running costs about rows × ln(runners), asking everybody runners a row.
	if len(lost)*len(r.in) > 8*len(r.owner) {
		r.run(runners, lost)
	} else {
		r.finish(runners, lost, 0)
	}
	return lost
}
