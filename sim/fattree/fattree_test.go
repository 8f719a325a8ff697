package fattree

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/simtest"
	"github.com/fairlead/fairlead/soak"
)

// small is the experiment in a fat-tree of 16 hosts, and one of 54.
func small() *Options {
	o := New()
	o.K, o.Larger, o.Subflows, o.Connections = 4, []int{6}, []int{1, 2}, []int{2}
	return o
}

func run(t *testing.T, s sim.Scenario, c sim.Common) *sim.Result {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Links by numbers are those of the fabric, and every path leads along them
// from its host to the other; no two are the same.
func TestTree(t *testing.T) {
	for _, k := range []int{4, 6, 8} {
		fabric, err := topology.FatTree(k)
		if err != nil {
			t.Fatal(err)
		}
		tr := newTree(k)
		if 2*len(fabric.Links) != tr.links() {
			t.Fatalf("k %d: %d links, want %d", k, tr.links(), 2*len(fabric.Links))
		}
		for from := range tr.hosts {
			for to := range tr.hosts {
				if from != to {
					checkPaths(t, tr, fabric, from, to)
				}
			}
		}
	}
}

func checkPaths(t *testing.T, tr tree, fabric *topology.Fabric, from, to int) {
	t.Helper()
	seen := map[string]bool{}
	for n := range tr.paths(from, to) {
		at := from
		var name strings.Builder
		for _, l := range tr.path(from, to, n, nil) {
			ends := fabric.Links[l/2].Ends
			if l%2 == 1 {
				ends[0], ends[1] = ends[1], ends[0]
			}
			if ends[0].Node != at {
				t.Fatalf("%d to %d, path %d: link %d does not begin at %s", from, to, n, l, fabric.Nodes[at].Name)
			}
			at = ends[1].Node
			name.WriteString(fabric.Nodes[at].Name + " ")
		}
		if at != to || seen[name.String()] {
			t.Fatalf("%d to %d, path %d: ends at %s, or is there twice", from, to, n, fabric.Nodes[at].Name)
		}
		seen[name.String()] = true
	}
}

func TestPermutation(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		hosts := 2 + random.IntN(20)
		from, to := map[int]bool{}, map[int]bool{}
		for _, c := range permutation(hosts, random) {
			if c.from == c.to || from[c.from] || to[c.to] {
				t.Fatalf("seed %d: %d hosts: %v", seed, hosts, c)
			}
			from[c.from], to[c.to] = true, true
		}
		if len(from) != hosts {
			t.Fatalf("seed %d: %d of %d hosts send", seed, len(from), hosts)
		}
	}
}

// Three links by hand: 0 has three subflows, 1 two, 2 one of its own.
func TestMaxMinByHand(t *testing.T) {
	all := []subflow{{0, []int32{0}}, {0, []int32{0, 1}}, {1, []int32{0}}, {2, []int32{1, 2}}}
	want := []float64{1. / 3, 1. / 3, 1. / 3, 2. / 3}
	for i, r := range maxMin(3, all) {
		if math.Abs(r-want[i]) > 1e-12 {
			t.Errorf("subflow %d: %g, want %g", i, r, want[i])
		}
	}
	if sums := throughputs(3, all, want); math.Abs(sums[0]-2./3) > 1e-12 || sums[2] != want[3] {
		t.Errorf("connections: %v", sums)
	}
}

// Max-min fair: no link carries more than 1, and every subflow has a link that
// is full and on which nobody gets more.
func TestMaxMin(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	tr := newTree(4)
	for range 100 {
		all := tr.hashed(overloaded(tr.hosts, 1+random.IntN(3), random), 1+random.IntN(3), random)
		rates := maxMin(tr.links(), all)
		carried, most := make([]float64, tr.links()), make([]float64, tr.links())
		for i, s := range all {
			for _, l := range s.links {
				carried[l] += rates[i]
				most[l] = max(most[l], rates[i])
			}
		}
		if c := slices.Max(carried); c > 1+1e-9 {
			t.Fatalf("seed %d: a link carries %g", seed, c)
		}
		for i, s := range all {
			if !slices.ContainsFunc(s.links, func(l int32) bool { return carried[l] > 1-1e-9 && rates[i] > most[l]-1e-9 }) {
				t.Fatalf("seed %d: subflow %d could get more than %g", seed, i, rates[i])
			}
		}
	}
}

// After every round, the scheduler's loads are those of the paths.
func TestSchedulerCounts(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	tr := newTree(6)
	s := newScheduler(tr, random)
	s.schedule(permutation(tr.hosts, random), 3, 4, func(round int, placed []subflow) {
		loads := make([]int32, tr.links())
		for _, p := range placed {
			for _, l := range p.links {
				loads[l]++
			}
		}
		if !slices.Equal(loads, s.loads) {
			t.Fatalf("seed %d: round %d: loads differ from the paths'", seed, round)
		}
	})
}

// The same options and seeds give the same bytes, on one core and on two.
func TestSameBytes(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 1, 2} {
		b, err := json.Marshal(run(t, small(), sim.Common{Seed: 3, Seeds: 2, Workers: workers}))
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

// What one number of subflows finds does not depend on the others.
func TestSubflowsApart(t *testing.T) {
	both := run(t, small(), sim.Common{Seed: 5, Seeds: 1})
	alone := small()
	alone.Subflows = []int{2}
	one := run(t, alone, sim.Common{Seed: 5, Seeds: 1})
	for i, s := range one.Figures[0].Series {
		if got := both.Figures[0].Series[i].Points[1]; got != s.Points[0] {
			t.Errorf("%s: %v beside others, %v alone", s.Name, got, s.Points[0])
		}
	}
}

// The order of the curves: the scheduler is better than a hash, again is better
// than once, more subflows are better than fewer.
func TestOrder(t *testing.T) {
	o := small()
	o.K, o.Larger = 6, nil
	r := run(t, o, sim.Common{Seed: 1, Seeds: 10})
	at := func(name string, i int) float64 {
		for _, s := range r.Figures[0].Series {
			if s.Name == name {
				return s.Points[i].Y.Mean
			}
		}
		t.Fatalf("no series %s", name)
		return 0
	}
	for i := range 2 {
		if !(at(nameECMP, i) < at(nameOnce, i) && at(nameOnce, i) < at(nameCFLB, i) && at(nameCFLB, i) <= 100+1e-9) {
			t.Errorf("%d subflows: ecmp %g, once %g, cflb %g", i+1, at(nameECMP, i), at(nameOnce, i), at(nameCFLB, i))
		}
	}
	for _, name := range []string{nameECMP, nameOnce, nameCFLB} {
		if at(name, 0) >= at(name, 1) {
			t.Errorf("%s: 1 subflow %g, 2 subflows %g", name, at(name, 0), at(name, 1))
		}
	}
}

func bad(t *testing.T, s sim.Scenario, arg string) {
	t.Helper()
	flag, _, _ := strings.Cut(arg, "=")
	if err := simtest.Check(s, arg); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v", arg, err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, arg := range []string{
		"--k=2", "--k=7", "--k=66", "--larger=8", "--larger=16,16", "--larger=5", "--subflows=0", "--subflows=1,1", "--subflows=65",
		"--connections=0", "--connections=99", "--rounds=-1", "--rounds=1001",
	} {
		bad(t, New(), arg)
	}
	o := New()
	o.K = 64
	bad(t, o, "--connections=64")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := small().Run(ctx, sim.Common{Seed: 1, Seeds: 1000}); err == nil {
		t.Error("no error")
	}
}

// TestLack: where nothing is left to the optimum, the demand is met.
func TestLack(t *testing.T) {
	for _, c := range []struct {
		hash, ours float64
		checks     int
		holds      bool
	}{
		{80, 100, 1, true}, {80, 100 + 1e-13, 1, true}, {80, 99, 1, true}, {80, 85, 1, false},
		{100, 80, 1, false}, {100, 100, 0, false},
	} {
		got := lackChecks("", c.hash, c.ours)
		if len(got) != c.checks || len(got) == 1 && (got[0].Holds != c.holds || math.IsInf(got[0].Ours, 0)) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
