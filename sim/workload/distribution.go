package workload

import (
	"math/rand/v2"
	"sort"

	"github.com/fairlead/fairlead/sim"
)

// Distribution is one of durations (in ns) or sizes (in bytes): a step
// function, each of a few values with its probability.
type Distribution struct {
	// Name is the workload's, or the name of the user's file.
	Name string
	// About says what it is in a line, Source who published it. A user's file
	// may leave both out.
	About, Source string
	// Sizes: the values are bytes. Otherwise they are nanoseconds.
	Sizes bool

	values []int64 // ascending, none negative, each once
	// share[i] is the probability of values[i], upTo[i] that of at most
	// values[i], area[i] the sum of share × value up to i.
	share, upTo, area []float64
	draw, drawBiased  Alias // by share, by share × value
}

// newDistribution takes values, ascending and each once, with weights that are
// not negative and do not sum to 0.
func newDistribution(values []int64, weights []float64) *Distribution {
	total := 0.0
	for _, w := range weights {
		total += w
	}
	d := &Distribution{values: values}
	sum, area := 0.0, 0.0
	biased := make([]float64, len(values))
	for i, w := range weights {
		sum += w
		biased[i] = w / total * float64(values[i])
		area += biased[i]
		d.share = append(d.share, w/total)
		d.upTo = append(d.upTo, sum/total)
		d.area = append(d.area, area)
	}
	d.upTo[len(values)-1] = 1
	d.draw = NewAlias(weights)
	d.drawBiased = NewAlias(biased)
	return d
}

// Draw is a value: nanoseconds or, of sizes, bytes.
func (d *Distribution) Draw(r *rand.Rand) sim.Time { return sim.Time(d.values[d.draw.Draw(r)]) }

// Mean of the values, in nanoseconds or bytes.
func (d *Distribution) Mean() float64 { return d.area[len(d.area)-1] }

// Tail is P(L > a), the share of connections that live longer than a.
func (d *Distribution) Tail(a sim.Time) float64 {
	if i := d.above(int64(a)); i > 0 {
		return 1 - d.upTo[i-1]
	}
	return 1
}

// above is the index of the first value greater than a.
func (d *Distribution) above(a int64) int {
	return sort.Search(len(d.values), func(i int) bool { return d.values[i] > a })
}

// Quantile is the least value that a share of p (0 to 1) does not exceed.
func (d *Distribution) Quantile(p float64) sim.Time {
	i := sort.Search(len(d.upTo), func(i int) bool { return d.upTo[i] >= p })
	return sim.Time(d.values[min(i, len(d.values)-1)])
}

// Longest is the greatest value.
func (d *Distribution) Longest() sim.Time { return sim.Time(d.values[len(d.values)-1]) }

// Len is the number of values.
func (d *Distribution) Len() int { return len(d.values) }

// Step is the i-th value, from the least on, and its probability.
func (d *Distribution) Step(i int) (value sim.Time, share float64) {
	return sim.Time(d.values[i]), d.share[i]
}

// Stationary is a connection of the steady state: one that lives at a moment
// at which nothing is known. Its age is at least 0, its residual life at least
// 1 ns; both together are a lifetime, drawn in proportion to its length
// (renewal theory's inspection paradox).
func (d *Distribution) Stationary(r *rand.Rand) (age, residual sim.Time) {
	return split(d.values[d.drawBiased.Draw(r)], r)
}

// AliveFor is the integral of Tail over ages from 0 to span, in nanoseconds:
// with arrivals at a rate (per nanosecond), rate × AliveFor(span) is the mean
// number of those that began within the last span and still live. For a span
// of Longest or more it is Mean (Little's law).
func (d *Distribution) AliveFor(span sim.Time) float64 {
	i := d.above(int64(span))
	whole := 0.0
	if i > 0 {
		whole = d.area[i-1]
	}
	return whole + float64(span)*d.Tail(span)
}

// Young is a connection that lives at a moment and began within the span
// before it: its age, below span, and its residual life. span must be 1 at
// least.
func (d *Distribution) Young(span sim.Time, r *rand.Rand) (age, residual sim.Time) {
	first := d.above(int64(span)) // values from here on outlive the span
	whole := 0.0
	if first > 0 {
		whole = d.area[first-1]
	}
	u := r.Float64() * d.AliveFor(span)
	var i int
	if u < whole {
		i = sort.Search(first, func(i int) bool { return d.area[i] > u })
	} else {
		// Uniform over the probabilities above; rounding must not leave them.
		p := 1 - d.Tail(span) + (u-whole)/float64(span)
		i = sort.Search(len(d.upTo), func(i int) bool { return i >= first && d.upTo[i] > p })
		i = min(i, len(d.values)-1)
	}
	life := d.values[i]
	age = sim.Time(r.Int64N(max(1, min(life, int64(span)))))
	return age, sim.Time(life) - age
}

// split has a lifetime cut at a place that is uniform.
func split(life int64, r *rand.Rand) (age, residual sim.Time) {
	age = sim.Time(r.Int64N(life))
	return age, sim.Time(life) - age
}

// Never is a time that no simulation reaches (36 years), and that may be added
// to any other.
const Never sim.Time = 1 << 60

// Exponential draws a waiting time with the mean, in nanoseconds: 1 at least,
// so that a process moves on, Never at most.
func Exponential(r *rand.Rand, mean float64) sim.Time {
	return max(1, atMostNever(r.ExpFloat64()*mean))
}

// atMostNever is a time in nanoseconds as an integer, which cannot hold all
// that floating point can.
func atMostNever(ns float64) sim.Time {
	if ns >= float64(Never) {
		return Never
	}
	return sim.Time(ns)
}
