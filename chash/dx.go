package chash

import (
	"fmt"
	"math/bits"
)

// dx is DxHash (Dong and Wang: "DxHash: A scalable consistent hash based on
// the pseudo-random sequence", arXiv 2107.07930): a fixed number of buckets,
// a bit for each that works; a key visits buckets in a pseudo-random order of
// its own and takes the first that works. No bucket knows of another, so
// servers leave and return in any order, and a pool may shrink far below its
// capacity: AnchorHash then takes more hashes in a row, each over memory that
// is cold, and keeps eight bytes where this keeps two bits.
//
// Where the paper gives up after 8 × capacity visits and takes any server,
// keys go on from bucket to bucket from there (one key in 3,000 while one
// server works, in 10^7 while two do, none ever from ten on), so that even
// they move only with their own server.
//
// With names (this Hash) a server keeps its bucket while it works or is
// parked; a new one takes the lowest spare of the horizon, else the lowest
// that is free. Compiled, a server's bucket is its Number.
//
//	cost        look up: capacity / working visits expected; changes: constant
//	            (a scan of bits for a new name)
//	memory      2 bits and 4 bytes of handle a bucket
//	balance     exact in expectation: only the keys' own randomness
//	disruption  the least there can be, on add and on remove
//	order       of removals and additions does not matter, as long as servers
//	            keep their buckets
type dx struct {
	roster
	visits
	horizon bitmap
	node    []Node  // by bucket
	bucket  []int32 // by Node
	spare   int     // buckets of the horizon that no server is named for
}

type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (m bitmap) has(i uint32) bool { return m[i>>6]>>(i&63)&1 != 0 }
func (m bitmap) set(i uint32)      { m[i>>6] |= 1 << (i & 63) }
func (m bitmap) clear(i uint32)    { m[i>>6] &^= 1 << (i & 63) }

// visits is the buckets that work, of which at least one must for first to
// end.
type visits struct {
	works    bitmap
	capacity uint64
}

// dxStep is the pseudo-random order of a key's visits: a linear congruential
// generator that starts from the key, of which the upper half counts.
func dxStep(x uint64) uint64 { return x*0xd1342543de82ef95 + 0x9e3779b97f4a7c15 }

// first returns the bucket that a key takes.
func (v *visits) first(key uint64) uint32 {
	b := uint32(scale(key>>32, v.capacity))
	if v.works.has(b) {
		return b
	}
	return v.next(key)
}

func (v *visits) next(key uint64) uint32 {
	for range 8 * v.capacity {
		key = dxStep(key)
		if b := uint32(scale(key>>32, v.capacity)); v.works.has(b) {
			return b
		}
	}
	b := uint32(scale(key>>32, v.capacity))
	for !v.works.has(b) {
		b = uint32((uint64(b) + 1) % v.capacity)
	}
	return b
}

// firstTrack is first, and tells whether the key meets a bucket of other
// earlier.
func (v *visits) firstTrack(key uint64, other bitmap) (bucket uint32, met bool) {
	b := uint32(scale(key>>32, v.capacity))
	for range 8 * v.capacity {
		if v.works.has(b) {
			return b, met
		}
		met = met || other.has(b)
		key = dxStep(key)
		b = uint32(scale(key>>32, v.capacity))
	}
	for !v.works.has(b) {
		met = met || other.has(b)
		b = uint32((uint64(b) + 1) % v.capacity)
	}
	return b, met
}

var _ = register(KindDx, implementation{new: newDx, owners: dxOwners})

func newDx(o Options, servers []Server) (Hash, error) {
	capacity, err := bucketsFor(KindDx, o, len(servers))
	if err != nil {
		return nil, err
	}
	d := &dx{
		roster:  newRoster(KindDx),
		visits:  visits{newBitmap(capacity), uint64(capacity)},
		horizon: newBitmap(capacity),
		node:    make([]Node, capacity),
		spare:   o.Horizon,
	}
	for b := range d.node {
		d.node[b] = NoNode
	}
	for b, s := range servers {
		d.settle(d.put(s.Name, inWorking, s.Weight), uint32(b))
		d.works.set(uint32(b))
	}
	for b := range o.Horizon {
		d.horizon.set(uint32(len(servers) + b))
	}
	return d, nil
}

func (d *dx) settle(n Node, b uint32) {
	for int(n) >= len(d.bucket) {
		d.bucket = append(d.bucket, -1)
	}
	d.node[b], d.bucket[n] = n, int32(b)
}

// Len returns the number of servers that work, and in the horizon, spare
// buckets included.
func (d *dx) Len() (working, horizon int) {
	return d.count[inWorking], d.count[inHorizon] + d.spare
}

// Lookup implements Hash.
func (d *dx) Lookup(key uint64) Node {
	if d.count[inWorking] == 0 {
		return NoNode
	}
	return d.node[d.first(key)]
}

// Track implements Hash.
func (d *dx) Track(key uint64) (Node, bool) {
	if d.count[inWorking] == 0 {
		return NoNode, d.count[inHorizon]+d.spare > 0
	}
	b, track := d.firstTrack(key, d.horizon)
	return d.node[b], track
}

// Add implements Hash. A server that was not parked takes a spare bucket of
// the horizon; without one, connections that it takes were not tracked (JET's
// warm-up: park it first).
func (d *dx) Add(name string, weight int) error {
	n, from, err := d.check(name, inWorking, weight)
	if err != nil {
		return err
	}
	var b uint32
	if from == inHorizon {
		b = uint32(d.bucket[n])
	} else if b, err = d.bucketForNew(name); err != nil {
		return err
	}
	d.settle(d.put(name, inWorking, weight), b)
	d.horizon.clear(b)
	d.works.set(b)
	return nil
}

// bucketForNew finds the lowest spare, else the lowest free bucket.
func (d *dx) bucketForNew(name string) (uint32, error) {
	if d.spare > 0 {
		for b := range uint32(d.capacity) {
			if d.horizon.has(b) && d.node[b] == NoNode {
				d.spare--
				return b, nil
			}
		}
	}
	return d.freeBucket(name)
}

func (d *dx) freeBucket(name string) (uint32, error) {
	for i := range d.works {
		if taken := d.works[i] | d.horizon[i]; taken != ^uint64(0) {
			if b := uint32(i*64 + bits.TrailingZeros64(^taken)); uint64(b) < d.capacity {
				return b, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: server %q: all %d buckets are taken or in the horizon; remove a server, or make a hash with a greater capacity (most keys move)",
		ErrCapacity, name, d.capacity)
}

// Remove implements Hash.
func (d *dx) Remove(name string) error {
	n, in := d.find(name)
	if in == nowhere {
		return unknown(name)
	}
	b := uint32(d.bucket[n])
	d.works.clear(b)
	d.horizon.clear(b)
	d.node[b], d.bucket[n] = NoNode, -1
	d.drop(n)
	return nil
}

// Park implements Hash.
func (d *dx) Park(name string, weight int) error {
	n, from, err := d.check(name, inHorizon, weight)
	if err != nil {
		return err
	}
	var b uint32
	if from == inWorking {
		b = uint32(d.bucket[n])
	} else if b, err = d.freeBucket(name); err != nil {
		return err
	}
	d.settle(d.put(name, inHorizon, weight), b)
	d.works.clear(b)
	d.horizon.set(b)
	return nil
}

// dxOwners visits buckets for each row's key.
func dxOwners(s Spec, members []weighed) ([]int32, error) {
	if err := checkBuckets(s.Capacity); err != nil {
		return nil, err
	}
	v := visits{newBitmap(s.Capacity), uint64(s.Capacity)}
	index := make([]int32, s.Capacity)
	for i, m := range members {
		if m.Number >= s.Capacity {
			return nil, beyond(m.Name, m.Number, s.Capacity)
		}
		v.works.set(uint32(m.Number))
		index[m.Number] = int32(i)
	}
	rows := make([]int32, s.Rows)
	for r := range rows {
		rows[r] = index[v.first(rowKey(r))]
	}
	return rows, nil
}
