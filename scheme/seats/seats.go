// Package seats is what a balancer of scheme cheetah-stateful (NSDI'20, §3.2) knows
// of each connection: three arrays of as many seats, which the cookies name. It is
// the model of bpf/lb/seats.h, and what the daemon sweeps and reads the very memory
// with that packets write; differential tests hold the two together. No I/O, no
// clock. bpf/include/balancer.h draws the entries.
package seats

import (
	"math/bits"
	"sync/atomic"

	"github.com/fairlead/fairlead/bpf"
)

// Bounds of a seat's width in a cookie.
const (
	MinBits = 3
	MaxBits = 10
)

// Table is the seats of a balancer. Its memory may be a map's, which packets change
// meanwhile.
type Table struct {
	Seats []bpf.Seat
	Taken []uint64 // a bit a seat
	About []bpf.SeatAbout
}

// Size is how many seats there are for so many connections: whole partitions of any
// width, at least one.
func Size(connections int) int {
	return max(1, (connections+1<<MaxBits-1)>>MaxBits) << MaxBits
}

// New is a table of n seats, a multiple of 1<<MaxBits, all of which are free.
func New(n int) *Table {
	return &Table{make([]bpf.Seat, n), make([]uint64, n/64), make([]bpf.SeatAbout, n)}
}

// Unit is a time of the shared clock as entries hold it.
func Unit(ms uint32) uint16 { return uint16(ms >> 10) }

// Word is an entry's word.
type Word uint64

func (w Word) Check() uint32        { return uint32(w >> 32) }
func (w Word) Unit() uint16         { return uint16(w >> 16) }
func (w Word) State() bpf.SeatState { return bpf.SeatState(w >> 12 & 3) }
func (w Word) Slot() uint32         { return uint32(w & 0xfff) }

// Moved: its packets go to that slot, whatever their cookie says.
func (w Word) Moved() bool { return w>>14&1 == 1 }

// Any is the slot of an entry whose connection has shown no cookie yet.
const Any = bpf.SeatAny

const slack = 64 // units by which clocks may differ, and go back

// Age is how many units ago its packet was.
func (w Word) Age(unit uint16) uint32 {
	if age := unit - w.Unit() + slack; age >= slack {
		return uint32(age) - slack
	}
	return 0
}

func word(hash uint64, unit uint16, state bpf.SeatState, slot uint32) Word {
	return Word(hash>>32<<32 | uint64(unit)<<16 | uint64(state)<<12 | uint64(slot&0xfff))
}

// First is the first seat of the partition that a hash chooses.
func (t *Table) First(hash uint64, width int) uint32 {
	return uint32(uint64(uint32(hash))*uint64(len(t.Seats)>>width)>>32) << width
}

// Word is what stands at seat i.
func (t *Table) Word(i uint32) Word { return t.load(i) }

func (t *Table) load(i uint32) Word { return Word(atomic.LoadUint64(&t.Seats[i].Word)) }

func (t *Table) swap(i uint32, from, to Word) bool {
	return atomic.CompareAndSwapUint64(&t.Seats[i].Word, uint64(from), uint64(to))
}

func (t *Table) free(i uint32) { atomic.AndUint64(&t.Taken[i/64], ^(uint64(1) << (i % 64))) }

// claim: the seat was free, and is taken now.
func (t *Table) claim(i uint32) bool {
	return atomic.OrUint64(&t.Taken[i/64], 1<<(i%64))>>(i%64)&1 == 0
}

// Packet is what of a packet concerns seats. It has a hash under each epoch.
type Packet struct {
	Hash [2]uint64
	Unit uint16
	Len  int
	// Closes: FIN or RST.
	Closes bool
}

// Outcome of a known packet's look at its seat.
type Outcome int

const (
	Hit   Outcome = iota
	None          // its cookie has no seat
	Wrong         // the seat is not its connection's
)

// Touch counts a known packet at the seat that its cookie names, of a VIP whose seats
// have that width; epoch is its cookie's, other the one to try where both live (-1:
// none). Where it hit, i is the seat and was what stood there, which says where the
// packet goes if that was moved.
func (t *Table) Touch(p Packet, width, epoch, other int, slot, seat uint32) (o Outcome, i uint32, was Word) {
	if seat == 0 {
		return None, 0, 0
	}
	hash := p.Hash[epoch]
	i = t.First(hash, width) + seat
	is := func(w Word) bool { return w.Check() == uint32(hash>>32) && w.State() != bpf.SeatNone }
	w := t.load(i)
	if !is(w) {
		if other < 0 {
			return Wrong, 0, 0
		}
		hash = p.Hash[other]
		i = t.First(hash, width) + seat
		if w = t.load(i); !is(w) {
			return Wrong, 0, 0
		}
	}
	next := func(s bpf.SeatState) Word {
		if w.Moved() {
			return word(hash, p.Unit, s, w.Slot()) | moved
		}
		return word(hash, p.Unit, s, slot)
	}
	switch closing := w.State() == bpf.SeatClosing; {
	case !closing && !p.Closes:
		t.swap(i, w, next(bpf.SeatLive))
	case !closing:
		if t.swap(i, w, next(bpf.SeatClosing)) {
			t.free(i)
		}
	case p.Closes || w.Age(p.Unit) < bpf.SeatRevive:
	case t.claim(i):
		if !t.swap(i, w, next(bpf.SeatLive)) {
			t.free(i)
		}
	}
	atomic.AddUint64(&t.Seats[i].Count, one|uint64(p.Len))
	return Hit, i, w
}

const one = 1 << 40 // a packet in a count

const moved = 1 << 14 // in a word

// Move has packets of the connection at seat i, where w was read, go to another slot
// than their cookies say. False: w stands there no more, or what it says of is new or
// over.
func (t *Table) Move(i uint32, w Word, to uint32) bool {
	if w.State() != bpf.SeatLive {
		return false
	}
	if !w.Moved() {
		atomic.StoreUint32(&t.About[i].Home, w.Slot())
	}
	return t.swap(i, w, w&^0xfff|moved|Word(to&0xfff))
}

// Back has them go by their cookies again.
func (t *Table) Back(i uint32, w Word) bool {
	return w.Moved() && t.swap(i, w, w&^(moved|0xfff)|Word(atomic.LoadUint32(&t.About[i].Home)&0xfff))
}

// Open gives the connection of a SYN a seat. about says whose it is. The number is
// its seat's within the partition, 0: the partition was full.
func (t *Table) Open(p Packet, width, epoch int, about bpf.SeatAbout) uint32 {
	hash := p.Hash[epoch]
	first := t.First(hash, width)
	w := word(hash, p.Unit, bpf.SeatNew, Any)
	seat := t.search(first, width, hash)
	if seat == 0 {
		seat = uint32(hash >> 36 & (1<<width - 1))
		was := t.load(first + seat)
		if seat == 0 || was.State() != bpf.SeatNew || was.Age(p.Unit) < bpf.SeatHurry || !t.swap(first+seat, was, w) {
			return 0
		}
	}
	t.About[first+seat] = about
	atomic.StoreUint64(&t.Seats[first+seat].Count, one|uint64(p.Len))
	atomic.StoreUint64(&t.Seats[first+seat].Word, uint64(w))
	return seat
}

func (t *Table) search(first uint32, width int, hash uint64) uint32 {
	last, mine := uint32(1)<<max(width-6, 0)-1, ^uint64(0)
	if width < 6 {
		mine = (1<<(1<<width) - 1) << (first % 64)
	}
	turn := uint32(hash >> 40)
	for i := range last + 2 {
		at := first/64 + (turn+i)&last
		usable := mine
		if at == first/64 {
			usable &^= 1 << (first % 64)
		}
		free := ^atomic.LoadUint64(&t.Taken[at]) & usable
		if free == 0 {
			continue
		}
		if later := free & (^uint64(0) << (hash >> 34 & 63)); later != 0 {
			free = later
		}
		if i := at*64 + uint32(bits.TrailingZeros64(free)); t.claim(i) {
			return i - first
		}
	}
	return 0
}
