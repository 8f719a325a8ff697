package workload

import (
	"math/rand/v2"
	"sort"

	"github.com/fairlead/fairlead/sim"
)

// Step is a distribution of durations as a Step function: each value with the
// probability by which its cumulated one exceeds the one before.
type Step []struct {
	cumulated float64
	value     sim.Time
}

func (s Step) Draw(r *rand.Rand) sim.Time {
	u := r.Float64()
	i := sort.Search(len(s), func(i int) bool { return s[i].cumulated > u })
	return s[i].value // the last one's cumulated probability is 1, u less
}

// mean in nanoseconds.
func (s Step) Mean() float64 {
	sum, before := 0.0, 0.0
	for _, v := range s {
		sum += (v.cumulated - before) * float64(v.value)
		before = v.cumulated
	}
	return sum
}

// Exponential draws a waiting time with the mean, in nanoseconds; 1 at least,
// so that a process moves on.
func Exponential(r *rand.Rand, mean float64) sim.Time {
	return max(1, sim.Time(r.ExpFloat64()*mean))
}

// Hadoop is how long connections live in JET's event simulation (Mendelson et
// al., CoNEXT 2021; published with the authors' code): mean 21.334 s.
var Hadoop = Step{
	{.29336, 1 * sim.Millisecond},
	{.37823, 2 * sim.Millisecond},
	{.40590, 2990 * sim.Second / 1e6},
	{.45203, 8930 * sim.Second / 1e6},
	{.47601, 25500 * sim.Second / 1e6},
	{.50185, 310100 * sim.Second / 1e6},
	{.54797, 10276 * sim.Millisecond},
	{.76015, 10436 * sim.Millisecond},
	{.89852, 22915 * sim.Millisecond},
	{.92804, 36395 * sim.Millisecond},
	{.94834, 100710 * sim.Millisecond},
	{.95756, 214420 * sim.Millisecond},
	{.99815, 228060 * sim.Millisecond},
	{1, 602560 * sim.Millisecond},
}

// Downtime is how long a server stays away there: mean 1,786 s, nine in ten
// under 180 s.
var Downtime = Step{
	{.00683, 60 * sim.Second},
	{.04328, 120800 * sim.Millisecond},
	{.21503, 130730 * sim.Millisecond},
	{.38679, 141480 * sim.Millisecond},
	{.55854, 153110 * sim.Millisecond},
	{.73030, 165700 * sim.Millisecond},
	{.90205, 179330 * sim.Millisecond},
	{.96583, 304810 * sim.Millisecond},
	{.98178, 671690 * sim.Millisecond},
	{.99772, 20533600 * sim.Millisecond},
	{1, 567076 * sim.Second},
}
