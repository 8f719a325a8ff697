package seats

import (
	"math/bits"
	"sync/atomic"

	"github.com/fairlead/fairlead/bpf"
)

// Stats of a sweep.
type Stats struct {
	// New, Live and Closing are the seats that are taken, by state; who has closed one
	// is about to free it.
	New, Live, Closing uint64
	Freed              uint64 // by this sweep
}

// Rule says how long the connection may be silent, in units, that is at a slot of this
// VIP; false: its VIP or server is no more. It is not asked of what is yet to show a
// cookie.
type Rule func(about *bpf.SeatAbout, slot uint32) (idle uint32, stays bool)

// Sweep frees the seats from first to below end whose connections are over or have
// been silent for too long, and moves counts to where they do not wrap. One that was
// moved to a server that is no more comes back. Packets go on meanwhile.
func (t *Table) Sweep(first, end uint32, unit uint16, rule Rule) (s Stats) {
	for at := first / 64; at < end/64; at++ {
		for taken := atomic.LoadUint64(&t.Taken[at]); taken != 0; taken &= taken - 1 {
			t.sweep(at*64+uint32(bits.TrailingZeros64(taken)), unit, rule, &s)
		}
	}
	return s
}

func (t *Table) sweep(i uint32, unit uint16, rule Rule, s *Stats) {
	w := t.load(i)
	idle, stays, count := uint32(bpf.SeatHandshake), true, &s.New
	switch w.State() {
	case bpf.SeatNone:
		return // a SYN has taken it and is about to write
	case bpf.SeatClosing:
		s.Closing++
		return // the same, or who closed it is about to free it
	case bpf.SeatLive:
		slot := w.Slot()
		if w.Moved() {
			if _, there := rule(&t.About[i], slot); !there {
				t.Back(i, w)
				w = t.load(i)
			}
			slot = t.About[i].Home
		}
		idle, stays = rule(&t.About[i], slot)
		count = &s.Live
	}
	if stays && w.Age(unit) <= idle {
		*count++
		t.Fold(i)
		return
	}
	// Whoever ends the word frees the seat: a packet that came meanwhile has changed it.
	if t.swap(i, w, 0) {
		t.free(i)
		s.Freed++
	}
}

// Fold moves what an entry has counted to its sums.
func (t *Table) Fold(i uint32) {
	n := atomic.LoadUint64(&t.Seats[i].Count)
	if n < one {
		return
	}
	atomic.AddUint64(&t.Seats[i].Count, -n)
	atomic.AddUint64(&t.About[i].Packets, n>>40)
	atomic.AddUint64(&t.About[i].Bytes, n&(one-1))
}

// Entry is a connection.
type Entry struct {
	Index          uint32
	Word           Word
	About          bpf.SeatAbout
	Packets, Bytes uint64
}

// Each calls f with the connections at seats from first to below end, until it
// returns false.
func (t *Table) Each(first, end uint32, f func(Entry) bool) {
	for at := first / 64; at < end/64; at++ {
		for taken := atomic.LoadUint64(&t.Taken[at]); taken != 0; taken &= taken - 1 {
			i := at*64 + uint32(bits.TrailingZeros64(taken))
			w := t.load(i)
			if w.State() == bpf.SeatNone || w.State() == bpf.SeatClosing {
				continue
			}
			n := atomic.LoadUint64(&t.Seats[i].Count)
			about := t.About[i]
			if t.load(i).Check() != w.Check() {
				continue // somebody else's now
			}
			if !f(Entry{i, w, about, about.Packets + n>>40, about.Bytes + n&(one-1)}) {
				return
			}
		}
	}
}
