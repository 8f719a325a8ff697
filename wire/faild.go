package wire

import "fmt"

// A Faild MAC names, in the destination address of an Ethernet frame, the
// server that a switch sends it to and the servers that had its bucket before
// (Faild, NSDI'18, §4.1 "MAC address rewriting": there one octet each for two
// hosts; here ten bits each for four):
//
//	octet 0   kind: FaildPass, FaildCopy or FaildBack
//	octet 1-5 four fields of ten bits, big-endian: current, previous[0..2],
//	          newest first; each is slot + 1, and 0 says none
//
// The bits of an individual, locally administered address are in the kind.

// FaildKind is the first octet of a Faild MAC.
type FaildKind byte

// Kinds of Faild MACs.
const (
	// FaildPass: whoever does not own the connection passes the frame on to
	// the first previous server.
	FaildPass FaildKind = 0x9a
	// FaildCopy: a copy that goes to several servers; whoever does not own the
	// connection ignores it. Never passed on.
	FaildCopy FaildKind = 0x9e
	// FaildBack: a datagram whose chain ends with the server that got it
	// first: if nobody owns it, it comes back there and is taken.
	FaildBack FaildKind = 0x96
)

// FaildChain is how many previous servers a Faild MAC names at most.
const FaildChain = HopsChain

// FaildMaxSlot is the largest slot that ten bits, one value of which says
// none, can name.
const FaildMaxSlot = 1<<10 - 2

// FaildNone says "no server" where a Faild names a slot.
const FaildNone = NoServer

// Faild is what a Faild MAC says.
type Faild struct {
	Kind FaildKind
	// Current is the slot of the server that the frame is for.
	Current uint16
	// Previous are the slots of those that had the bucket before, newest
	// first; FaildNone behind the last.
	Previous [FaildChain]uint16
}

// Settled says that no previous server is named: nothing need be asked.
func (f Faild) Settled() bool { return f.Previous[0] == FaildNone }

// Next is what a server that does not own the connection addresses the frame
// to: the chain without its head. False where there is nobody left, or where
// the frame is a copy.
func (f Faild) Next() (Faild, bool) {
	if f.Kind == FaildCopy || f.Settled() {
		return Faild{}, false
	}
	next := Faild{Kind: f.Kind, Current: f.Previous[0], Previous: [FaildChain]uint16{FaildNone, FaildNone, FaildNone}}
	copy(next.Previous[:], f.Previous[1:])
	return next, true
}

// Back is what the first server addresses a datagram to that it does not own:
// the chain without its head and with that server behind the last. False as
// for Next, and where f is such a frame already.
func (f Faild) Back() (Faild, bool) {
	next, ok := f.Next()
	if !ok || f.Kind != FaildPass {
		return Faild{}, false
	}
	next.Kind = FaildBack
	for i, slot := range next.Previous {
		if slot == FaildNone {
			next.Previous[i] = f.Current
			break
		}
	}
	return next, true
}

// EncodeFaild is the MAC that says f. It refuses slots that ten bits cannot
// name, a chain with a hole and one that names a server twice: servers would
// pass the frame round.
func EncodeFaild(f Faild) (MAC, error) {
	mac, err := f.pack()
	if err != nil {
		return MAC{}, err
	}
	return mac, f.valid()
}

func (f Faild) pack() (MAC, error) {
	var bits uint64
	for i, slot := range f.fields() {
		if slot != FaildNone && slot > FaildMaxSlot {
			return MAC{}, fmt.Errorf("faild MAC: field %d: slot %d is over %d, the largest that fits ten bits", i, slot, FaildMaxSlot)
		}
		// FaildNone is all ones, so that its 16 bits wrap to the 0 of "none".
		bits = bits<<10 | uint64(slot+1)
	}
	return MAC{byte(f.Kind), byte(bits >> 32), byte(bits >> 24), byte(bits >> 16), byte(bits >> 8), byte(bits)}, nil
}

// DecodeFaild reads a MAC. ok is false where it is no Faild MAC at all (its
// kind is another); an error says what a server must not act on: no current
// server, a hole in the chain, or a server named twice.
func DecodeFaild(mac MAC) (f Faild, ok bool, err error) {
	f.Kind = FaildKind(mac[0])
	if !f.Kind.known() {
		return Faild{}, false, nil
	}
	bits := uint64(mac[1])<<32 | uint64(mac[2])<<24 | uint64(mac[3])<<16 | uint64(mac[4])<<8 | uint64(mac[5])
	field := func(i int) uint16 { return uint16(bits>>(30-10*i)&0x3ff) - 1 }
	f.Current = field(0)
	for i := range f.Previous {
		f.Previous[i] = field(i + 1)
	}
	return f, true, f.valid()
}

func (f Faild) fields() [1 + FaildChain]uint16 {
	return [1 + FaildChain]uint16{f.Current, f.Previous[0], f.Previous[1], f.Previous[2]}
}

func (k FaildKind) known() bool { return k == FaildPass || k == FaildCopy || k == FaildBack }

func (f Faild) valid() error {
	if !f.Kind.known() {
		return fmt.Errorf("faild MAC: kind %#02x is none of %#02x, %#02x, %#02x", byte(f.Kind), byte(FaildPass), byte(FaildCopy), byte(FaildBack))
	}
	if f.Current == FaildNone {
		return fmt.Errorf("faild MAC: no current server")
	}
	fields := f.fields()
	for i, slot := range fields {
		if slot == FaildNone {
			continue
		}
		if i > 0 && fields[i-1] == FaildNone {
			return fmt.Errorf("faild MAC: slot %d stands behind an empty place of the chain", slot)
		}
		for _, before := range fields[:i] {
			if before == slot {
				return fmt.Errorf("faild MAC: slot %d stands twice: frames would go round", slot)
			}
		}
	}
	return nil
}
