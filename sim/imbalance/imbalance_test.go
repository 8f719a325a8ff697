package imbalance

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/simtest"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/soak"
)

// small is the experiment with few servers and few connections a server more.
func small() *Options {
	o := New()
	o.Servers, o.Active, o.Seconds = 40, []int{2000, 8000}, 100
	return o
}

func runSmall(t *testing.T, o *Options, c sim.Common) *sim.Result {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := o.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Levels agree with counting.
func TestLevels(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	const servers = 7
	l := newLevels(servers)
	open := make([]int32, servers)
	for step := range 20_000 {
		s := uint16(r.IntN(servers))
		if open[s] > 0 && r.IntN(40) < int(open[s]) {
			open[s]--
			l.closed(s)
		} else {
			open[s]++
			l.opened(s)
		}
		var idlest []uint16
		for i, n := range open {
			if n == slices.Min(open) {
				idlest = append(idlest, uint16(i))
			}
		}
		got := slices.Sorted(slices.Values(l.idlest()))
		if !slices.Equal(l.open, open) || l.most() != slices.Max(open) || !slices.Equal(got, idlest) {
			t.Fatalf("seed %d, step %d: %v: most %d, idlest %v", seed, step, open, l.most(), got)
		}
	}
}

// sequence is arrivals from a list.
type sequence []workload.Connection

func (s *sequence) Next() (c workload.Connection, ok bool) {
	if len(*s) == 0 {
		return c, false
	}
	c, *s = (*s)[0], (*s)[1:]
	return c, true
}

// byKey places each connection where its key says.
func byKey(key uint64, _ sim.Time) uint16 { return uint16(key) }

// A run small enough to be counted by hand:
//
//	time      0    2    4    6    8   10   12
//	server 0  1    2    2    1    1    0    0
//	server 1  0    0    2    2    0    0    0
func TestReplay(t *testing.T) {
	a := sequence{{Start: -5, Lifetime: 11}, {Start: 2, Lifetime: 8}, {Start: 4, Lifetime: 4, Key: 1}, {Start: 4, Lifetime: 4, Key: 1}}
	c := newContender("by hand", byKey, newLevels(2))
	if n, err := replay(context.Background(), &a, []*contender{c}, []sim.Time{3, 12}); err != nil || n != 4 {
		t.Fatal(n, err)
	}
	// most/mean - 1: 1 until 4, 0 until 6, 2/1.5-1 until 8, 1 until 10
	want := []sums{{time: 3, excess: 3, most: 4, active: 4}, {time: 10, excess: 4 + 2*(2/1.5-1) + 2, most: 2 + 4 + 4 + 4 + 2, active: 2 + 4 + 8 + 6 + 2}}
	for i, w := range want {
		if d := c.upTo[i].minus(w); d.time != 0 || d.most != 0 || d.active != 0 || max(d.excess, -d.excess) > 1e-9 {
			t.Errorf("up to bound %d: %+v, want %+v", i, c.upTo[i], w)
		}
	}
}

// The same options and seeds give the same bytes, on one core and on two.
func TestSameBytes(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 1, 2} {
		b, err := json.Marshal(runSmall(t, small(), sim.Common{Seed: 3, Seeds: 2, Workers: workers}))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !bytes.Equal(b, first) {
			t.Errorf("%d workers: other bytes", workers)
		}
	}
}

// What one scheme finds does not depend on which others run beside it.
func TestSchemesApart(t *testing.T) {
	all := runSmall(t, small(), sim.Common{Seed: 5, Seeds: 1})
	for _, name := range small().Schemes {
		o := small()
		o.Schemes = []string{name}
		alone := runSmall(t, o, sim.Common{Seed: 5, Seeds: 1}).Figures[0].Series[0]
		for _, s := range all.Figures[0].Series {
			if s.Name == name && !slices.Equal(s.Points, alone.Points) {
				t.Errorf("%s: %v beside others, %v alone", name, s.Points, alone.Points)
			}
		}
	}
}

// figure of a result; the test ends without it.
func figure(t *testing.T, r *sim.Result, name string) sim.Figure {
	t.Helper()
	i := slices.IndexFunc(r.Figures, func(f sim.Figure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no figure %s", name)
	}
	return r.Figures[i]
}

// A run that is no longer than the longest lifetime (150 s, 602 s) has no
// steady state, and none is shown.
func TestSteady(t *testing.T) {
	for _, x := range []struct {
		lifetimes *workload.Distribution
		seconds   int
		steady    bool
	}{{workload.WebServer, 100, false}, {workload.WebServer, 200, true}, {workload.Hadoop, 500, false}, {workload.Hadoop, 700, true}} {
		o := small()
		o.Lifetimes.Distribution, o.Seconds, o.Active, o.Schemes = x.lifetimes, x.seconds, []int{200}, []string{nameHash, "rr"}
		r := runSmall(t, o, sim.Common{Seed: 1, Seeds: 1})
		steady := slices.ContainsFunc(r.Figures, func(f sim.Figure) bool { return f.Name == "steady" })
		said := strings.Contains(figure(t, r, "excess").Note, "give more --seconds")
		if bars := len(figure(t, r, "ratios").Series); steady != x.steady || said == steady || (bars == 2) != steady {
			t.Errorf("%s, %d s: figure of the steady state %v, a word about it %v, %d series of ratios", x.lifetimes.Name, x.seconds, steady, said, bars)
		}
	}
}

// The order of the paper's curves at a small scale, and what must be so at
// any: least-loaded is within two connections of the mean.
func TestOrder(t *testing.T) {
	r := runSmall(t, small(), sim.Common{Seed: 1, Seeds: 8})
	for _, p := range figure(t, r, "ratios").Series[0].Points {
		if p.Y.Mean <= 1 {
			t.Errorf("%s: %v", p.Label, p.Y)
		}
	}
	for _, s := range figure(t, r, "above").Series {
		for _, p := range s.Points {
			if s.Name == nameLeastLoaded && p.Y.Max > 2 {
				t.Errorf("least-loaded has %v connections above the mean", p.Y)
			}
		}
	}
}

func TestFlows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.csv")
	head := "start,duration,source,source_port,destination,destination_port\n"
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(head+s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := New()
	o.Servers = 2
	set := func() error { return o.Flows.Set(file) }
	write("0,10,192.0.2.1,1,203.0.113.1,443\n1,10,192.0.2.2,1,203.0.113.1,443\n2,9,192.0.2.3,1,203.0.113.1,443\n3,7,192.0.2.4,1,203.0.113.1,443\n")
	if err := set(); err != nil {
		t.Fatal(err)
	}
	r := runSmall(t, o, sim.Common{Seed: 1, Seeds: 1})
	if n := r.Samples[0].Count; n != 4 || len(r.Checks) != 0 {
		t.Errorf("%d connections, checks %v", n, r.Checks)
	}
	write("0,0,192.0.2.1,1,203.0.113.1,443\n")
	if err := set(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "nothing could have shown a difference") {
		t.Errorf("connections that take no time: %v", err)
	}
	write("0,1,192.0.2.1,,203.0.113.1,443\n")
	if err := set(); err == nil || !strings.HasPrefix(err.Error(), file+":2: column source_port is empty") {
		t.Errorf("a hole: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, args := range []string{
		"--servers=1", "--servers=20000", "--active=0", "--active=7,7", "--active=20000000", "--seconds=0", "--points=0",
		"--seconds=1000000",
		"--report=1us", "--schemes=md5", "--schemes=rr,rr",
	} {
		o := New()
		flag, _, _ := strings.Cut(args, "=")
		if err := simtest.Check(o, args); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := New().Run(ctx, sim.Common{Seed: 1, Seeds: 1}); err == nil {
		t.Error("no error")
	}
}
