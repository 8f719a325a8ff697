package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func reported(loads ...float64) []Reported {
	r := make([]Reported, len(loads))
	for i, l := range loads {
		r[i] = Reported{Slot: uint16(i), Load: l}
	}
	return r
}

// Cheetah §4.1: 10 entries at the average load, 30 without any, 2 at least.
func TestAWRRShares(t *testing.T) {
	for _, x := range []struct {
		loads []float64
		alpha float64
		want  []int
	}{
		{[]float64{1, 1, 1}, 0.5, []int{10, 10, 10}},
		{[]float64{0, 0}, 0.5, []int{30, 30}},
		{[]float64{1, 3}, 0.5, []int{13, 8}},         // 10·2/1.5, 10·2/2.5
		{[]float64{0, 2}, 0.5, []int{30, 7}},         // 10·1/1.5
		{[]float64{1, 1000, 1}, 0, []int{30, 3, 30}}, // by its own load alone
		{[]float64{1, 3}, 1, []int{10, 10}},          // by the average alone
		{[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100}, 0, []int{30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 2}},
		{[]float64{-1, math.NaN(), math.Inf(1), 1}, 0.5, []int{30, 30, 30, 4}},
	} {
		if got := AWRRShares(reported(x.loads...), x.alpha); !slices.Equal(got, x.want) {
			t.Errorf("loads %v, α %g: %v entries, want %v", x.loads, x.alpha, got, x.want)
		}
	}
}

// Draining servers have no entry and no weight in the average.
func TestAWRRDraining(t *testing.T) {
	r := reported(1, 1, 500)
	r[2].Draining = true
	if got := AWRRShares(r, AWRRAlpha); !slices.Equal(got, []int{10, 10, 0}) {
		t.Errorf("%v", got)
	}
	for i := range r {
		r[i].Draining = true
	}
	if got := AWRRTable(r, AWRRAlpha, rand.IntN); len(got) != 0 {
		t.Errorf("all drain, %d entries", len(got))
	}
}

// Whatever is reported, each has 2 to 30 entries, the less loaded never fewer,
// and the table holds just these.
func TestAWRRProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 40).Draw(t, "loads")
		alpha := rapid.Float64Range(0, 1).Draw(t, "alpha")
		shares := AWRRShares(reported(loads...), alpha)
		for i, n := range shares {
			if n < AWRRLeast || n > AWRRMost {
				t.Fatalf("%d entries", n)
			}
			for j := range shares {
				if loads[i] < loads[j] && n < shares[j] {
					t.Fatalf("load %g has %d entries, load %g has %d", loads[i], n, loads[j], shares[j])
				}
			}
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		held := count(AWRRTable(reported(loads...), alpha, r.IntN))
		for i, n := range shares {
			if held[uint16(i)] != n {
				t.Fatalf("server %d has %d entries in the table, want %d", i, held[uint16(i)], n)
			}
		}
	})
}

// The table is shuffled: a server's entries are not in a row, and another
// random source gives another order.
func TestAWRRIsShuffled(t *testing.T) {
	r := reported(1, 1, 1, 1, 1, 1, 1, 1)
	a := AWRRTable(r, AWRRAlpha, rand.New(rand.NewPCG(1, 0)).IntN)
	b := AWRRTable(r, AWRRAlpha, rand.New(rand.NewPCG(2, 0)).IntN)
	if slices.Equal(a, b) || slices.IsSorted(a) {
		t.Error("not shuffled")
	}
	s := &State{}
	seen := map[uint16]int{}
	for range a {
		e, _ := Choose(AWRR, a, s, nil)
		seen[EntrySlot(e)]++
	}
	if len(seen) != 8 || seen[0] != 10 {
		t.Errorf("walked once: %v", seen)
	}
}
