package model

import (
	"encoding/binary"
	"math/bits"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/seats"
)

// Seat is what the table of seats had to do with a packet (bpf/lb/seats.h).
type Seat struct {
	// Opened: the packet's connection was given Number, 0: its partition was full.
	Opened bool
	Number uint32
	// Outcome of a known packet; Index is its entry's where it hit, which Was.
	Outcome seats.Outcome
	Index   uint32
	Was     seats.Word
}

func (k *packet) seat(v *VIP, nowMS uint32, length int, closes bool) seats.Packet {
	p := seats.Packet{Unit: seats.Unit(nowMS), Len: length, Closes: closes}
	for e, key := range v.Keys {
		p.Hash[e] = hash.Tuple(key, k.client, k.vip.Port())
	}
	return p
}

// open gives the connection that a SYN opens a seat, and has its server told.
func (t *Tables) open(s *State, r *Result, k *packet, nowMS uint32) {
	v, a := r.VIP, k.client.Addr().As16()
	about := bpf.SeatAbout{VipId: v.ID, Sport: bits.ReverseBytes16(k.client.Port()), Dport: bits.ReverseBytes16(k.vip.Port()), OpenedMs: nowMS, Due: uint64(nowMS) << 32,
		Addr: [2]uint64{binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])}}
	if v.Layout.SeatBits == 0 {
		k.tell(v.Layout.ToldTier(v.Tier, 0))
		return
	}
	n := s.Seats.Open(k.seat(v, nowMS, k.TotalLen, false), v.Layout.SeatBits, v.OpenEpoch, about)
	if r.Seat = (&Seat{Opened: true, Number: n}); n == 0 {
		s.Counters(v.ID).SeatFull++
	} else {
		s.Counters(v.ID).Seated++
	}
	k.tell(v.Layout.ToldTier(v.Tier, n))
}

// touch counts a known packet at its connection's seat.
func (t *Tables) touch(s *State, r *Result, k *packet, nowMS uint32) {
	v, other := r.VIP, -1
	if v.Epochs == 3 {
		other = v.OpenEpoch
	}
	p := k.seat(v, nowMS, k.TotalLen, r.Closes)
	seat := &Seat{Number: r.Cookie.Seat}
	if seat.Outcome, seat.Index, seat.Was = s.Seats.Touch(p, v.Layout.SeatBits, int(r.Cookie.Epoch), other, r.Cookie.Slot, seat.Number); seat.Outcome == seats.Wrong {
		s.Counters(v.ID).SeatWrong++
	}
	r.Seat = seat
}

// moved takes a packet of a connection that was moved to where its seat says, unless that
// server is gone or down.
func (t *Tables) moved(r *Result) {
	if r.Seat.Outcome != seats.Hit || !r.Seat.Was.Moved() {
		return
	}
	if own := r.Slot; !t.to(r, int(r.Seat.Was.Slot())) || t.Lines[r.Line].Down {
		t.to(r, own)
	}
}

// tell writes what the server is told into the SYN's TSecr, of which the packet is a
// copy from then on.
func (k *packet) tell(word uint32) {
	at, malformed := findTimestamp(k.Options)
	if at < 0 || malformed {
		return
	}
	frame, tcp := append([]byte(nil), k.Frame...), k.L4
	from := tcp + 20 + at + 4
	before := binary.BigEndian.Uint32(frame[from:])
	binary.BigEndian.PutUint32(frame[from:], word)
	sum := uint32(^binary.BigEndian.Uint16(frame[tcp+16:]))
	for i := range 4 {
		shift := uint(8)
		if (20+at+i)%2 == 1 {
			shift = 0
		}
		sum += 0xffff - uint32(byte(before>>(24-8*i)))<<shift + uint32(byte(word>>(24-8*i)))<<shift
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if before != word {
		binary.BigEndian.PutUint16(frame[tcp+16:], ^uint16(sum))
	}
	told := *k.Parsed
	told.Frame = frame
	k.Parsed = &told
}
