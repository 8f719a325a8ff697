package pcc

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// A balancer that joins or leaves moves nearly all connections under modulo,
// and its share under resilient ECMP.
func TestECMP(t *testing.T) {
	for _, c := range []struct {
		ecmp         ECMP
		leave, join_ float64
	}{{Modulo, 0.9, 0.9}, {Resilient, 0.1, 0.1}} {
		f, err := NewFront(4, FrontOptions{Balancers: 10, ECMP: c.ecmp})
		if err != nil {
			t.Fatal(err)
		}
		f.settle()
		route := func() (via []uint16) {
			for n := range uint64(20_000) {
				via = append(via, f.route(sim.SplitMix(n)))
			}
			return via
		}
		moved := func(a, b []uint16) (share float64) {
			for i := range a {
				if a[i] != b[i] {
					share += 1 / float64(len(a))
				}
			}
			return share
		}
		before := route()
		gone, ok, err := f.leave()
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		f.settle()
		after := route()
		if m := moved(before, after); math.Abs(m-c.leave) > 0.03 {
			t.Errorf("%s: one of ten leaves: %.3f moved", c.ecmp, m)
		}
		for i, via := range after {
			if via == gone || c.ecmp == Resilient && before[i] != gone && via != before[i] {
				t.Fatalf("%s: a connection from %d to %d, %d is gone", c.ecmp, before[i], via, gone)
			}
		}
		if _, err := f.join(0); err != nil {
			t.Fatal(err)
		}
		f.settle()
		if m := moved(after, route()); math.Abs(m-c.join_) > 0.03 {
			t.Errorf("%s: a tenth joins: %.3f moved", c.ecmp, m)
		}
	}
}

// watcher is a scheme that looks at what balancers hold.
type watcher struct {
	recorder
	mixed, same int
	oldest      int
	t           *testing.T
}

func (w *watcher) Forget(oldest int) { w.oldest = oldest }
func (w *watcher) Serve(c *Conns) {
	w.recorder.Serve(c)
	for i := range c.Key {
		if held := c.Held(i); held < w.oldest || held > c.Newest || held > len(w.changes) {
			w.t.Fatalf("a balancer holds version %d: the oldest is %d, the newest held %d, of all %d", held, w.oldest, c.Newest, len(w.changes))
		}
	}
	if c.Version == Mixed {
		w.mixed++
	} else {
		w.same++
	}
}

// Balancers that are stale hold different versions for a while, none that was
// forgotten.
func TestStale(t *testing.T) {
	b := small()
	front, err := NewFront(1, FrontOptions{Balancers: 6, ECMP: Modulo, Stale: 4 * sim.Second,
		Churn: workload.Updates{PerMinute: 20}.Draw(sim.Stream(1, "balancer churn"), b.end())})
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{t: t}
	r := b.run(1, workload.Updates{PerMinute: 30})
	r.Contenders = []Contender{{"watcher", w, front}}
	tally, err := r.Play(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if w.mixed == 0 || w.same == 0 || w.oldest == 0 {
		t.Errorf("%d calls with different versions, %d with the same, oldest %d", w.mixed, w.same, w.oldest)
	}
	if s := tally.Schemes[0]; s.Broken != 0 || s.Lookups == 0 {
		t.Errorf("%+v", s)
	}
}

// listed is connections one by one.
type listed []workload.Connection

func (l *listed) Next() (c workload.Connection, ok bool) {
	if len(*l) > 0 {
		c, ok, *l = (*l)[0], true, (*l)[1:]
	}
	return c, ok
}

// Of five connections that hash breaks, two begin in the time that counts; the
// end of one of them lies behind it.
func TestWholeLives(t *testing.T) {
	const s = sim.Second
	all := listed{{Start: -s, Lifetime: 30 * s}, {Start: 5 * s, Lifetime: 30 * s}, {Start: 12 * s, Lifetime: 5 * s}, {Start: 14 * s, Lifetime: 30 * s}, {Start: 21 * s, Lifetime: 60 * s}}
	for from, want := range map[sim.Time]int64{0: 5, 10 * s: 2} {
		arrivals := slices.Clone(all)
		for i := range arrivals {
			arrivals[i].Key = 5 // of six servers another than of five, four
		}
		scheme, err := New(Hash, Setup{Working: 6, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := Run{
			Arrivals: &arrivals, Working: 6, End: 60 * s, From: from, Until: 2 * from, Contenders: []Contender{{Hash, scheme, nil}},
			Changes: []Change{{15 * s, 0, false}, {25 * s, 1, false}},
		}
		tally, err := r.Play(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tally.Connections != want || tally.Schemes[0].Broken != want {
			t.Errorf("from %v: %d connections, %d broken, want %d", from, tally.Connections, tally.Schemes[0].Broken, want)
		}
	}
}

// Connections come, live and end as the arrivals say.
func TestPopulation(t *testing.T) {
	b := small()
	r := b.run(2, workload.Updates{PerMinute: 60})
	r.Contenders = []Contender{{"recorder", &recorder{}, nil}}
	tally, err := r.Play(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// Five standard deviations of a Poisson number, some more for its drift.
	if math.Abs(tally.Active-2000) > 8*math.Sqrt(2000) {
		t.Errorf("%.0f live connections, want about 2000", tally.Active)
	}
	mean := b.Lifetimes.Mean() / float64(sim.Second)
	if want := 2000 / mean * float64(b.Seconds); math.Abs(float64(tally.Connections)-want) > 8*math.Sqrt(want) {
		t.Errorf("%d connections, want about %.0f", tally.Connections, want)
	}
}
