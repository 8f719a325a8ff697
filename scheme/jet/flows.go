// Package jet is the Go model of JET's connection tracking ("Load Balancing
// with JET: Just Enough Tracking for Connection Consistency", Mendelson,
// Vargaftik, Lorenz, Barabash, Keslassy, Orda, CoNEXT 2021): the
// flow table that remembers the few connections which a coming change of the
// pool would move. It is the same table, bit for bit, as the one that bpf/lb
// keeps in its map `flows` (bpf/lb/flows.h), and full connection tracking uses
// it with another rule for what gives way.
//
//	x      = 64 random bits of the flow      set = low half, scaled
//	                                         tag    = its lowest 7 bits
//	                                         fingerprint = high half
//
// A set is one cache line: eight tag bytes, of which the last is unused,
// and seven entries. A look-up compares all tags in one word and reads nothing
// else where none fits. No I/O, no clock, no allocation.
package jet

import (
	"math/bits"

	"github.com/fairlead/fairlead/bpf"
)

// State of an entry (fl_flow_state).
type State uint8

const (
	// New is a flow of which one packet was seen, which anybody may have
	// forged. It is the first to give way.
	New State = iota
	// Confirmed is a TCP connection that went on.
	Confirmed
	// Fading is a TCP connection that went on, behind a FIN or RST: over,
	// unless somebody forged that. It gives way behind what is New.
	Fading
	// Datagram is a flow of UDP that went on.
	Datagram
)

func (s State) String() string { return [...]string{"new", "confirmed", "fading", "datagram"}[s&3] }

func (s State) confirmed() bool { return s == Confirmed || s == Datagram }

// First is the state in which a flow enters the table. In full tracking, where
// nothing gives way by its state, a datagram's is Fading, and not aged.
func First(tcp, full bool) State {
	if tcp || !full {
		return New
	}
	return Fading
}

// Unit is the length of the table's unit of time in milliseconds.
const Unit = 1024

// idle is how long an entry is worth something after its last packet, in
// units, by state (fl_flow_times says why).
var idle = [4]uint16{New: bpf.FlowLong, Confirmed: bpf.FlowLong, Fading: bpf.FlowShort, Datagram: bpf.FlowShort}

// Idle is how long an entry in this state is worth something after its last
// packet, in units of 1.024 s.
func (s State) Idle() uint16 { return idle[s&3] }

// Known is how long the flow's packets find an entry in this state after its
// last packet, in units of 1.024 s: Idle, but for TCP's that fades, which is
// as long known as a live one, while nobody needs its place.
func (s State) Known(tcp bool) uint16 {
	if tcp && s == Fading {
		return bpf.FlowLong
	}
	return s.Idle()
}

// Entry is fingerprint << 32 | unit << 16 | state << 14 | slot.
type Entry uint64

// Key is where a TCP connection stands in the table, and what it is known by there: hash
// is that of its client's side. Ports as people write them.
func Key(vip uint32, hash uint64, client, service uint16) uint64 {
	ports := uint64(bits.ReverseBytes16(client))<<16 | uint64(bits.ReverseBytes16(service))
	return Datagrams(vip, hash) + ports*0xd6e8feb86659fd93
}

// Datagrams is the same of what has no ports to tell connections apart by.
func Datagrams(vip uint32, hash uint64) uint64 { return hash + uint64(vip)*0x9e3779b97f4a7c15 }

// MaxSlot is the largest slot that an entry holds.
const MaxSlot = 1<<14 - 1

func entry(x uint64, slot int, unit uint16, s State) Entry {
	return Entry(x>>32<<32 | uint64(unit)<<16 | uint64(s&3)<<14 | uint64(slot)&MaxSlot)
}

// Slot of the server.
func (e Entry) Slot() int { return int(e & MaxSlot) }

// State of the entry.
func (e Entry) State() State { return State(e >> 14 & 3) }

// Time of the last packet, in units, modulo 2^16.
func (e Entry) Time() uint16 { return uint16(e >> 16) }

// age is the entry's age in units plus slack.
func (e Entry) age(unit uint16) uint16 { return unit - e.Time() + bpf.FlowSlack }

// Age makes a New entry that was just inserted one that ends in two minutes.
func (e *Entry) Age() { *e = *e&^0xffff0000 | Entry(e.Time()-bpf.FlowAged)<<16 }

// Plain is the entry as it may be inserted elsewhere with another time: one
// that is New and Aged (or of TCP and silent for nearly two hours) is Fading,
// which counts for the two minutes that it has, and bears its packet's time.
func (e Entry) Plain(unit uint16) Entry {
	if e.State() != New || e.age(unit) < bpf.FlowAged+bpf.FlowSlack {
		return e
	}
	return e&^0xffffc000 | Entry(e.Time()+bpf.FlowAged)<<16 | Entry(Fading)<<14
}

// Expired says that the entry is worth nothing any more: it was not used for
// longer than Idle. It does not count as live.
func (e Entry) Expired(unit uint16) bool { return e.age(unit) > idle[e.State()]+bpf.FlowSlack }

// Gone says that the flow's packets do not find the entry any more: it was not
// used for longer than Known. An entry does not say whether it is TCP's: who
// looks at one without a packet takes it for that.
func (e Entry) Gone(unit uint16, tcp bool) bool {
	return e.age(unit) > e.State().Known(tcp)+bpf.FlowSlack
}

// Ways is the number of entries in a set.
const Ways = bpf.FlowWays

// FlowSet is one cache line (fl_flow_set). Byte i of Tags belongs to entry i;
// 0 is an empty one, whatever its entry says; byte 7 is always 0.
type FlowSet struct {
	Tags  uint64
	Entry [Ways]Entry
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	used  = 0x0080808080808080 // the tags' bytes
)

func tagOf(x uint64) uint64 { return 0x80 | x&0x7f }

// match is the highest bit of each byte of Tags that is x's tag; exact.
func (b *FlowSet) match(x uint64) uint64 {
	v := b.Tags ^ tagOf(x)*ones
	return ^(v&^highs + ^uint64(highs) | v) & highs
}

// Flows is the table: memory 64 bytes a set. Its zero value is not usable.
// Not for concurrent use.
type Flows struct {
	Sets []FlowSet
}

// NewFlows has the given number of sets of seven entries, 1 at least. Of
// flows that fall on sets by chance, 0.07 % find theirs full at two flows a
// set in the mean, 0.6 % at three, 5 % at five.
func NewFlows(sets int) *Flows { return &Flows{make([]FlowSet, max(sets, 1))} }

func (f *Flows) set(x uint64) *FlowSet {
	return &f.Sets[uint64(uint32(x))*uint64(len(f.Sets))>>32]
}

// Index is the set of x.
func (f *Flows) Index(x uint64) int { return int(uint64(uint32(x)) * uint64(len(f.Sets)) >> 32) }

// find is the entry of x, gone or not; nil: none.
func (b *FlowSet) find(x uint64) *Entry {
	for m := b.match(x); m != 0; m &= m - 1 {
		if e := &b.Entry[bits.TrailingZeros64(m)>>3]; uint64(*e)>>32 == x>>32 {
			return e
		}
	}
	return nil
}

// Find is the entry of x, nil where there is none or one that is gone. It
// changes nothing: Touch does. unit is the time now in units.
func (f *Flows) Find(x uint64, unit uint16, tcp bool) *Entry {
	e := f.set(x).find(x)
	if e == nil || e.Gone(unit, tcp) {
		return nil
	}
	return e
}

// Lookup is Find and Touch in one, for a TCP connection's later packet whose
// server is up: its slot, -1 where it is not tracked.
func (f *Flows) Lookup(x uint64, unit uint16) int {
	b := f.set(x)
	for m := b.match(x); m != 0; m &= m - 1 {
		e := &b.Entry[bits.TrailingZeros64(m)>>3]
		if uint64(*e)>>32 != x>>32 {
			continue
		}
		if e.State() == Confirmed && e.Time() == unit {
			return e.Slot()
		}
		if e.Gone(unit, true) {
			return -1
		}
		Touch(e, unit, true, Data, 0)
		return e.Slot()
	}
	return -1
}

// free is x's own entry or the first empty one.
func (b *FlowSet) free(x uint64) (i int, ok bool) {
	for m := b.match(x); m != 0; m &= m - 1 {
		if i := bits.TrailingZeros64(m) >> 3; uint64(b.Entry[i])>>32 == x>>32 {
			return i, true
		}
	}
	if m := ^b.Tags & used; m != 0 { // a used tag has its highest bit set
		return bits.TrailingZeros64(m) >> 3, true
	}
	return 0, false
}

func (b *FlowSet) put(i int, x uint64, slot int, unit uint16, s State) {
	shift := uint(i) * 8
	b.Tags = b.Tags&^(0xff<<shift) | tagOf(x)<<shift
	b.Entry[i] = entry(x, slot, unit, s)
}

// Sweep clears the entries that are gone of count sets from first on, as
// far as the table goes, and counts: live entries (not Expired), those of them
// that are confirmed (Confirmed and Datagram), and what was cleared.
func (f *Flows) Sweep(first, count int, unit uint16) (live, confirmed, cleared int) {
	for i := first; i < min(first+count, len(f.Sets)); i++ {
		b := &f.Sets[i]
		for m := b.Tags & used; m != 0; m &= m - 1 {
			at := bits.TrailingZeros64(m)
			switch e := b.Entry[at>>3]; {
			case e.Gone(unit, true):
				b.Tags &^= 0xff << (at - 7)
				b.Entry[at>>3] = 0
				cleared++
				continue
			case e.Expired(unit):
				continue
			case e.State().confirmed():
				confirmed++
			}
			live++
		}
	}
	return live, confirmed, cleared
}
