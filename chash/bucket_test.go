package chash

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkSettled checks a step of holdings: every share is right but for
// rounding, and moves are as few as that allows.
func checkSettled(t *rapid.T, before, after []int32, weights []int) {
	total := 0
	for _, w := range weights {
		total += w
	}
	had, has, moved := make([]int, len(weights)+1), make([]int, len(weights)+1), 0
	for b := range after {
		had[before[b]+1]++
		has[after[b]+1]++
		if before[b] != after[b] {
			moved++
		}
	}
	if total == 0 {
		if has[0] != len(after) {
			t.Fatalf("nobody has %d of %d buckets without servers", has[0], len(after))
		}
		return
	}
	give, take, spare, givers := had[0], 0, len(after), 0
	for i, w := range weights {
		down, odd := len(after)*w/total, len(after)*w%total > 0
		up := down
		if odd {
			up++
		}
		if has[i+1] < down || has[i+1] > up {
			t.Fatalf("server %d of weight %d of %d has %d buckets, want %d or %d", i, w, total, has[i+1], down, up)
		}
		spare -= down
		if odd && had[i+1] > down {
			givers++
		}
		give += max(0, had[i+1]-down)
		take += max(0, down-had[i+1])
	}
	// Each round-up that a server with more than its share keeps saves a move.
	if least := give - min(spare, givers); moved != least {
		t.Fatalf("%d buckets moved, want %d (shares short by %d)", moved, least, take)
	}
}

// Beamer, §4: shares follow the weights with the least moves, through any
// changes, and a server gives what it has had longest.
func TestSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.IntRange(1, 300).Draw(t, "buckets")
		h := newHoldings(buckets)
		since := make([]int, buckets) // step at which each bucket came to its server
		n := 0
		for step := 1; step <= 15; step++ {
			n = max(n, rapid.IntRange(1, 12).Draw(t, "servers"))
			weights := rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.Just(1), rapid.IntRange(1, 1000)), n, n).Draw(t, "weights")
			before := slices.Clone(h.owner)
			h.settle(weights)
			checkSettled(t, before, h.owner, weights)
			newest, oldest := map[int32]int{}, map[int32]int{} // given away, kept
			for b, now := range h.owner {
				was := before[b]
				if now != was {
					newest[was] = max(newest[was], since[b])
				} else if o, ok := oldest[was]; !ok || since[b] < o {
					oldest[was] = since[b]
				}
			}
			for server, s := range newest {
				if o, ok := oldest[server]; ok && s > o {
					t.Fatalf("server %d gave a bucket of step %d and kept one of %d", server, s, o)
				}
			}
			for b, now := range h.owner {
				if now != before[b] {
					since[b] = step
				}
			}
			for server := range int32(n) {
				if int(h.count[server+1]) != h.listed(server) {
					t.Fatalf("server %d: list and count differ", server)
				}
			}
		}
	})
}

// listed counts a server's list.
func (h *holdings) listed(server int32) int {
	if h.count[server+1] == 0 {
		return 0
	}
	n := 1
	for b := h.first[server+1]; h.later[b] >= 0; b = h.later[b] {
		n++
	}
	return n
}

// Track is exact for what it says: the whole horizon, added at once.
func TestBucketTrack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMirror()
		h := start(t, KindBucket, m)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			m.step(t, KindBucket, h)
		}
		b := h.(*bucket)
		with, all := b.held.clone(), make([]int, len(b.servers))
		for n, s := range b.servers {
			all[n] = s.weight
		}
		with.settle(all)
		for row := range b.flat {
			key := (uint64(row)<<32/uint64(len(b.flat)) + 1) << 32
			n, track := h.Track(key)
			if int32(n) != b.held.owner[row] || track != (with.owner[row] != b.held.owner[row]) {
				t.Fatalf("row %d: %d, track %v; held by %d, with the horizon %d", row, n, track, b.held.owner[row], with.owner[row])
			}
		}
	})
}

func slots(t *testing.T, k Kind, rows int, of []Member) []int {
	t.Helper()
	table, err := Compile(Spec{Kind: k, Rows: rows, Capacity: 128}, of)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int, len(table.Entries))
	for r, e := range table.Entries {
		out[r] = EntrySlot(e)
	}
	return out
}

// The compiled table knows no history, and still a change moves little:
// draining, removing and adding at the end only what they must.
func TestBucketTableMovesLittle(t *testing.T) {
	const n, rows = 60, 4096
	before := slots(t, KindBucket, rows, active(n))
	drained := active(n)
	drained[17].New = 0
	removed := slices.Delete(active(n), 17, 18)
	for what, m := range map[string][]Member{"draining": drained, "removed": removed} {
		for row, now := range slots(t, KindBucket, rows, m) {
			if (now != before[row]) != (before[row] == 17) {
				t.Fatalf("%s: row %d went from %d to %d", what, row, before[row], now)
			}
		}
	}
	moved := 0
	for row, now := range slots(t, KindBucket, rows, active(n+1)) {
		if now != before[row] {
			moved++
			if now != n {
				t.Fatalf("added: row %d went from %d to %d", row, before[row], now)
			}
		}
	}
	if moved != rows/(n+1) {
		t.Errorf("%d rows moved to the newcomer, want %d", moved, rows/(n+1))
	}
	count := make([]int, n)
	for _, s := range before {
		count[s]++
	}
	if least, most := slices.Min(count), slices.Max(count); most-least > 1 {
		t.Errorf("from %d to %d rows a server", least, most)
	}
}
