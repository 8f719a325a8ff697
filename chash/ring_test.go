package chash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// dumbRing looks all points over for the one that follows a key most closely
// (Karger et al., §4.1), as a name.
func dumbRing(servers []Server, replicas int, key uint64) string {
	owner, nearest := "", uint64(math.MaxUint64)
	for _, s := range servers {
		for p := range s.Weight * replicas {
			if d := pointAt(nameHash(s.Name), p) - key; d <= nearest { // past 2^64 around
				owner, nearest = s.Name, d
			}
		}
	}
	return owner
}

func TestRingAgreesWithDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMirror()
		replicas := rapid.IntRange(1, 20).Draw(t, "replicas")
		h, err := New(KindRing, Options{Replicas: replicas})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			m.step(t, KindRing, h)
		}
		keys := append(someKeys(100), 0, math.MaxUint64)
		for _, s := range m.servers(true) {
			p := pointAt(nameHash(s.Name), 0)
			keys = append(keys, p, p+1, p-1)
		}
		for _, key := range keys {
			n, track := h.Track(key)
			want, with := dumbRing(m.servers(false), replicas, key), dumbRing(m.servers(true), replicas, key)
			if h.Name(n) != want || track != (want != with) {
				t.Fatalf("key %x: %q, track %v; want %q, with the horizon %q", key, h.Name(n), track, want, with)
			}
		}
	})
}

// Two servers with a point in the same place: the name decides, whatever the
// order and the set.
func TestRingTies(t *testing.T) {
	h, err := New(KindRing, Options{Replicas: 1}, Server{"a", 1}, Server{"b", 1})
	if err != nil {
		t.Fatal(err)
	}
	r := h.(*ring)
	first, second := Node(0), Node(1) // in name order
	for _, turn := range [][2]Node{{first, second}, {second, first}} {
		r.segments, r.points, r.works = [][]point{nil}, 0, 0
		r.shift = 64
		for _, n := range turn {
			r.insert(1<<40, n, inWorking)
		}
		if got := r.Lookup(7); got != first {
			t.Errorf("inserted in order %v: %d is found, want %d", turn, got, first)
		}
		r.flip(r.find(1<<40, first), inHorizon)
		if n, track := r.Track(7); n != second || !track {
			t.Errorf("the first in the horizon: %d, %v; want %d, true", n, track, second)
		}
		r.flip(r.find(1<<40, first), inWorking)
		r.flip(r.find(1<<40, second), inHorizon)
		if n, track := r.Track(7); n != first || track {
			t.Errorf("the second in the horizon: %d, %v; want %d, false", n, track, first)
		}
	}
}

// Segments follow the number of points, up and down.
func TestRingSegments(t *testing.T) {
	h, err := New(KindRing, Options{Replicas: 100})
	if err != nil {
		t.Fatal(err)
	}
	r := h.(*ring)
	check := func() {
		t.Helper()
		if per := r.points / len(r.segments); per >= 12 || per < 2 && len(r.segments) > 1 {
			t.Fatalf("%d points in %d segments", r.points, len(r.segments))
		}
	}
	for i := range 100 {
		if err := h.Add(fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
		check()
	}
	for i := range 100 {
		if err := h.Remove(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		check()
	}
	if r.points != 0 || r.works != 0 {
		t.Errorf("%d points, %d working, when all are gone", r.points, r.works)
	}
}

func TestRingTooManyPoints(t *testing.T) {
	const replicas = 1000
	heavy := maxRingPoints / replicas
	if _, err := New(KindRing, Options{}, Server{"a", heavy}, Server{"b", heavy}); !errors.Is(err, ErrCapacity) {
		t.Errorf("New: %v, want %v", err, ErrCapacity)
	}
	h, err := New(KindRing, Options{}, Server{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"set": h.SetWeight("a", MaxWeight), "add": h.Add("b", MaxWeight), "park": h.Park("c", MaxWeight)} {
		if !errors.Is(err, ErrCapacity) {
			t.Errorf("%s: %v, want %v", what, err, ErrCapacity)
		}
	}
	if w, o := h.Len(); w != 1 || o != 0 || h.Name(1) != "" {
		t.Errorf("%d working, %d in the horizon after errors", w, o)
	}
	members := make([]Member, 20)
	for i := range members {
		members[i] = Member{Name: fmt.Sprint(i), Number: i, New: MaxWeight, Held: MaxWeight, Horizon: MaxWeight}
	}
	if _, err := Compile(Spec{Kind: KindRing, Rows: 1024}, members); !errors.Is(err, ErrWeight) {
		t.Errorf("Compile: %v, want %v", err, ErrWeight)
	}
}

// Karger et al.: a share varies by 1/√points. By weights, too.
func TestRingBalance(t *testing.T) {
	const n, replicas = 100, 100
	s := servers(n)
	total := 0
	for i := range s {
		s[i].Weight = 1 + i%4
		total += s[i].Weight
	}
	h, err := New(KindRing, Options{Replicas: replicas}, s...)
	if err != nil {
		t.Fatal(err)
	}
	keys := someKeys(1 << 20)
	count := map[string]int{}
	for _, name := range ownersOf(h, keys) {
		count[name]++
	}
	// Sum of squared deviations, each in units of its variance.
	chi := 0.0
	for _, x := range s {
		share := float64(count[x.Name]) / float64(len(keys)) * float64(total) / float64(x.Weight)
		variance := 1/float64(replicas*x.Weight) + float64(total)/float64(x.Weight)/float64(len(keys))
		chi += (share - 1) * (share - 1) / variance
	}
	if chi > n+4*math.Sqrt(2*n) {
		t.Errorf("squared deviations of %d shares are %.0f times their variance", n, chi)
	}
}

// The table's rows are what the ring finds for their first keys.
func TestRingTableIsTheRing(t *testing.T) {
	const seed, replicas = 6, 8
	r := rand.New(rand.NewPCG(seed, 0))
	for range 8 {
		rows := []int{64, 1000, 1024}[r.IntN(3)]
		var members []Member
		var sets [3][]Server
		for i := range 1 + r.IntN(30) {
			m := Member{Name: fmt.Sprint(i), Number: i, New: r.IntN(4), Held: r.IntN(4), Horizon: r.IntN(4)}
			members = append(members, m)
			for set, w := range []int{m.New, m.Held, max(m.New, m.Held, m.Horizon)} {
				if w > 0 {
					sets[set] = append(sets[set], Server{m.Name, w})
				}
			}
		}
		table, err := compileRingOf(rows, replicas, members)
		if err != nil {
			t.Fatal(err)
		}
		for row, e := range table.Entries {
			key := uint64(math.Ceil(float64(row) * (1 << 32) / float64(rows)))
			key = key << 32
			// The first key whose row this is, up to the last 32 bits, in
			// which no point lies (as good as surely).
			want := [3]string{}
			for set := range sets {
				want[set] = dumbRing(sets[set], replicas, key)
			}
			if want[1] == "" {
				want[1] = want[0]
			}
			name := func(slot int) string {
				if slot == None {
					return ""
				}
				return members[slot].Name
			}
			track := want[0] != want[1] && want[0] != "" || want[1] != "" && want[1] != want[2]
			if name(EntrySlot(e)) != want[0] || name(EntryHeld(e)) != want[1] || EntryTrack(e) != track {
				t.Fatalf("seed %d, row %d of %d: %q, held %q, track %v; want %q", seed, row, rows,
					name(EntrySlot(e)), name(EntryHeld(e)), EntryTrack(e), want)
			}
		}
	}
}
