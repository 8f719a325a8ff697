package sim

import (
	"math/rand/v2"
	"sort"
)

// step is a distribution of durations as a step function: each value with the
// probability by which its cumulated one exceeds the one before.
type step []struct {
	cumulated float64
	value     Time
}

func (s step) draw(r *rand.Rand) Time {
	u := r.Float64()
	i := sort.Search(len(s), func(i int) bool { return s[i].cumulated > u })
	return s[i].value // the last one's cumulated probability is 1, u less
}

// mean in nanoseconds.
func (s step) mean() float64 {
	sum, before := 0.0, 0.0
	for _, v := range s {
		sum += (v.cumulated - before) * float64(v.value)
		before = v.cumulated
	}
	return sum
}

// exponential draws a waiting time with the mean, in nanoseconds; 1 at least,
// so that a process moves on.
func exponential(r *rand.Rand, mean float64) Time {
	return max(1, Time(r.ExpFloat64()*mean))
}

const millisecond = Second / 1000

// hadoop is how long connections live in JET's event simulation (Mendelson et
// al., CoNEXT 2021; published with the authors' code): mean 21.334 s.
var hadoop = step{
	{.29336, 1 * millisecond},
	{.37823, 2 * millisecond},
	{.40590, 2990 * Second / 1e6},
	{.45203, 8930 * Second / 1e6},
	{.47601, 25500 * Second / 1e6},
	{.50185, 310100 * Second / 1e6},
	{.54797, 10276 * millisecond},
	{.76015, 10436 * millisecond},
	{.89852, 22915 * millisecond},
	{.92804, 36395 * millisecond},
	{.94834, 100710 * millisecond},
	{.95756, 214420 * millisecond},
	{.99815, 228060 * millisecond},
	{1, 602560 * millisecond},
}

// downtime is how long a server stays away there: mean 1,786 s, nine in ten
// under 180 s.
var downtime = step{
	{.00683, 60 * Second},
	{.04328, 120800 * millisecond},
	{.21503, 130730 * millisecond},
	{.38679, 141480 * millisecond},
	{.55854, 153110 * millisecond},
	{.73030, 165700 * millisecond},
	{.90205, 179330 * millisecond},
	{.96583, 304810 * millisecond},
	{.98178, 671690 * millisecond},
	{.99772, 20533600 * millisecond},
	{1, 567076 * Second},
}
