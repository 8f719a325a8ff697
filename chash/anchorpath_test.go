package chash

import (
	"math/rand/v2"
	"testing"
)

// The path ends at the slot, and what it passes explains held and track.
func TestPathIsTheWalk(t *testing.T) {
	const seed = 21
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		state := make([]BucketState, 1+r.IntN(40))
		for i := range state {
			state[i] = BucketState(r.IntN(4))
		}
		table, err := NewAnchorTable(40+r.IntN(40), state)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			h := r.Uint64()
			slot, held, track := table.Place(h)
			path := table.Path(h)
			if slot < 0 {
				if path != nil {
					t.Fatalf("seed %d: %x: path %v to no server", seed, h, path)
				}
				continue
			}
			wantHeld, wantTrack := -1, false
			for _, b := range path[:len(path)-1] {
				a := table.Entries[b] & 0xffff
				if wantTrack = wantTrack || a < table.Track; a < table.Held && wantHeld < 0 {
					wantHeld = b
				}
			}
			last := path[len(path)-1]
			if wantHeld < 0 {
				wantHeld = last
			}
			if last != slot || wantHeld != held || wantTrack != track {
				t.Fatalf("seed %d: %x: path %v; slot %d, held %d, track %v", seed, h, path, slot, held, track)
			}
		}
	}
}
