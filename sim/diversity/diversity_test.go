package diversity

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/simtest"
	"github.com/fairlead/fairlead/soak"
)

// small are models of 16 servers or so.
func small() *Options {
	o := New()
	o.FatTree, o.VL2, o.BCube, o.LeafSpine, o.Jellyfish = 4, []int{4, 6, 3}, []int{3, 2}, []int{4, 3, 4}, []int{12, 3, 2}
	return o
}

func countOf(t *testing.T, f *topology.Fabric, err error) counts {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newGraph(f).count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Counts that follow from the models' definitions.
func TestFormulae(t *testing.T) {
	f, err := topology.FatTree(6)
	c := countOf(t, f, err)
	// 54 hosts: 2 others at the same switch, 6 in the same pod, 45 elsewhere.
	if want := map[uint64]int64{1: 54 * 2, 3: 54 * 6, 9: 54 * 45}; !maps.Equal(c.paths, want) {
		t.Errorf("fat-tree: %v, want %v", c.paths, want)
	}
	f, err = topology.BCube(3, 2)
	c = countOf(t, f, err)
	// 27 servers: 6 others differ in one digit, 12 in two, 8 in three.
	if want := map[uint64]int64{1: 27 * 6, 2: 27 * 12, 6: 27 * 8}; !maps.Equal(c.paths, want) {
		t.Errorf("bcube: %v, want %v", c.paths, want)
	}
	if want := 27. * 20 / (27 * (27 + 27)); c.several != want {
		t.Errorf("bcube: %g of destinations over several next hops, want %g", c.several, want)
	}
	f, err = topology.LeafSpine(3, 4, 2)
	c = countOf(t, f, err)
	if want := map[uint64]int64{1: 6, 4: 24}; !maps.Equal(c.paths, want) {
		t.Errorf("leaf-spine: %v, want %v", c.paths, want)
	}
	f, err = topology.VL2(8, 6, 1)
	c = countOf(t, f, err)
	// Racks are joined to three pairs of aggregation switches, four to each.
	if want := map[uint64]int64{2: 12 * 3, 16: 12 * 8}; !maps.Equal(c.paths, want) || c.mostHops() != 4 {
		t.Errorf("vl2: %v, at most %d next hops", c.paths, c.mostHops())
	}
}

// The path service finds as many paths between every two hosts.
func TestAgreesWithPathService(t *testing.T) {
	seed := soak.Seed(t)
	for _, name := range names {
		m, err := small().model(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.fabric(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		f.Selector.Key[0] = 1
		net, err := paths.New(f)
		if err != nil {
			t.Fatal(err)
		}
		g := newGraph(f)
		w := newWalk(len(g.near))
		for _, to := range g.hosts {
			w.from(g, to)
			for _, from := range g.hosts {
				if from == to {
					continue
				}
				r, err := net.Routes(paths.Place{Node: int(from)}, paths.Place{Node: int(to)}, paths.Rules{})
				if err != nil {
					t.Fatal(err)
				}
				if r.Count() != w.paths[from] {
					t.Fatalf("seed %d, %v: %d to %d: %d paths, the path service finds %d", seed, m, from, to, w.paths[from], r.Count())
				}
			}
		}
	}
}

func TestVariants(t *testing.T) {
	for _, m := range variants() {
		f, err := m.fabric(nil)
		if err != nil {
			t.Errorf("%v: %v", m, err)
			continue
		}
		hosts := 0
		for _, n := range f.Nodes {
			if n.Host {
				hosts++
			}
		}
		if hosts != m.hosts || hosts < 500 || hosts > 750 {
			t.Errorf("%v: %d hosts, want %d", m, hosts, m.hosts)
		}
	}
}

func run(t *testing.T, o *Options, c sim.Common) *sim.Result {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := o.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The same options and seeds give the same bytes, on one core and on two, and
// only what is drawn depends on the seed.
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
	for _, s := range run(t, small(), sim.Common{Seed: 3, Seeds: 8}).Figures[0].Series {
		drawn := slices.ContainsFunc(s.Points, func(p sim.Point) bool { return p.Y.Deviation != 0 && p.Y.Samples == 8 })
		if drawn != (s.Name == nameJellyfish) {
			t.Errorf("%s: depends on the seed: %v", s.Name, drawn)
		}
	}
}

// The paper's statements at the paper's size, but for the one that is not met
// and says why.
func TestChecks(t *testing.T) {
	for _, c := range run(t, New(), sim.Common{Seed: 1, Seeds: 1}).Checks {
		if bcube := strings.Contains(c.What, "BCube"); c.Holds == bcube || bcube && c.Why == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, arg := range []string{
		"--models=", "--models=torus", "--models=vl2,vl2", "--fat-tree=5", "--fat-tree=30", "--vl2=4", "--vl2=4,4,4000",
		"--bcube=5,3,1", "--bcube=10,4", "--bcube=2,9000", "--bcube=1,1", "--leaf-spine=2,2,0", "--leaf-spine=2,2,-5", "--jellyfish=5,3,1",
	} {
		o := New()
		flag, _, _ := strings.Cut(arg, "=")
		if err := simtest.Check(o, arg); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// TestTooLarge: a number that is not the real one is not told, and what would
// be taken is.
func TestTooLarge(t *testing.T) {
	for arg, want := range map[string]string{
		"--fat-tree=1000":            "too many servers, 5000 are the limit; 26 has 4394",
		"--fat-tree=28":              "5488 servers, 5000 are the limit; 26 has 4394",
		"--bcube=100,3":              "too many servers, 5000 are the limit; 8,3 has 4096",
		"--leaf-spine=4096,4,100":    "too many servers, 5000 are the limit; 50,4,100 has 5000",
		"--leaf-spine=2,2,999999999": "too many servers, 5000 are the limit; write smaller numbers",
	} {
		o := New()
		if err := simtest.Check(o, arg); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}
