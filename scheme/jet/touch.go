package jet

import "github.com/fairlead/fairlead/bpf"

// Event is what a packet means to its flow's entry.
type Event uint8

const (
	// Open is a packet that opens a connection: a SYN alone, a QUIC Initial.
	Open Event = iota
	// Data is any other.
	Data
	// Close is a FIN or an RST.
	Close
	// Peek is an ICMP error about the flow, which changes nothing.
	Peek
)

// Line says of an entry's server what decides whether the entry is followed.
type Line uint8

const (
	// Closed takes no new connections (FL_LINE_CLOSED).
	Closed Line = 1 << iota
	// Down is down by its health checks (FL_LINE_DOWN).
	Down
	// NoServer: the slot names none.
	NoServer
)

// Outcome of touching an entry.
type Outcome uint8

const (
	// Hit: the packet goes where the entry says.
	Hit Outcome = iota
	// Stale: the entry's server is no more, or takes no new connections and
	// the packet opens one. The packet is placed anew, and where it may make an entry, it
	// makes one in any case, tracked or not: otherwise what follows it would
	// find the old one.
	Stale
)

// Windows within which a renewal is not told to other balancers again, as
// powers of two of units: 32 for UDP, 1,024 for TCP.
const (
	windowUDP = 5
	windowTCP = 10
)

// Touch does to an entry that Find found what the packet's event does, at
// time unit. line is what is known of the server of its slot. share says that
// other balancers are told the entry as it is now, where the VIP shares.
func Touch(e *Entry, unit uint16, tcp bool, event Event, line Line) (o Outcome, share bool) {
	old := *e
	was := old.State()
	// What opens may be forged: it takes no flow that may be alive from a server
	// that is up. One that was confirmed may be, and if a FIN or RST followed,
	// which may be forged, for a while. A datagram's Fading is of one packet.
	refuses := Down
	if !was.confirmed() && !(tcp && was == Fading && !old.Expired(unit)) {
		refuses |= Closed
	}
	switch {
	case line&NoServer != 0, !tcp && line&Down != 0, event == Open && line&refuses != 0:
		return Stale, false
	case event == Peek, event != Data && was == New:
		// What nothing has confirmed changes by data alone: it is never Fading,
		// which gives way behind it, nor younger than its first packet.
		return Hit, false
	}
	now, used := was, unit
	switch {
	case event == Close:
		now = Fading
	case event == Open && tcp && was == Fading:
		// A used port: with the server of the connection before, and data
		// behind the SYN is none that was still on its way at the FIN.
		used -= bpf.FlowRevive
	case event == Open, was.confirmed():
	case !tcp:
		now = Datagram
	case was == Fading && old.age(unit) < bpf.FlowRevive+bpf.FlowSlack:
		return Hit, false // its age counts from the FIN
	default:
		now = Confirmed
	}
	if now == was && old.Time() == used {
		return Hit, false
	}
	*e = old&^0xffffc000 | Entry(used)<<16 | Entry(now)<<14
	switch {
	case now != was:
		share = true // and nothing becomes New, which is never told
	case now == Confirmed:
		share = (old.Time()^unit)>>windowTCP != 0
	case now == Datagram:
		share = (old.Time()^unit)>>windowUDP != 0
	}
	return Hit, share
}

// Inserted is what became of an insertion.
type Inserted uint8

const (
	// Made: in place of its own, an empty or an expired entry.
	Made Inserted = iota
	// Replaced: a live one of another flow gave way (flow_replaced), not one
	// that is Expired.
	Replaced
	// Full: refused, all of the set's are live and confirmed (flow_full).
	Full
	// Kept: refused what another balancer told, for the sake of the flow's own
	// entry (Told).
	Kept
)

// Insert remembers that x goes to slot, in this state, used at time unit. It
// takes its own entry; else an empty one; else the oldest that has expired;
// else the oldest that nothing has confirmed, if there are several; else the
// oldest that fades; else the one that nothing has confirmed. A confirmed one
// never gives way.
//
// What nothing has confirmed goes before what fades, as a flood makes the one
// and forged RSTs the other. But one alone stays: it may be a connection whose
// next packet is on its way, and what fades is most often over.
func (f *Flows) Insert(x uint64, slot int, unit uint16, s State) Inserted {
	b := f.set(x)
	if i, ok := b.free(x); ok {
		b.put(i, x, slot, unit, s)
		return Made
	}
	// All seven are used. The rank of an entry is what it has to go for, then
	// its age; the first of equals goes.
	fresh := 0
	for _, e := range b.Entry {
		if e.State() == New {
			fresh++
		}
	}
	at, best := -1, uint32(0)
	for i, e := range b.Entry {
		rank := uint32(0)
		switch {
		case e.Expired(unit):
			rank = 0x40000
		case e.State() == New && fresh > 1:
			rank = 0x30000
		case e.State() == Fading:
			rank = 0x20000
		case e.State() == New:
			rank = 0x10000
		default:
			continue
		}
		if rank |= uint32(e.age(unit)); rank > best {
			at, best = i, rank
		}
	}
	if at < 0 {
		return Full
	}
	expired := b.Entry[at].Expired(unit)
	b.put(at, x, slot, unit, s)
	if expired {
		return Made
	}
	return Replaced
}

// Told is Insert of a flow that another balancer told. A live entry of the
// flow that is Confirmed or Datagram and names another server stays: it may be
// newer than what was on its way, and packets here go by it.
func (f *Flows) Told(x uint64, slot int, unit uint16, s State) Inserted {
	if e := f.set(x).find(x); e != nil && !e.Expired(unit) && e.Slot() != slot&MaxSlot && e.State().confirmed() {
		return Kept
	}
	return f.Insert(x, slot, unit, s)
}

// InsertLRU is Insert as full connection tracking does it: where neither its
// own nor an empty entry is there, the one used longest ago gives way.
func (f *Flows) InsertLRU(x uint64, slot int, unit uint16, s State) Inserted {
	b := f.set(x)
	if i, ok := b.free(x); ok {
		b.put(i, x, slot, unit, s)
		return Made
	}
	at, best := 0, b.Entry[0].age(unit)
	for i, e := range b.Entry[1:] {
		if a := e.age(unit); a > best {
			at, best = i+1, a
		}
	}
	expired := b.Entry[at].Expired(unit)
	b.put(at, x, slot, unit, s)
	if expired {
		return Made
	}
	return Replaced
}
