package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Its choice always has the lowest report, and only a report moves it.
func TestReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "servers")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r, loads := NewReports(n), make([]float64, n)
		for range rapid.IntRange(1, 100).Draw(t, "reports") {
			before := r.Choose()
			i, load := random.IntN(n), float64(random.IntN(4))
			loads[i] = load
			r.Report(i, load, random.IntN)
			least := slices.Min(loads)
			if loads[r.Choose()] != least {
				t.Fatalf("server with %g chosen, the lowest is %g", loads[r.Choose()], least)
			}
			if loads[before] == least && r.Choose() != before {
				t.Fatal("it left a server that was still among the lowest")
			}
		}
	})
}

// Cheetah §4.1: between two reports every connection goes to one server.
func TestReportsHerd(t *testing.T) {
	r := NewReports(8)
	r.Report(0, 1, rand.IntN)
	first := r.Choose()
	for range 100 {
		if r.Choose() != first {
			t.Fatal("the choice moved without a report")
		}
	}
}

func TestHashBit(t *testing.T) {
	table := Table(P2C, pool(1, 1, 1, 1, 1, 1, 1, 1))
	const seed, n = 3, 20000
	random := rand.New(rand.NewPCG(seed, 0))
	open := map[uint16]int32{}
	load := func(slot uint16) int32 { return open[slot] }
	seconds := 0
	for range n {
		hash := random.Uint64()
		e, second, ok := ChooseHashBit(hash, table, load)
		// Appendix B: hash and bit are all that it takes to find it again.
		if again, _ := HashBitEntry(hash, table, second); !ok || again != e {
			t.Fatalf("chosen %#x, found again %#x", e, again)
		}
		other, _ := HashBitEntry(hash, table, !second)
		if open[EntrySlot(other)] < open[EntrySlot(e)] {
			t.Fatal("the more loaded of the two was chosen")
		}
		if second {
			seconds++
		}
		open[EntrySlot(e)]++
	}
	for slot, c := range open {
		if c < n/8*98/100 || c > n/8*102/100 {
			t.Errorf("slot %d has %d, want about %d", slot, c, n/8)
		}
	}
	if seconds == 0 || seconds == n {
		t.Errorf("the bit is set in %d of %d", seconds, n)
	}
	if _, _, ok := ChooseHashBit(1, nil, load); ok {
		t.Error("an empty table gives a server")
	}
}
