package workload

import (
	"math"
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
)

// Sinusoid is the rate of Cheetah's figure 9: 60 % of its peak for 20 s, up to
// the peak at 35 s and down again until 50 s, 60 % from then on:
//
//	rate(x) = Peak · (0.6 + 0.4·sin²(π·max(0, min(x, 50) − 20)/30))
type Sinusoid struct {
	// Peak in requests a second. The paper's figure goes from 1,500 to 2,500.
	Peak float64
}

// At is the rate at a time, in requests a second.
func (s Sinusoid) At(at sim.Time) float64 {
	x := max(0, min(float64(at)/float64(sim.Second), 50)-20)
	sin := math.Sin(math.Pi * x / 30)
	return s.Peak * (0.6 + 0.4*sin*sin)
}

// Next is the first arrival after a time, of a Poisson process with this rate
// (thinned from one with the peak's: Lewis and Shedler); Never or later: there
// is none.
func (s Sinusoid) Next(r *rand.Rand, after sim.Time) sim.Time {
	gap := float64(sim.Second) / s.Peak
	for {
		after += Exponential(r, gap)
		if after >= Never || r.Float64()*s.Peak < s.At(after) {
			return after
		}
	}
}
