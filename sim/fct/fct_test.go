package fct

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// little is a scenario of a second or so.
func little() *Options {
	o := New()
	o.Servers, o.Sizes, o.Cores, o.Rates = 16, []int{8, 16}, 8, []float64{120, 180}
	o.Seconds, o.Runs = 5, 2
	return o
}

// common has so many workers and one seed.
func common(workers int) sim.Common { return sim.Common{Seed: 1, Seeds: 1, Workers: workers} }

func TestSameBytes(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 1, 2} {
		r, err := little().Run(context.Background(), common(workers))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !slices.Equal(first, b) {
			t.Errorf("%d workers: other bytes than the first run", workers)
		}
	}
}

// What a policy does changes neither arrivals nor what another policy sees.
func TestPoliciesShareRequests(t *testing.T) {
	alone, all := little(), little()
	alone.Policies = []string{policy.P2C}
	curve := func(o *Options) []sim.Point {
		r, err := o.Run(context.Background(), common(2))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Figures[0].Series {
			if s.Name == policy.P2C {
				return s.Points
			}
		}
		t.Fatal("no p2c")
		return nil
	}
	if a, b := curve(alone), curve(all); !slices.Equal(a, b) {
		t.Errorf("p2c alone %v, beside all others %v", a, b)
	}
}

// The paper's orderings (Cheetah, §5.2), at a small scale.
func TestOrder(t *testing.T) {
	o := little()
	o.Seconds, o.Runs, o.Delay = 15, 3, 300*time.Millisecond
	o.Policies = []string{policy.RR, nameHash, policy.P2C, policy.HashBit, nameLeastLoaded, policy.AWRR, policy.LeastReported}
	r, err := o.Run(context.Background(), common(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		figure string
		x      float64
		order  []string // better first
	}{
		{byLoad, 180, []string{nameLeastLoaded, policy.P2C, policy.RR, nameHash}},
		{byLoad, 180, []string{policy.HashBit, policy.RR}},
		{bySize, 16, []string{policy.RR, policy.P2C, nameHash, policy.LeastReported}},
		{byBimodal, 16, []string{nameLeastLoaded, policy.P2C, policy.RR, nameHash, policy.LeastReported}},
		{byBimodal, 16, []string{policy.AWRR, policy.RR}},
	} {
		i := slices.IndexFunc(r.Figures, func(f sim.Figure) bool { return f.Name == x.figure })
		before := 0.0
		for _, name := range x.order {
			y, ok := valueAt(r.Figures[i].Series, name, x.x)
			if !ok || y < before {
				t.Errorf("%s at %g: %s has %g (%v), what is better in %v has %g", x.figure, x.x, name, y, ok, x.order, before)
			}
			before = y
		}
	}
}

// lone is a run of one policy over a long time, so that queues are in the
// steady state, and the 99th percentile in multiples of the mean work.
func lone(t *testing.T, service workload.Service, rate float64) float64 {
	set := little().alone(1)
	set.end = 4000 * sim.Second
	q := drawRequests(1, rate, service, 4, set.end)
	o, err := play(context.Background(), nameHash, 1, set, q)
	if err != nil {
		t.Fatal(err)
	}
	return float64(o.p99) / service.Mean()
}

// One server against theory. M/M/1: time in it is exponential with the mean
// work/(1-ρ). M/D/1: Erlang's series for the wait.
func TestQueueTheory(t *testing.T) {
	const rho, work = 0.7, 10 * sim.Millisecond
	if got, want := lone(t, workload.Gamma{Time: work, Variation: 1}, 70), math.Log(100)/(1-rho); math.Abs(got/want-1) > 0.05 {
		t.Errorf("M/M/1: 99th percentile %.2f times the work, theory %.2f", got, want)
	}
	if got, want := lone(t, workload.Constant(work), 70), 1+waitMD1(rho, 0.99); math.Abs(got/want-1) > 0.05 {
		t.Errorf("M/D/1: 99th percentile %.2f times the work, theory %.2f", got, want)
	}
}

// waitMD1 is a quantile of the wait in M/D/1 in units of the work:
// P(W ≤ t) = (1−ρ) Σ_{k≤t} (ρ(k−t))^k e^{−ρ(k−t)} / k! (Erlang).
func waitMD1(rho, share float64) float64 {
	for t := 0.0; ; t += 0.01 {
		sum, factorial := 0.0, 1.0
		for k := 0; float64(k) <= t; k++ {
			if k > 0 {
				factorial *= float64(k)
			}
			x := rho * (float64(k) - t)
			sum += math.Pow(x, float64(k)) * math.Exp(-x) / factorial
		}
		if (1-rho)*sum >= share {
			return t
		}
	}
}

// Two servers on a core: each is slowed while the other works, and no work is
// lost.
func TestSiblings(t *testing.T) {
	work := []sim.Time{100, 100}
	s := newServers(2, 1, 0.5, 2)
	s.add(0, 0, 0, work)
	s.add(50, 1, 1, work) // 50 left of the first: at half speed until 150
	if at, i := s.first(); at != 150 || i != 0 {
		t.Fatalf("server %d ends at %d, want 0 at 150", i, at)
	}
	s.finish(150, 0, work) // the second has done 50, and is alone now
	if at, i := s.first(); at != 200 || i != 1 {
		t.Fatalf("server %d ends at %d, want 1 at 200", i, at)
	}
	s.finish(200, 1, work)
	if a, b := s.busyUntil(200, 0), s.busyUntil(200, 1); a != 150 || b != 150 {
		t.Errorf("busy for %d and %d, want 150 both", a, b)
	}
}

// Reports come in turns, each with what its server did since its last, and
// late by their delay.
func TestReporter(t *testing.T) {
	s := newServers(2, 2, 1, 1)
	s.add(5, 1, 0, []sim.Time{1000})
	r := newReporter(10, 25, 2)
	heard := &listener{}
	var at []sim.Time
	for len(heard.loads) < 4 {
		now := r.next()
		before := len(heard.loads)
		r.take(s, heard)
		if len(heard.loads) > before {
			at = append(at, now)
		}
	}
	if want := []float64{0, 10.0 / 15, 0, 1}; !slices.Equal(heard.loads, want) {
		t.Errorf("loads %v, want %v", heard.loads, want)
	}
	if want := []sim.Time{35, 40, 45, 50}; !slices.Equal(at, want) {
		t.Errorf("at %v, want %v", at, want)
	}
}

type listener struct {
	blind
	loads []float64
}

func (l *listener) choose(sim.Time, int) int     { return 0 }
func (l *listener) reported(_ int, load float64) { l.loads = append(l.loads, load) }

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--figures 5: must be of 6, 7, 8":                func(o *Options) { o.Figures = []int{5} },
		"--policies best: must be of rr, hash":           func(o *Options) { o.Policies = []string{"best"} },
		"--rates -3: must be 0.1 to 10000":               func(o *Options) { o.Rates = []float64{100, -3} },
		"--rate NaN: must be":                            func(o *Options) { o.Rate = math.NaN() },
		"--slowed 0: must be 0.01 to 1":                  func(o *Options) { o.Slowed = 0 },
		"--cores 4: 16 servers of --sizes are more than": func(o *Options) { o.Cores = 4 },
		"--work -1ms: must be 1µs to 5s":                 func(o *Options) { o.Work = -time.Millisecond },
		"--servers, --sizes 1: must be 2 to 4096":        func(o *Options) { o.Sizes = []int{1} },
		"--seconds 3600: a run would have":               func(o *Options) { o.Seconds, o.Servers, o.Rates = 3600, 4096, []float64{1000} },
		"--sizes 16: is given twice":                     func(o *Options) { o.Sizes = []int{16, 8, 16} },
		"--sizes: none is given":                         func(o *Options) { o.Sizes = nil },
		"--window 6s: must be 1ms to 5s":                 func(o *Options) { o.Window = 6 * time.Second },
	} {
		o := little()
		change(o)
		err := o.Check()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line that begins with %q", err, want)
		}
	}
	if err := New().Check(); err != nil {
		t.Error(err)
	}
}

// A run in which nothing ends shows nothing.
func TestNothingToSee(t *testing.T) {
	o := little()
	o.Figures, o.Rates, o.Work, o.Variation, o.Seconds = []int{6}, []float64{0.2}, time.Second, 0, 1
	o.Window = time.Second
	if _, err := o.Run(context.Background(), common(1)); err == nil || !strings.Contains(err.Error(), "nothing could have shown a difference") {
		t.Errorf("error %v", err)
	}
}

// The authors' results stand beside what the paper states, and are held against
// what was fitted to them, not against another experiment.
func TestOnlyThePapersParameters(t *testing.T) {
	for _, x := range []struct {
		change          func(*Options)
		stated, checked bool
	}{
		{func(*Options) {}, true, true},
		{func(o *Options) { o.Variation = 1.2 }, true, false},
		{func(o *Options) { o.Servers = 8 }, false, false},
		{func(o *Options) { o.Rates = []float64{50} }, false, false},
		{func(o *Options) { o.Seconds = 5 }, false, false},
	} {
		o := New()
		o.Figures, o.Policies, o.Rates, o.Runs = []int{6}, []string{policy.RR, nameHash}, []float64{100}, 1
		x.change(o)
		r, err := o.Run(context.Background(), common(2))
		if err != nil {
			t.Fatal(err)
		}
		stated := slices.ContainsFunc(r.Figures[0].Series, func(s sim.Series) bool { return s.By == sim.ByData })
		if checked := len(r.Checks) > 0; stated != x.stated || checked != x.checked {
			t.Errorf("%+v: authors' points %v, checks %v; want %v and %v", r.Parameters, stated, checked, x.stated, x.checked)
		}
	}
}

// Policies that hear no reports are drawn as they are in figure 8.
func TestDeaf(t *testing.T) {
	o := little()
	o.Figures, o.Policies = []int{8}, []string{nameHash, policy.LeastReported}
	r, err := o.Run(context.Background(), common(2))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := valueAt(seriesOf(r.Figures, byBimodal), nameHash, 16)
	for _, name := range []string{byReports, byDelay} {
		for _, p := range seriesOf(r.Figures, name)[0].Points {
			if p.Y.Mean != want {
				t.Errorf("%s at %g: %g ms, in figure 8 %g", name, p.X, p.Y.Mean, want)
			}
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := little().Run(ctx, common(1)); err == nil {
		t.Error("no error")
	}
}

func BenchmarkRun(b *testing.B) {
	o := New()
	set := o.alone(64)
	q := drawRequests(1, 64*150, workload.Gamma{Time: sim.Time(o.Work), Variation: o.Variation}, 4, set.end)
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := play(context.Background(), name, 1, set, q); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(q.at)), "ns/request")
		})
	}
}
