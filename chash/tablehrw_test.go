package chash

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// A runner's order is a permutation, position its inverse.
func TestPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rowBits := rapid.IntRange(1, 14).Draw(t, "bits")
		p := newPermutation(rapid.Uint64().Draw(t, "hash"), rowBits)
		seen := make([]bool, 1<<rowBits)
		for k := range uint32(1) << rowBits {
			row := p.row(k)
			if row > p.mask || seen[row] || p.position(row) != k {
				t.Fatalf("position %d: row %d, met before or back at %d", k, row, p.position(row))
			}
			seen[row] = true
		}
	})
}

// Two runners' orders have nothing to do with each other: of the first 1/16
// of both, 1/256 of all rows is shared, give or take chance.
func TestPermutationsAreIndependent(t *testing.T) {
	const rowBits, early, runners = 12, 256, 200
	first := make([]map[uint32]bool, runners)
	for i := range first {
		p := newPermutation(nameHash(fmt.Sprintf("server-%d", i)), rowBits)
		first[i] = map[uint32]bool{}
		for k := range uint32(early) {
			first[i][p.row(k)] = true
		}
	}
	// Shared rows are hypergeometric: mean 16, variance 14.1.
	sum, squares, pairs := 0.0, 0.0, 0.0
	for i := range first {
		for j := range i {
			shared := 0.0
			for row := range first[i] {
				if first[j][row] {
					shared++
				}
			}
			sum, squares, pairs = sum+shared, squares+shared*shared, pairs+1
		}
	}
	mean := sum / pairs
	variance := squares/pairs - mean*mean
	if math.Abs(mean-16) > 5*math.Sqrt(14.1/pairs) || math.Abs(variance/14.1-1) > .1 {
		t.Errorf("shared rows: mean %.3f, variance %.2f, want 16 and 14.1", mean, variance)
	}
}

// Times are -ln(1-(k+1/2)/n), and apart by more than a race's packing needs.
func TestRaceTimes(t *testing.T) {
	for _, rowBits := range []int{1, 4, 10, 16, maxRowBits} {
		times := raceTimes(rowBits)
		n := float64(len(times))
		for k, time := range times {
			if k > 0 && (time-times[k-1])/MaxWeight < 1<<runnerBits {
				t.Fatalf("%d bits: positions %d and %d are %d apart", rowBits, k-1, k, time-times[k-1])
			}
			want, got := -math.Log1p(-(float64(k)+.5)/n), float64(time)/(1<<58)
			if math.Abs(got-want) > 1e-9 {
				t.Fatalf("%d bits, position %d: %v, want %v", rowBits, k, got, want)
			}
		}
	}
}

// dumb races everybody for every row.
func dumb(members []weighed, rowBits int) []int32 {
	times := raceTimes(rowBits)
	rows := make([]int32, len(times))
	for row := range rows {
		var best uint64
		var bestTie uint64
		rows[row] = -1
		for i, m := range members {
			r := newRunner(m.Name, m.Weight, rowBits)
			at := r.pass(times[r.position(uint32(row))]) >> runnerBits
			tie := r.tie(uint32(row))
			if rows[row] < 0 || at < best || at == best && tie < bestTie {
				rows[row], best, bestTie = int32(i), at, tie
			}
		}
	}
	return rows
}

// Running until most rows are passed finds what racing everybody everywhere
// does, in each of the three sets.
func TestTableHRWAgreesWithDumbTwin(t *testing.T) {
	const rowBits = 7
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.OneOf(rapid.IntRange(1, 3), rapid.IntRange(1, MaxWeight))
		members := make([]Member, rapid.IntRange(1, 40).Draw(t, "members"))
		for i := range members {
			w := weight.Draw(t, "weight")
			m := Member{fmt.Sprint("s", i), i, w, w, w}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m.New = 0
			case 1:
				m.New, m.Held = 0, 0
			case 2:
				m.Held = 0
			case 3:
				m.Held = weight.Draw(t, "old weight")
			}
			members[i] = m
		}
		sparse := rapid.Bool().Draw(t, "nobody steady")
		if sparse {
			for i := range members {
				members[i].Horizon = min(MaxWeight, members[i].New+members[i].Held+1)
			}
		}
		got, err := compileTableHRW(Spec{Rows: 1 << rowBits}, members) // without what trackReweighed adds
		if err != nil {
			t.Fatal(err)
		}
		want, err := compileSets(Spec{Rows: 1 << rowBits}, members, func(_ Spec, m []weighed) ([]int32, error) {
			return dumb(m, rowBits), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for row := range got.Entries {
			if got.Entries[row] != want.Entries[row] {
				t.Fatalf("row %d: %#x, want %#x", row, got.Entries[row], want.Entries[row])
			}
		}
	})
}

// JET's evaluation: 262,144 rows, 500 servers and a horizon of 50: the
// fullest has 1.139 ± 0.017 times the mean of 1.6 M flows, 9.09 % tracked.
func TestTableHRWBalance(t *testing.T) {
	h, err := New(KindTableHRW, Options{Rows: 1 << 18}, servers(500)...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := h.Park(fmt.Sprint("standby-", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	checkBalance(t, h, 500, 1_602_007, 1.156, 50./550, .02)
}

// The table is part of what balancers of different versions share: it may
// not change from release to release.
func TestTableHRWIsStable(t *testing.T) {
	m := make([]Member, 5)
	for i := range m {
		m[i] = Member{fmt.Sprint("server-", i), i, i + 1, i + 1, i + 1}
	}
	table, err := Compile(Spec{Kind: KindTableHRW, Rows: 32}, m)
	if err != nil {
		t.Fatal(err)
	}
	slots := make([]int, 32)
	for row, e := range table.Entries {
		slots[row] = EntrySlot(e)
	}
	if got := fmt.Sprint(slots); got != stable {
		t.Errorf("%s, want %s", got, stable)
	}
}

const stable = "[2 4 4 2 2 0 3 4 3 3 2 1 3 0 4 2 1 2 1 3 3 2 4 3 1 4 3 3 4 1 4 4]"
