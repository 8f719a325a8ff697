package workload

import (
	"math"
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
)

// Service is how long a request occupies a server. A Distribution of
// durations is one, too.
type Service interface {
	// Draw is a time, 1 ns at least.
	Draw(r *rand.Rand) sim.Time
	// Mean in nanoseconds.
	Mean() float64
}

// Constant is the same time for each request: Cheetah's figures 6 and 7 with
// 7 ms.
type Constant sim.Time

func (c Constant) Draw(*rand.Rand) sim.Time { return max(1, sim.Time(c)) }
func (c Constant) Mean() float64            { return float64(max(1, c)) }

// Gamma has a mean (ns) and a coefficient of variation: deviation / mean. With
// 1 it is exponential, with less it is more even, with 0 constant.
type Gamma struct {
	Time      sim.Time
	Variation float64
}

func (g Gamma) Mean() float64 { return float64(g.Time) }

func (g Gamma) Draw(r *rand.Rand) sim.Time {
	switch {
	case g.Variation < leastVariation:
		return max(1, g.Time)
	case g.Variation == 1:
		return Exponential(r, g.Mean())
	}
	shape := 1 / (g.Variation * g.Variation)
	if shape >= 1 {
		return max(1, sim.Time(g.Mean()/shape*gamma(r, shape)))
	}
	x := gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	return max(1, sim.Time(g.Mean()/shape*x))
}

// leastVariation is what integer nanoseconds can show of an hour.
const leastVariation = 1e-12

// Bimodal is Cheetah's work of figure 8: a share of the requests is long, and
// each of either kind is drawn from a Gaussian distribution of mean t and
// variance t/2, t in milliseconds: 4 ± 1.4 ms and 500 ± 15.8 ms.
type Bimodal struct {
	Short, Long sim.Time
	// LongShare of the requests, 0 to 1.
	LongShare float64
}

// Figure8 is the bimodal work of Cheetah's figure 8: mean 53.6 ms.
var Figure8 = Bimodal{4 * sim.Millisecond, 500 * sim.Millisecond, 0.1}

func (b Bimodal) Mean() float64 {
	return float64(b.Short) + b.LongShare*float64(b.Long-b.Short)
}

func (b Bimodal) Draw(r *rand.Rand) sim.Time {
	t := b.Short
	if r.Float64() < b.LongShare {
		t = b.Long
	}
	return Gaussian{t, halfVariance(t)}.Draw(r)
}

// halfVariance is the deviation where the variance is half the mean, both in
// milliseconds.
func halfVariance(mean sim.Time) sim.Time {
	return sim.Time(math.Sqrt(float64(mean)/float64(sim.Millisecond)/2) * float64(sim.Millisecond))
}

// Gaussian is the normal distribution of a mean and a deviation; what would
// take no time takes 1 ns, so the deviation should be under half the mean.
type Gaussian struct{ Time, Deviation sim.Time }

func (g Gaussian) Mean() float64 { return float64(g.Time) }

func (g Gaussian) Draw(r *rand.Rand) sim.Time {
	return max(1, g.Time+sim.Time(r.NormFloat64()*float64(g.Deviation)))
}
