package chash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// paperMaglev is the paper's pseudo-code, with the permutations written out,
// for equal weights and a prime number of rows.
func paperMaglev(names []string, rows int) []string {
	permutation := make([][]int, len(names))
	for i, name := range names {
		offset := int(scale(mix(nameHash(name)+1)>>32, uint64(rows)))
		skip := 1 + int(scale(mix(nameHash(name)+2)>>32, uint64(rows-1)))
		for j := range rows {
			permutation[i] = append(permutation[i], (offset+j*skip)%rows)
		}
	}
	next, entry := make([]int, len(names)), make([]string, rows)
	for n := 0; ; {
		for i, name := range names {
			c := permutation[i][next[i]]
			for entry[c] != "" {
				next[i]++
				c = permutation[i][next[i]]
			}
			entry[c] = name
			next[i]++
			if n++; n == rows {
				return entry
			}
		}
	}
}

// Maglev, §3.4, pseudo-code 1.
func TestMaglevIsThePapers(t *testing.T) {
	const rows = 251
	for n := 1; n <= 30; n++ {
		var names []string
		for _, s := range inNameOrder(servers(n)) {
			names = append(names, s.Name)
		}
		h, err := New(KindMaglev, Options{Rows: rows}, servers(n)...)
		if err != nil {
			t.Fatal(err)
		}
		for row, want := range paperMaglev(names, rows) {
			key := uint64(row)<<32/rows + 1
			if got := h.Name(h.Lookup(key << 32)); got != want {
				t.Fatalf("%d servers, row %d: %s, want %s", n, row, got, want)
			}
		}
	}
}

// Rows differ by no more than a turn: one between equal weights; a heavier
// server has as many more as it weighs.
func TestMaglevBalance(t *testing.T) {
	for _, rows := range []int{65537, 65536, 1009, 1024} {
		s, total := servers(50), 0
		for i := range s {
			s[i].Weight = []int{1, 10, 500}[i%3]
			total += s[i].Weight
		}
		members := make([]weighed, len(s))
		for i, x := range s {
			members[i] = weighed{x.Name, i, x.Weight}
		}
		owners, err := maglevOwners(Spec{Rows: rows}, members)
		if err != nil {
			t.Fatal(err)
		}
		count := make([]int, len(s))
		for _, o := range owners {
			count[o]++
		}
		for i, x := range s {
			if want := float64(rows) * float64(x.Weight) / float64(total); float64(count[i]) < want-2 || float64(count[i]) > want+2 {
				t.Errorf("%d rows: server of weight %d has %d, want %.1f", rows, x.Weight, count[i], want)
			}
		}
	}
}

// What Maglev's documentation warns of, measured: keys that move between
// servers that stay when one is removed or added, and keys that a JET on top
// of it would break, because they were not tracked for the one of the horizon
// that was added.
func TestMaglevMovesOthers(t *testing.T) {
	const seed = 9
	r := rand.New(rand.NewPCG(seed, 0))
	keys := someKeys(1 << 16)
	for _, n := range []int{100, 500, 1000} {
		h, err := New(KindMaglev, Options{}, servers(n)...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n / 10 {
			if err := h.Park(fmt.Sprint("standby-", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		const changes = 5
		removed, added, broken, tracked := 0, 0, 0, 0
		for range changes {
			name := fmt.Sprint("server-", r.IntN(n))
			before := ownersOf(h, keys)
			if err := h.Remove(name); err != nil {
				t.Fatal(err)
			}
			for i, now := range ownersOf(h, keys) {
				if now != before[i] && before[i] != name {
					removed++
				}
			}
			if err := h.Add(name, 1); err != nil {
				t.Fatal(err)
			}
			standby := fmt.Sprint("standby-", r.IntN(n/10))
			track := make([]bool, len(keys))
			for i, key := range keys {
				if _, track[i] = h.Track(key); track[i] {
					tracked++
				}
			}
			if err := h.Add(standby, 1); err != nil {
				t.Fatal(err)
			}
			for i, now := range ownersOf(h, keys) {
				if now != before[i] && now != standby {
					added++
				}
				if now != before[i] && !track[i] {
					broken++
				}
			}
			if err := h.Park(standby, 1); err != nil {
				t.Fatal(err)
			}
		}
		share := func(count int) float64 { return 100 * float64(count) / changes / float64(len(keys)) }
		t.Logf("%d servers: of all keys, %.2f %% move between servers that stay when one is removed, %.2f %% when one is added; "+
			"with %d in the horizon %.2f %% are tracked (9.09 %% is their share), %.2f %% move untracked",
			n, share(removed), share(added), n/10, share(tracked), share(broken))
		if removed == 0 || added == 0 || share(removed) > 1.5 || share(added) > 1.5 {
			t.Errorf("%d servers: %.2f %% and %.2f %% of keys move between servers that stay, the documentation says about 1", n, share(removed), share(added))
		}
	}
}

func TestFlatCapacity(t *testing.T) {
	for _, k := range []Kind{KindMaglev, KindBucket} {
		if _, err := New(k, Options{Rows: 7}, servers(8)...); !errors.Is(err, ErrCapacity) {
			t.Errorf("%s: 8 servers in 7 rows: %v, want %v", k, err, ErrCapacity)
		}
		h, err := New(k, Options{Rows: 7}, servers(6)...)
		if err != nil {
			t.Fatal(k, err)
		}
		if err := h.Park("seventh", 1); err != nil {
			t.Fatal(k, err)
		}
		before := ownersOf(h, someKeys(100))
		for what, err := range map[string]error{"add": h.Add("eighth", 1), "park": h.Park("eighth", 1)} {
			if !errors.Is(err, ErrCapacity) {
				t.Errorf("%s: %s: %v, want %v", k, what, err, ErrCapacity)
			}
		}
		if w, o := h.Len(); w != 6 || o != 1 {
			t.Errorf("%s: %d and %d servers after errors", k, w, o)
		}
		for i, now := range ownersOf(h, someKeys(100)) {
			if now != before[i] {
				t.Fatalf("%s: a key moved by errors", k)
			}
		}
		members := make([]Member, 8)
		for i := range members {
			members[i] = Member{Name: fmt.Sprint(i), Number: i, New: 1, Held: 1, Horizon: 1}
		}
		if _, err := Compile(Spec{Kind: k, Rows: 7}, members); !errors.Is(err, ErrCapacity) {
			t.Errorf("%s: table of 8 servers in 7 rows: %v, want %v", k, err, ErrCapacity)
		}
	}
}
