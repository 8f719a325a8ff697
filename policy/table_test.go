package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func pool(weights ...int) []Member {
	m := make([]Member, len(weights))
	for i, w := range weights {
		m[i] = Member{Slot: uint16(i + 3), Weight: w, Name: fmt.Sprint("server-", i)}
	}
	return m
}

func count(table []uint32) map[uint16]int {
	n := map[uint16]int{}
	for _, e := range table {
		n[EntrySlot(e)]++
	}
	return n
}

func TestRoundRobinHasEachOnce(t *testing.T) {
	for slot, n := range count(Table(RR, pool(5, 1, 700))) {
		if n != 1 {
			t.Errorf("slot %d: %d entries", slot, n)
		}
	}
}

// A member's entries are in proportion to its weight and evenly spaced: in
// any stretch of the table it has its share, give or take one entry at each
// end and one for the others' phases.
func TestWeightedIsSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 12).Draw(t, "weights")
		m := pool(weights...)
		table := Table(WRR, m)
		n := count(table)
		for i, x := range m {
			if n[x.Slot]*weights[0] != n[m[0].Slot]*weights[i] {
				t.Fatalf("weights %v, entries %v", weights, n)
			}
		}
		for slot, c := range n {
			last, gap := -1, 0
			for at, e := range append(slices.Clone(table), table...) {
				if EntrySlot(e) == slot {
					if last >= 0 {
						gap = max(gap, at-last)
					}
					last = at
				}
			}
			if most := len(table)/c + 2*len(m) + 1; gap > most {
				t.Fatalf("weights %v: slot %d waits %d entries, at most %d wanted", weights, slot, gap, most)
			}
		}
	})
}

func TestWeightsAreReduced(t *testing.T) {
	if got := len(Table(WRR, pool(100, 200, 300))); got != 6 {
		t.Errorf("%d entries, want 6", got)
	}
	if got := Table(P2C, pool(100, 200)); EntryWeight(got[0]) != 1 || EntryWeight(got[1]) != 2 {
		t.Errorf("entries %#x", got)
	}
}

func TestTableIsBounded(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	weights := make([]int, 4096)
	total := 0
	for i := range weights {
		weights[i] = 1 + r.IntN(1000)
		total += weights[i]
	}
	m := pool(weights...)
	table := Table(WRR, m)
	if len(table) > MaxEntries+len(m) {
		t.Errorf("seed %d: %d entries", seed, len(table))
	}
	n := count(table)
	for i, x := range m {
		want := float64(weights[i]) * MaxEntries / float64(total)
		if got := float64(n[x.Slot]); got < 1 || got > want+1 || got < want-1 {
			t.Errorf("seed %d: weight %d has %.0f entries, want %.1f", seed, weights[i], got, want)
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	m := pool(3, 1, 4, 1, 5)
	r := slices.Clone(m)
	slices.Reverse(r)
	for _, p := range []string{RR, WRR, P2C, LeastConn} {
		if !slices.Equal(Table(p, m), Table(p, r)) {
			t.Errorf("%s: the order of members matters", p)
		}
	}
}

func TestNothing(t *testing.T) {
	if Table(RR, nil) != nil || Table(Hash, pool(1)) != nil {
		t.Error("want no table")
	}
}
