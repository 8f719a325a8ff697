package workload

import (
	"math"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

// near fails where a count of draws is over 5 deviations off.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 5*math.Sqrt(want)+1 {
		t.Errorf("%s: %.0f draws, want %.0f", what, got, want)
	}
}

// The means that the papers and their authors' data give.
func TestDistributions(t *testing.T) {
	for _, c := range []struct {
		d              *Distribution
		mean, tol, per float64
		n              int
	}{
		{WebServer, 26.30, 0.005, float64(sim.Second), 19},
		{WebServerSizes, 6.172, 0.001, 1024, 15},
		{Hadoop, 21.334, 0.01, float64(sim.Second), 14},
		{Downtime, 1786, 5, float64(sim.Second), 11},
	} {
		if m := c.d.Mean() / c.per; math.Abs(m-c.mean) > c.tol || c.d.Len() != c.n {
			t.Errorf("%s: %d values, mean %.3f; want %d, %.3f", c.d.Name, c.d.Len(), m, c.n, c.mean)
		}
		if c.d.About == "" || c.d.Source == "" {
			t.Errorf("%s says nothing of itself: %q, %q", c.d.Name, c.d.About, c.d.Source)
		}
		counts := map[sim.Time]float64{}
		r := sim.Stream(1, c.d.Name)
		const draws = 1_000_000
		for range draws {
			counts[c.d.Draw(r)]++
		}
		for i := range c.d.Len() {
			v, p := c.d.Step(i)
			near(t, c.d.Name, counts[v], p*draws)
		}
	}
}

func TestTailAndQuantiles(t *testing.T) {
	d := newDistribution([]int64{0, 10, 20}, []float64{1, 1, 2})
	for a, want := range map[sim.Time]float64{-1: 1, 0: .75, 9: .75, 10: .5, 19: .5, 20: 0} {
		if got := d.Tail(a); got != want {
			t.Errorf("P(L > %d) = %v, want %v", a, got, want)
		}
	}
	for span, want := range map[sim.Time]float64{0: 0, 4: 3, 10: 7.5, 15: 10, 20: 12.5, 99: 12.5} {
		if got := d.AliveFor(span); got != want {
			t.Errorf("alive for %d: %v, want %v", span, got, want)
		}
	}
	for p, want := range map[float64]sim.Time{0: 0, .25: 0, .26: 10, .5: 10, .6: 20, 1: 20} {
		if got := d.Quantile(p); got != want {
			t.Errorf("quantile %v: %d, want %d", p, got, want)
		}
	}
}

// A population that was simulated for long and one that is drawn at once are
// alike in age and residual life, all of it and what is younger than a span.
func TestStationary(t *testing.T) {
	seed := soak.Seed(t)
	d := newDistribution([]int64{3, 10, 40}, []float64{2, 1, 1})
	const end = 300_000 // one arrival a time unit
	type alive struct{ age, residual sim.Time }
	want := map[alive]float64{}
	r := sim.Stream(seed, "arrivals")
	for range end {
		life := d.Draw(r)
		for age := range life { // seen at each age of its life
			want[alive{age, life - age}]++
		}
	}
	check := func(what string, span sim.Time, draw func() (age, residual sim.Time)) {
		got, within := map[alive]float64{}, 0.0
		for a, n := range want {
			if a.age < span {
				within += n
			}
		}
		if mean := d.AliveFor(span) * end; math.Abs(within-mean) > .01*mean {
			t.Errorf("%s: %.0f live, AliveFor says %.0f", what, within, mean)
		}
		const draws = 100_000
		for range draws {
			age, residual := draw()
			got[alive{age, residual}]++
		}
		for a := range got {
			if want[a] == 0 || a.age >= span {
				t.Errorf("%s: nobody is %v", what, a)
			}
		}
		for a, n := range want {
			if share := n / within * draws; a.age < span && math.Abs(got[a]-share) > 6*math.Sqrt(share)+.03*share {
				t.Errorf("%s: %v drawn %.0f times, want %.0f", what, a, got[a], share)
			}
		}
	}
	check("stationary", 40, func() (sim.Time, sim.Time) { return d.Stationary(r) })
	for _, span := range []sim.Time{1, 3, 7, 25, 100} {
		check("young", span, func() (sim.Time, sim.Time) { return d.Young(span, r) })
	}
}

func TestExponential(t *testing.T) {
	r, sum := sim.Stream(1, "exponential"), 0.0
	const draws = 1_000_000
	for range draws {
		sum += float64(Exponential(r, 1e6))
	}
	if m := sum / draws; math.Abs(m-1e6) > 5e3 {
		t.Errorf("mean %.0f, want 1,000,000", m)
	}
}

func TestPoissonNumber(t *testing.T) {
	seed := soak.Seed(t)
	r := sim.Stream(seed, "poisson")
	for _, mean := range []float64{0, .5, 10, 19, 25, 100, 4321} {
		const draws = 40_000
		var sum, squares float64
		for range draws {
			n := float64(PoissonNumber(r, mean))
			sum += n
			squares += (n - mean) * (n - mean)
		}
		off := 6 * math.Sqrt(mean/draws)
		if m := sum / draws; math.Abs(m-mean) > off {
			t.Errorf("seed %d: mean %v, want %v", seed, m, mean)
		}
		if v := squares / draws; math.Abs(v-mean) > 6*mean*math.Sqrt(2.0/draws)+off {
			t.Errorf("seed %d: mean %v: variance %v", seed, mean, v)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	r := sim.Stream(1, "draws")
	for b.Loop() {
		WebServer.Draw(r)
	}
}

func BenchmarkYoung(b *testing.B) {
	r := sim.Stream(1, "draws")
	for b.Loop() {
		WebServer.Young(30*sim.Second, r)
	}
}
