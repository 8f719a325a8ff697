package chash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// dumbHRW lets all race, in floating point and without shortcuts.
func dumbHRW(servers []Server, key uint64) string {
	best, winner := math.Inf(1), ""
	for _, s := range servers {
		u := float64(^seedOf(nameHash(s.Name)).draw(key)|1) / (1 << 63) / 2
		if score := -math.Log(u) / float64(s.Weight); score < best {
			best, winner = score, s.Name
		}
	}
	return winner
}

// Shortcuts and integers never change a winner.
func TestHRWAgreesWithDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMirror()
		for i := range rapid.IntRange(1, 40).Draw(t, "servers") {
			set := m.working
			if rapid.Bool().Draw(t, "in the horizon") {
				set = m.horizon
			}
			set[fmt.Sprint("s", i)] = rapid.OneOf(rapid.IntRange(1, 3), rapid.IntRange(1, MaxWeight)).Draw(t, "weight")
		}
		h, err := New(KindHRW, Options{}, m.servers(false)...)
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range m.horizon {
			if err := h.Park(name, w); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range someKeys(200) {
			n, track := h.Track(key)
			want, with := dumbHRW(m.servers(false), key), dumbHRW(m.servers(true), key)
			if h.Name(n) != want || track != (want != with) {
				t.Fatalf("key %x: %q, track %v; want %q, with the horizon %q", key, h.Name(n), track, want, with)
			}
		}
	})
}

// least in every length, for draws that are equal too, and for the worst.
func TestLeast(t *testing.T) {
	const start = 8
	r := rand.New(rand.NewPCG(start, 0))
	for range 2000 {
		seeds := make([]seed, 1+r.IntN(11))
		for i := range seeds {
			seeds[i] = seedOf(uint64(r.IntN(6))) // few, so that some are the same
		}
		key := r.Uint64()
		limit := uint64(math.MaxUint64) >> r.IntN(4)
		want, draw := -1, limit
		for i, s := range seeds {
			if d := s.draw(key); d < draw {
				want, draw = i, d
			}
		}
		if at, d := least(seeds, key, limit); at != want || d != draw {
			t.Fatalf("seed %d: %d of %d with %x, want %d with %x", start, at, len(seeds), d, want, draw)
		}
	}
}

// Shares follow the weights: chi square below mean + 4 standard deviations.
// And so do the shares of those who inherit from one that leaves.
func TestHRWBalance(t *testing.T) {
	keys := someKeys(1 << 18)
	for _, n := range []int{10, 100} {
		s, total := servers(n), 0
		for i := range s {
			s[i].Weight = 1 + i%7*30
			total += s[i].Weight
		}
		h, err := New(KindHRW, Options{}, s...)
		if err != nil {
			t.Fatal(err)
		}
		before := ownersOf(h, keys)
		gone := s[n-1]
		if err := h.Remove(gone.Name); err != nil {
			t.Fatal(err)
		}
		count, heirs, left := map[string]int{}, map[string]int{}, 0
		for i, name := range ownersOf(h, keys) {
			count[before[i]]++
			if before[i] == gone.Name {
				heirs[name]++
				left++
			}
		}
		chi := func(count map[string]int, of []Server, keys, total int) float64 {
			sum := 0.0
			for _, x := range of {
				want := float64(keys) * float64(x.Weight) / float64(total)
				sum += (float64(count[x.Name]) - want) * (float64(count[x.Name]) - want) / want
			}
			return sum
		}
		df := float64(n - 1)
		if c := chi(count, s, len(keys), total); c > df+4*math.Sqrt(2*df) {
			t.Errorf("%d servers: chi square %.0f", n, c)
		}
		df--
		if c := chi(heirs, s[:n-1], left, total-gone.Weight); c > df+4*math.Sqrt(2*df) {
			t.Errorf("%d servers: chi square of the heirs %.0f", n, c)
		}
	}
}

// The table's rows are what rendezvous finds for their keys.
func TestHRWTableIsRendezvous(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	var members []Member
	var sets [3][]Server
	for i := range 40 {
		m := Member{Name: fmt.Sprint(i), Number: i, New: r.IntN(3), Held: r.IntN(3), Horizon: r.IntN(3)}
		members = append(members, m)
		for set, w := range []int{m.New, m.Held, max(m.New, m.Held, m.Horizon)} {
			if w > 0 {
				sets[set] = append(sets[set], Server{m.Name, w})
			}
		}
	}
	table, err := compileHRW(Spec{Rows: 1000}, members) // without what trackReweighed adds
	if err != nil {
		t.Fatal(err)
	}
	for row, e := range table.Entries {
		key := rowKey(row)
		slot, held, all := dumbHRW(sets[0], key), dumbHRW(sets[1], key), dumbHRW(sets[2], key)
		if fmt.Sprint(EntrySlot(e)) != slot || fmt.Sprint(EntryHeld(e)) != held || EntryTrack(e) != (slot != held || slot != all) {
			t.Fatalf("seed %d, row %d: %d, held %d, track %v; want %s, %s, all %s", seed, row,
				EntrySlot(e), EntryHeld(e), EntryTrack(e), slot, held, all)
		}
	}
}
