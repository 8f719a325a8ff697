package chash

import (
	"fmt"
)

// BucketState is what AnchorTable knows of a bucket, which is a slot.
type BucketState uint8

// States of a bucket.
const (
	Unused   BucketState = iota // no server has this number
	Working                     // takes new connections
	Draining                    // keeps the connections it has, takes no new ones
	Horizon                     // may start to work soon
)

// AnchorSteps bounds the entries that a walk reads; one that would need more
// finds no server: the data plane must bound its loop. The most that two
// million keys need is 30, where one bucket of MaxSlots works.
const AnchorSteps = 128

// AnchorTable is AnchorHash (Mendelson, Vargaftik, Barabash, Lorenz,
// Keslassy, Orda: "AnchorHash: A scalable consistent hash", IEEE/ACM ToN
// 2021, §4) as the data plane walks it, four bytes a bucket, with JET's track
// bit (JET, §3.3) and the place of draining servers' connections from the
// same walk.
//
// Buckets are removed in an order that follows from their states alone: from
// the first removed to the last, unused numbers above the highest one in use,
// then the horizon with unused numbers below that, then draining ones, each
// by descending number. So every balancer computes the same table, and
// history does not matter. A walk meets removed buckets in this order: it
// passes a draining bucket only at its end, so the first draining one it
// meets is where the key was while those servers worked. A key whose walk
// meets none of draining and horizon keeps its server while states change
// among Working, Draining and Horizon; track says so in advance.
//
//	cost        2 reads and 2 ns while capacity = servers, ~5 ns at 1.2 times;
//	            expected hashes 1 + ln(capacity / working)
//	memory      4 bytes a bucket
//	balance     exact in expectation: only the keys' own randomness
//	disruption  add from the horizon: 1/(n+1) of keys, all tracked before;
//	            drain, fail: none but the server's own. Other orders than
//	            last removed, first added also move tracked keys between
//	            servers that did not change, which tracking covers
//	order       of the servers does not matter; their numbers do
type AnchorTable struct {
	// Entries has one entry a bucket: A | K<<16. A is the number of buckets
	// left when this one was removed, 0: it is in use; K the bucket that took
	// its place. Empty: no server works or drains.
	Entries []uint32
	// Held and Track are thresholds: 0 < A < Held: draining, 0 < A < Track:
	// draining or horizon.
	Held, Track uint32
}

// NewAnchorTable builds the table of a capacity (1 to MaxSlots buckets, fixed
// for the VIP's life: another one moves most keys) from the buckets' states;
// buckets beyond len(state) are unused. Where none works, draining ones are
// placed as if they did: the caller must refuse new connections.
//
// Errors: ErrCapacity.
func NewAnchorTable(capacity int, state []BucketState) (*AnchorTable, error) {
	if err := checkBuckets(capacity); err != nil {
		return nil, err
	}
	top := len(state) // the highest number in use + 1
	for top > 0 && state[top-1] == Unused {
		top--
	}
	if top > capacity {
		return nil, fmt.Errorf("%w: slot %d is beyond %d buckets; make the VIP anew with a greater capacity, or remove servers", ErrCapacity, top-1, capacity)
	}
	var count [Horizon + 1]int
	for _, s := range state[:top] {
		count[s]++
	}
	t := &AnchorTable{}
	if count[Working]+count[Draining] == 0 {
		return t, nil
	}
	t.Entries = make([]uint32, capacity)
	for b := range t.Entries {
		t.Entries[b] = uint32(b) << 16
	}
	left := uint32(capacity)
	for b := capacity - 1; b >= top; b-- {
		left = t.remove(b, left)
	}
	t.Track = left
	for b := top - 1; b >= 0; b-- {
		if state[b] == Horizon || state[b] == Unused {
			left = t.remove(b, left)
		}
	}
	t.Held = left
	if count[Working] == 0 {
		return t, nil
	}
	for b := top - 1; b >= 0; b-- {
		if state[b] == Draining {
			left = t.remove(b, left)
		}
	}
	return t, nil
}

// remove takes bucket b out of left that are in use. The place that becomes
// void is the last one; whoever sits there moves to b's. Nobody notes who
// sits where (the paper's W and L): the buckets that took over from each
// other lead there.
func (t *AnchorTable) remove(b int, left uint32) uint32 {
	left--
	last := left
	for t.Entries[last]&0xffff != 0 {
		last = t.Entries[last] >> 16
	}
	t.Entries[b] = last<<16 | left
	return left
}

// Place looks a hash up: the slot of a new connection, the one that holds an
// untracked earlier connection (each -1: no server), and whether to track.
func (t *AnchorTable) Place(h uint64) (slot, held int, track bool) {
	if len(t.Entries) == 0 {
		return -1, -1, false
	}
	b := uint32(scale(h>>32, uint64(len(t.Entries))))
	e := t.Entries[b]
	held = -1
	for steps := 1; e&0xffff != 0; {
		n := e & 0xffff
		if n < t.Held && held < 0 {
			held = int(b)
		}
		if n < t.Track {
			track = true
		}
		b = uint32(scale(anchorMix(h, b), uint64(n)))
		for {
			if steps == AnchorSteps {
				return -1, -1, false
			}
			steps++
			e = t.Entries[b]
			if e&0xffff < n {
				break
			}
			b = e >> 16
		}
	}
	if held < 0 {
		held = int(b)
	}
	return int(b), held, track
}

// anchorMix is the hash family of the walk: 32 bits for bucket b.
func anchorMix(h uint64, b uint32) uint64 {
	x := h + uint64(b+1)*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x >> 32
}
