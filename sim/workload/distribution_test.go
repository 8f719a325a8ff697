package workload

import (
	"math"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// The means of the distributions that JET's authors publish with their code.
func TestDistributions(t *testing.T) {
	for _, c := range []struct {
		name      string
		d         Step
		mean, tol float64 // seconds
	}{{"hadoop", Hadoop, 21.334, 0.01}, {"downtime", Downtime, 1786, 5}} {
		if m := c.d.Mean() / float64(sim.Second); math.Abs(m-c.mean) > c.tol {
			t.Errorf("%s: mean %.3f s, want %.3f", c.name, m, c.mean)
		}
		counts := map[sim.Time]float64{}
		r := sim.Stream(1, c.name)
		const draws = 1_000_000
		for range draws {
			counts[c.d.Draw(r)]++
		}
		before := 0.0
		for _, s := range c.d {
			want := (s.cumulated - before) * draws
			if got := counts[s.value]; math.Abs(got-want) > 5*math.Sqrt(want) {
				t.Errorf("%s: %v drawn %.0f times, want %.0f", c.name, s.value, got, want)
			}
			before = s.cumulated
		}
	}
	r, sum := sim.Stream(1, "exponential"), 0.0
	const draws = 1_000_000
	for range draws {
		sum += float64(Exponential(r, 1e6))
	}
	if m := sum / draws; math.Abs(m-1e6) > 5e3 {
		t.Errorf("exponential: mean %.0f, want 1,000,000", m)
	}
}
