package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

// The population at time 0 and at any later moment has the mean that was asked
// for, and what arrives later does not depend on whether anybody was there.
func TestPoissonArrivals(t *testing.T) {
	seed := soak.Seed(t)
	const active = 5000
	for _, empty := range []bool{false, true} {
		p := NewPoisson(seed, active, WebServer)
		if empty {
			p.FromEmpty()
		}
		looks := []sim.Time{0, 20 * sim.Second, 160 * sim.Second, 170 * sim.Second}
		live := make([]float64, len(looks))
		last := sim.Time(math.MinInt64)
		var keys []uint64
		for {
			c, ok := p.Next()
			if !ok || c.Start > looks[len(looks)-1] {
				break
			}
			if c.Start < last && c.Start > 0 || c.End() <= 0 {
				t.Fatalf("%+v after a start at %d", c, last)
			}
			last = c.Start
			if c.Start > 0 && len(keys) < 10 {
				keys = append(keys, c.Key)
			}
			for i, at := range looks {
				if c.Start <= at && c.End() > at {
					live[i]++
				}
			}
		}
		for i, n := range live {
			want := float64(active)
			if empty {
				want *= WebServer.AliveFor(looks[i]) / WebServer.Mean()
			}
			near(t, "live connections", n, want)
		}
		other := NewPoisson(seed, active, WebServer)
		var again []uint64
		for len(again) < 10 {
			if c, _ := other.Next(); c.Start > 0 {
				again = append(again, c.Key)
			}
		}
		if !slices.Equal(keys, again) {
			t.Errorf("empty %v: keys %x, otherwise %x", empty, keys, again)
		}
	}
}

func TestUpdates(t *testing.T) {
	seed := soak.Seed(t)
	for _, u := range []Updates{{1.5, false}, {80, false}, {80, true}, {0, false}} {
		const minutes = 600
		updates := u.Draw(sim.Stream(seed, "updates"), minutes*60*sim.Second)
		want := u.PerMinute * minutes
		if u.Even {
			want-- // the end is not in it
		}
		if off := math.Abs(float64(len(updates)) - want); off > 5*math.Sqrt(want) || u.Even && off > 0 {
			t.Errorf("seed %d, %+v: %d updates, want %.0f", seed, u, len(updates), want)
		}
		size, last := 0, sim.Time(0)
		for _, x := range updates {
			if x.Add {
				size++
			} else {
				size--
			}
			if size < -1 || size > 1 || x.At < last || x.At <= 0 {
				t.Fatalf("seed %d, %+v: pool is %+d at %d, after %d", seed, u, size, x.At, last)
			}
			last = x.At
		}
	}
	for _, bad := range []float64{-1, MaxPerMinute + 1, math.NaN()} {
		if (Updates{PerMinute: bad}).Check() == nil {
			t.Errorf("%v updates a minute are allowed", bad)
		}
	}
}

// A distribution of durations is one, too.
var _ Service = WebServer

// Services have the mean and the deviation that they say.
func TestServices(t *testing.T) {
	seed := soak.Seed(t)
	const ms = float64(sim.Millisecond)
	for _, c := range []struct {
		s         Service
		mean, dev float64 // ms
	}{
		{Constant(7 * sim.Millisecond), 7, 0},
		{Gamma{7 * sim.Millisecond, 0}, 7, 0},
		{Gamma{7 * sim.Millisecond, .35}, 7, 2.45},
		{Gamma{7 * sim.Millisecond, 1}, 7, 7},
		{Gamma{7 * sim.Millisecond, 2}, 7, 14},
		{Gaussian{20 * sim.Millisecond, 3 * sim.Millisecond}, 20, 3},
		{Figure8, 53.6, math.Sqrt(.9*(16+2) + .1*(250_000+250) - 53.6*53.6)},
	} {
		r := sim.Stream(seed, "service")
		const draws = 200_000
		sum, squares := 0.0, 0.0
		for range draws {
			x := float64(c.s.Draw(r)) / ms
			if x <= 0 {
				t.Fatalf("seed %d: %+v draws %v ms", seed, c.s, x)
			}
			sum += x
			squares += (x - c.mean) * (x - c.mean)
		}
		if m := c.s.Mean() / ms; math.Abs(m-c.mean) > 1e-5*c.mean {
			t.Errorf("%+v says its mean is %v, want %v", c.s, m, c.mean)
		}
		if m, off := sum/draws, 6*c.dev/math.Sqrt(draws); math.Abs(m-c.mean) > off+1e-5*c.mean {
			t.Errorf("seed %d: %+v: mean %v, want %v", seed, c.s, m, c.mean)
		}
		if d := math.Sqrt(squares / draws); math.Abs(d-c.dev) > .03*c.dev {
			t.Errorf("seed %d: %+v: deviation %v, want %v", seed, c.s, d, c.dev)
		}
	}
}

// Cheetah's figure 9: the rate's corners, and as many arrivals as its area.
func TestSinusoid(t *testing.T) {
	s := Sinusoid{Peak: 2500}
	for second, want := range map[sim.Time]float64{0: 1500, 20: 1500, 35: 2500, 50: 1500, 90: 1500} {
		if got := s.At(second * sim.Second); math.Abs(got-want) > 1e-6 {
			t.Errorf("rate at %d s: %v, want %v", second, got, want)
		}
	}
	seed := soak.Seed(t)
	r := sim.Stream(seed, "arrivals")
	before, between := 0.0, 0.0
	for at := s.Next(r, 0); at < 50*sim.Second; at = s.Next(r, at) {
		if at < 20*sim.Second {
			before++
		} else {
			between++
		}
	}
	t.Logf("seed %d", seed)
	near(t, "before the sinusoid", before, 20*1500)
	near(t, "within the sinusoid", between, 30*2000)
}

func TestFlood(t *testing.T) {
	f := Flood{PerSecond: 1e6}
	if n := f.Sent(2500 * sim.Millisecond); n != 2_500_000 || f.Sent(-1) != 0 || f.At(n) != 2500*sim.Millisecond {
		t.Errorf("%d sent, the last at %d", n, f.At(n))
	}
	keys := map[uint64]bool{}
	for seed := range uint64(3) {
		for n := range uint64(1000) {
			keys[FloodKey(seed, n)] = true
		}
	}
	if len(keys) != 3000 {
		t.Errorf("%d keys of 3,000 SYNs", len(keys))
	}
	if (Flood{-1}).Check() == nil || (Flood{MaxFlood * 2}).Check() == nil || (Flood{}).Check() != nil {
		t.Error("limits")
	}
}

// Zipf's shares, exactly: those of a table's cells sum up to what was asked.
func TestAliasIsExact(t *testing.T) {
	a := NewZipf(1000, 1)
	shares := make([]float64, len(a))
	for i, c := range a {
		keep := float64(c.keep) / (1 << 32)
		shares[i] += keep
		shares[c.other] += 1 - keep
	}
	sum := 0.0
	for i := range shares {
		sum += 1 / float64(i+1)
	}
	for i, s := range shares {
		if want := 1000 / float64(i+1) / sum; math.Abs(s-want) > 1e-6 {
			t.Errorf("rank %d: %v, want %v", i, s, want)
		}
	}
}

func TestList(t *testing.T) {
	for _, e := range List() {
		if e.Kind == "" || e.About == "" || e.Use == "" || e.Source == "" && e.Kind != "record" {
			t.Errorf("%+v says too little", e)
		}
		if found, err := Describe(e.Name); err != nil || found.About != e.About {
			t.Errorf("%s: %v, %v", e.Name, found, err)
		}
	}
}

// Rates next to nothing have nothing happen, rather than everything at once.
func TestRarest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, rate := range []float64{1e-9, 1e-12, 1e-300} {
		for _, even := range []bool{false, true} {
			if n := len((Updates{rate, even}).Draw(r, 1000*sim.Second)); n > 0 {
				t.Errorf("%g updates a minute, even %v: %d in 1,000 s", rate, even, n)
			}
		}
		if at := (Sinusoid{rate}).Next(r, 0); at < 1000*sim.Second {
			t.Errorf("%g requests a second: one after %d ns", rate, at)
		}
	}
	if d := (Gamma{7 * sim.Millisecond, 1e-300}).Draw(r); d != 7*sim.Millisecond {
		t.Errorf("next to no variation: %d ns", d)
	}
	if at := Exponential(r, math.Inf(1)); at != Never {
		t.Errorf("an infinite mean: %d", at)
	}
}
