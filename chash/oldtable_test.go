package chash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func pool(n int, weight func(i int) int) []Member {
	m := make([]Member, n)
	for i := range m {
		m[i] = Member{Name: fmt.Sprintf("server-%d", i), Weight: weight(i)}
	}
	return m
}

func one(int) int { return 1 }

func names(m []Member, table []int) []string {
	out := make([]string, len(table))
	for r, i := range table {
		out[r] = m[i].Name
	}
	return out
}

// dumb is table-HRW without the shortcut, in floating point.
func dumb(members []Member, rows int) []int {
	table := make([]int, rows)
	for r := range table {
		best := math.Inf(1)
		for i, m := range members {
			if m.Weight <= 0 {
				continue
			}
			u := float64(mix(nameHash(m.Name)^mix(uint64(r)+1))|1) / (1 << 63) / 2
			if s := -math.Log(u) / float64(m.Weight); s < best {
				best, table[r] = s, i
			}
		}
	}
	return table
}

// The shortcut of race never changes a winner (rows that floating point
// cannot tell apart excepted: none in these).
func TestAgreesWithDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := pool(rapid.IntRange(1, 40).Draw(t, "members"), func(i int) int {
			return rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(1, 1000)).Draw(t, "weight")
		})
		m[0].Weight = 1
		got, want := TableHRW(m, 512), dumb(m, 512)
		for r := range got {
			if got[r] != want[r] {
				t.Fatalf("row %d: %d, want %d", r, got[r], want[r])
			}
		}
	})
}

// Every member's share follows its weight: chi square over 10 and 100 members
// stays below mean + 4 standard deviations.
func TestBalance(t *testing.T) {
	for _, c := range []struct {
		n      int
		weight func(int) int
	}{{10, one}, {100, one}, {10, func(i int) int { return i + 1 }}, {100, func(i int) int { return 1 + i%7*150 }}} {
		m := pool(c.n, c.weight)
		rows := Rows(c.n)
		count, total := make([]int, c.n), 0
		for _, i := range TableHRW(m, rows) {
			count[i]++
		}
		for _, x := range m {
			total += x.Weight
		}
		chi := 0.0
		for i, x := range m {
			want := float64(rows) * float64(x.Weight) / float64(total)
			chi += (float64(count[i]) - want) * (float64(count[i]) - want) / want
		}
		df := float64(c.n - 1)
		if chi > df+4*math.Sqrt(2*df) {
			t.Errorf("%d members: chi square %.0f with %.0f degrees of freedom", c.n, chi, df)
		}
	}
}

// JET §4.2: only rows of the member that joins, leaves or changes weight
// change, and about its share of them.
func TestDisruption(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "members")
		m := pool(n, func(int) int { return rapid.IntRange(1, 20).Draw(t, "weight") })
		k := rapid.IntRange(0, n-1).Draw(t, "changed")
		changed := append([]Member(nil), m...)
		changed[k].Weight = rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "new weight")
		a, b := TableHRW(m, 1024), TableHRW(changed, 1024)
		for r := range a {
			if a[r] == b[r] {
				continue
			}
			grown := changed[k].Weight > m[k].Weight
			if grown && b[r] != k || !grown && a[r] != k {
				t.Fatalf("row %d went from %d to %d when %d went from weight %d to %d", r, a[r], b[r], k, m[k].Weight, changed[k].Weight)
			}
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 0))
	m := pool(50, func(i int) int { return 1 + i%3 })
	want := names(m, TableHRW(m, 4096))
	for range 5 {
		s := append([]Member(nil), m...)
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		for row, name := range names(s, TableHRW(s, 4096)) {
			if name != want[row] {
				t.Fatalf("seed %d: row %d: %s, want %s", seed, row, name, want[row])
			}
		}
	}
}

// The table is part of what balancers of different versions share: it may
// not change from release to release.
func TestTableIsStable(t *testing.T) {
	m := pool(5, func(i int) int { return i + 1 })
	got := fmt.Sprint(TableHRW(m, 24))
	if want := stable; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEdges(t *testing.T) {
	if TableHRW(nil, 1024) != nil || TableHRW([]Member{{Name: "a"}}, 1024) != nil {
		t.Error("no members: want no table")
	}
	for n, want := range map[int]int{0: 1024, 3: 1024, 4: 2048, 218: 65536, 4096: 65536} {
		if Rows(n) != want {
			t.Errorf("Rows(%d) = %d, want %d", n, Rows(n), want)
		}
	}
	for u, want := range map[uint64]uint64{1 << 63: 1 << 48, 1 << 62: 2 << 48, 0: 64 << 48, ^uint64(0): 0} {
		// 1<<63|1 is one part in 2^63 above a half, far below the unit.
		if got := negLog2(u); got > want+2 || got+2 < want {
			t.Errorf("negLog2(%#x) = %#x, want %#x", u, got, want)
		}
	}
}

func BenchmarkTableHRW4096(b *testing.B) {
	m := pool(4096, func(i int) int { return 1 + i%4 })
	for b.Loop() {
		TableHRW(m, MaxRows)
	}
}

const stable = "[1 1 4 4 3 1 0 3 3 2 3 3 4 3 4 4 3 3 1 1 2 4 1 3]"
