package chash

import (
	"cmp"
	"fmt"
	"math"
)

// Anchor is AnchorHash over numbered buckets (Mendelson, Vargaftik, Barabash,
// Lorenz, Keslassy, Orda: "AnchorHash: A scalable consistent hash", IEEE/ACM
// ToN 2021), in the paper's full form (§4.2, 16 bytes a bucket) or in the
// form without the arrays W and L (8 bytes a bucket). Both place every key
// alike.
//
//	cost        look up: 1 + ln(capacity / working) hashes expected; remove:
//	            constant in the full form, in the other a few steps along
//	            replaced buckets; add: constant
//	memory      8 bytes a bucket, 16 in the full form, and 4 a removed bucket
//	balance     exact in expectation: only the keys' own randomness
//	disruption  remove: only the removed bucket's keys, evenly to all others;
//	            add: 1/(n+1) of each bucket's keys, to the added one
//	order       buckets return in the reverse order of their removal
type Anchor struct {
	buckets []anchorBucket
	removed []uint32 // R: a stack
	working uint32   // N
	// Of the full form: the bucket at each place, and each bucket's place.
	at, placeOf []uint32 // W, L
}

// anchorBucket holds A and K side by side: what asks for one asks for both.
type anchorBucket struct {
	left uint32 // A: buckets left when this one was removed; 0: it works
	// replacement is K: the bucket that took its place. While the bucket
	// works nobody asks for it: anchorHash keeps the server's handle there.
	replacement uint32
}

// NewAnchor makes capacity buckets, 1 to 2^31-1, of which the first working
// ones work. full keeps the paper's W and L.
//
// Errors: ErrCapacity.
func NewAnchor(capacity, working int, full bool) (*Anchor, error) {
	if capacity < 1 || capacity > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d buckets, want 1 to %d", ErrCapacity, capacity, math.MaxInt32)
	}
	if working < 0 || working > capacity {
		return nil, fmt.Errorf("%w: %d working of %d buckets; make the capacity greater", ErrCapacity, working, capacity)
	}
	a := &Anchor{
		buckets: make([]anchorBucket, capacity),
		removed: make([]uint32, 0, capacity-working),
		working: uint32(working),
	}
	for b := range a.buckets {
		a.buckets[b].replacement = uint32(b)
	}
	// Removing the last bucket of all leaves it its own place.
	for b := capacity - 1; b >= working; b-- {
		a.buckets[b].left = uint32(b)
		a.removed = append(a.removed, uint32(b))
	}
	if full {
		a.at, a.placeOf = make([]uint32, capacity), make([]uint32, capacity)
		for b := range a.at {
			a.at[b], a.placeOf[b] = uint32(b), uint32(b)
		}
	}
	return a, nil
}

// Working returns the number of buckets that work.
func (a *Anchor) Working() int { return int(a.working) }

// Capacity returns the number of all buckets.
func (a *Anchor) Capacity() int { return len(a.buckets) }

// Works tells whether a bucket, 0 to Capacity-1, works.
func (a *Anchor) Works(bucket int) bool { return a.buckets[bucket].left == 0 && a.working > 0 }

// Lookup returns the working bucket of a key, -1 if none works.
func (a *Anchor) Lookup(key uint64) int {
	if a.working == 0 {
		return -1
	}
	return int(a.lookup(key))
}

// lookup is Lookup, where none works the last bucket removed.
func (a *Anchor) lookup(key uint64) uint32 {
	b := uint32(scale(key>>32, uint64(len(a.buckets))))
	if n := a.buckets[b].left; n != 0 {
		return a.walk(key, b, n)
	}
	return b
}

// walk goes on from bucket b, which was removed when n were left.
func (a *Anchor) walk(key uint64, b, n uint32) uint32 {
	buckets := a.buckets
	for n != 0 {
		b = uint32(scale(anchorMix(key, b), uint64(n)))
		e := buckets[b]
		for ; e.left >= n; e = buckets[b] {
			b = e.replacement
		}
		n = e.left
	}
	return b
}

// Track is Lookup, and tells whether the key would go elsewhere if the last
// horizon buckets that were removed were added again (JET, §3.3): whether the
// key's walk meets one of them.
func (a *Anchor) Track(key uint64, horizon int) (bucket int, track bool) {
	if a.working == 0 {
		return -1, horizon > 0
	}
	b, track := a.track(key, a.working+uint32(horizon))
	return int(b), track
}

// track is Track: a bucket of the horizon has left < below.
func (a *Anchor) track(key uint64, below uint32) (bucket uint32, track bool) {
	buckets := a.buckets
	b := uint32(scale(key>>32, uint64(len(buckets))))
	// left falls along the walk: the last one above 0 is the least.
	least := below
	for n := buckets[b].left; n != 0; {
		least = n
		b = uint32(scale(anchorMix(key, b), uint64(n)))
		e := buckets[b]
		for ; e.left >= n; e = buckets[b] {
			b = e.replacement
		}
		n = e.left
	}
	return b, least < below
}

// Remove takes a bucket out of work. ErrUnknown if it does not work.
func (a *Anchor) Remove(bucket int) error {
	if bucket < 0 || bucket >= len(a.buckets) || !a.Works(bucket) {
		return fmt.Errorf("%w: bucket %d does not work; remove one that does, of 0 to %d", ErrUnknown, bucket, len(a.buckets)-1)
	}
	a.remove(uint32(bucket))
	return nil
}

func (a *Anchor) remove(b uint32) {
	a.working--
	// The last place becomes void: whoever sits there moves to b's.
	last := a.working
	if a.at != nil {
		moved := a.at[last]
		a.at[a.placeOf[b]], a.placeOf[moved] = moved, a.placeOf[b]
		last = moved
	} else {
		// The buckets that replaced each other in that place lead to it.
		for a.buckets[last].left != 0 {
			last = a.buckets[last].replacement
		}
	}
	a.buckets[b] = anchorBucket{a.working, last}
	a.removed = append(a.removed, b)
}

// Add puts the bucket that was removed last to work again and returns its
// number. ErrCapacity if all buckets work.
func (a *Anchor) Add() (int, error) {
	if len(a.removed) == 0 {
		return -1, fmt.Errorf("%w: all %d buckets work; more need an Anchor made anew, which moves most keys", ErrCapacity, len(a.buckets))
	}
	return int(a.add()), nil
}

func (a *Anchor) add() uint32 {
	b := a.removed[len(a.removed)-1]
	a.removed = a.removed[:len(a.removed)-1]
	if a.at != nil {
		a.placeOf[a.at[a.working]] = a.working
		a.at[a.placeOf[b]] = b
	}
	a.buckets[b] = anchorBucket{0, b}
	a.working++
	return b
}

// anchorHash is Anchor with names. Its horizon is a number: the next ones to
// be added, whatever their names, take the buckets that were removed last. A
// parked server holds one place of that number and no bucket of its own.
type anchorHash struct {
	roster
	Anchor
	bucket []int32 // by Node, of those that work
	spare  int     // part of the horizon that no server is named for
}

var _ = register(KindAnchor, implementation{new: newAnchor, compile: compileAnchor})

func newAnchor(o Options, servers []Server) (Hash, error) {
	capacity, err := bucketsFor(KindAnchor, o, len(servers))
	if err != nil {
		return nil, err
	}
	a, err := NewAnchor(capacity, len(servers), o.AnchorFull)
	if err != nil {
		return nil, err
	}
	h := &anchorHash{roster: newRoster(KindAnchor), Anchor: *a, spare: o.Horizon}
	if len(servers) == 0 {
		h.buckets[0].replacement = noReplacement
	}
	for b, s := range servers {
		h.settle(h.put(s.Name, inWorking, s.Weight), uint32(b))
	}
	return h, nil
}

// bucketsFor is the capacity that Options give a hash with a fixed number of
// buckets.
func bucketsFor(k Kind, o Options, servers int) (int, error) {
	capacity := o.Capacity
	capacity = cmp.Or(capacity, DefaultCapacity(servers, o.Horizon))
	if servers > capacity {
		return 0, fmt.Errorf("%w: %d servers for %s's %d buckets; make the capacity greater", ErrCapacity, servers, k, capacity)
	}
	if servers+o.Horizon > capacity {
		return 0, fmt.Errorf("%w: %d servers and a horizon of %d for %s's %d buckets; make the capacity greater or the horizon less",
			ErrHorizon, servers, o.Horizon, k, capacity)
	}
	return capacity, nil
}

func (h *anchorHash) settle(n Node, b uint32) {
	for int(n) >= len(h.bucket) {
		h.bucket = append(h.bucket, -1)
	}
	h.buckets[b].replacement, h.bucket[n] = uint32(n), int32(b)
}

func (h *anchorHash) Len() (working, horizon int) {
	return h.count[inWorking], h.count[inHorizon] + h.spare
}

// noReplacement stands in the bucket that ends all walks while none works.
const noReplacement = math.MaxUint32 // uint32(NoNode)

func (h *anchorHash) Lookup(key uint64) Node {
	b := uint32(scale(key>>32, uint64(len(h.buckets))))
	e := h.buckets[b]
	if e.left != 0 {
		e = h.buckets[h.walk(key, b, e.left)]
	}
	return Node(int32(e.replacement))
}

func (h *anchorHash) Track(key uint64) (Node, bool) {
	horizon := h.count[inHorizon] + h.spare
	if h.working == 0 {
		return NoNode, horizon > 0
	}
	b, track := h.track(key, h.working+uint32(horizon))
	return Node(h.buckets[b].replacement), track
}

// Add takes the bucket that was removed last. A server that was not parked
// uses up a spare of the horizon, if there is one; if not, connections that
// it would move were not tracked (JET's warm-up: park it first).
func (h *anchorHash) Add(name string, weight int) error {
	_, from, err := h.check(name, inWorking, weight)
	if err != nil {
		return err
	}
	if from == nowhere {
		switch {
		case h.spare > 0:
			h.spare--
		case len(h.removed) == 0:
			return h.full(name)
		case h.count[inHorizon] == len(h.removed):
			return fmt.Errorf("%w: server %q would take a bucket that the horizon of %d holds; remove one that is parked, or add that",
				ErrHorizon, name, h.count[inHorizon])
		}
	}
	h.settle(h.put(name, inWorking, weight), h.add())
	return nil
}

func (h *anchorHash) full(name string) error {
	return fmt.Errorf("%w: server %q: all %d buckets are taken; remove a server, or make a hash with a greater capacity (most keys move)",
		ErrCapacity, name, len(h.buckets))
}

func (h *anchorHash) Remove(name string) error {
	n, in := h.find(name)
	switch in {
	case nowhere:
		return unknown(name)
	case inWorking:
		h.unsettle(n)
	}
	h.drop(n)
	return nil
}

func (h *anchorHash) unsettle(n Node) {
	b := uint32(h.bucket[n])
	h.remove(b)
	h.bucket[n] = -1
	if h.working == 0 {
		h.buckets[b].replacement = noReplacement
	}
}

func (h *anchorHash) Park(name string, weight int) error {
	n, from, err := h.check(name, inHorizon, weight)
	if err != nil {
		return err
	}
	if from == nowhere {
		if len(h.removed) == 0 {
			return h.full(name)
		}
		if h.count[inHorizon]+h.spare == len(h.removed) {
			return fmt.Errorf("%w: server %q: all %d buckets without a server are in the horizon already; make a hash with a greater capacity",
				ErrHorizon, name, len(h.removed))
		}
	} else {
		h.unsettle(n)
	}
	h.put(name, inHorizon, weight)
	return nil
}
