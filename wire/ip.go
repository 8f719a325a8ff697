package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// IP describes an IPv4 or IPv6 packet; the addresses' family decides which.
// In TCP, UDP and the ICMP builders Src, Dst, Protocol and Payload are filled
// in by the builder.
type IP struct {
	Src, Dst netip.Addr
	Protocol uint8
	TTL      uint8 // 0: 64
	TOS      uint8 // traffic class in IPv6
	ID       uint32
	// FlowLabel is IPv6's, 20 bits.
	FlowLabel    uint32
	DontFragment bool // IPv4 only
	// MoreFragments, FragmentOffset (units of 8 bytes, at most 8191) and
	// Atomic describe a fragment; in IPv6 any of them adds a fragment header
	// (Atomic alone: one that is no fragment, RFC 6946).
	MoreFragments  bool
	FragmentOffset uint16
	Atomic         bool
	// Options of IPv4, padded with zeros to a multiple of 4, at most 40.
	Options []byte
	// Extensions of IPv6, before the fragment header.
	Extensions []Extension
	Payload    []byte
	// BadChecksum inverts the IPv4 header's checksum.
	BadChecksum bool
}

// Extension is an IPv6 extension header without its first two bytes.
type Extension struct {
	Type uint8
	// Body is padded with zeros so that the header is a multiple of 8 bytes;
	// nil is a PadN option that fills one header of 8 bytes.
	Body []byte
}

// Packet builds the packet from its IP header on.
func (p IP) Packet() []byte {
	if p.Src.Is4() != p.Dst.Is4() {
		panic(fmt.Sprintf("wire: %s and %s are of two families", p.Src, p.Dst))
	}
	p.TTL = cmp.Or(p.TTL, 64)
	if p.Src.Is4() {
		return p.packet4()
	}
	return p.packet6()
}

func (p IP) packet4() []byte {
	header := 20 + (len(p.Options)+3)/4*4
	if header > 60 {
		panic("wire: more than 40 bytes of IPv4 options")
	}
	b := make([]byte, header, header+len(p.Payload))
	b[0] = 0x40 | byte(header/4)
	b[1] = p.TOS
	binary.BigEndian.PutUint16(b[2:], uint16(header+len(p.Payload)))
	binary.BigEndian.PutUint16(b[4:], uint16(p.ID))
	frag := p.FragmentOffset & 0x1fff
	if p.DontFragment {
		frag |= 0x4000
	}
	if p.MoreFragments {
		frag |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], frag)
	b[8], b[9] = p.TTL, p.Protocol
	copy(b[12:], p.Src.AsSlice())
	copy(b[16:], p.Dst.AsSlice())
	copy(b[20:], p.Options)
	c := Checksum(b)
	if p.BadChecksum {
		c = ^c
	}
	binary.BigEndian.PutUint16(b[10:], c)
	return append(b, p.Payload...)
}

func (p IP) packet6() []byte {
	type header struct {
		kind uint8
		body []byte
	}
	var chain []header
	for _, e := range p.Extensions {
		body := e.Body
		if body == nil {
			body = []byte{1, 4, 0, 0, 0, 0}
		}
		n := (2 + len(body) + 7) / 8
		h := make([]byte, n*8)
		h[1] = byte(n - 1)
		copy(h[2:], body)
		chain = append(chain, header{e.Type, h})
	}
	if p.MoreFragments || p.FragmentOffset != 0 || p.Atomic {
		h := make([]byte, 8)
		off := p.FragmentOffset << 3
		if p.MoreFragments {
			off |= 1
		}
		binary.BigEndian.PutUint16(h[2:], off)
		binary.BigEndian.PutUint32(h[4:], p.ID)
		chain = append(chain, header{ProtoFragment, h})
	}
	b := make([]byte, 40)
	binary.BigEndian.PutUint32(b, 6<<28|uint32(p.TOS)<<20|p.FlowLabel&0xfffff)
	b[7] = p.TTL
	copy(b[8:], p.Src.AsSlice())
	copy(b[24:], p.Dst.AsSlice())
	next := &b[6]
	for i, h := range chain {
		*next = h.kind
		b = append(b, h.body...)
		// append may have moved b, so the place is taken afresh.
		next = &b[len(b)-len(chain[i].body)]
	}
	*next = p.Protocol
	b = append(b, p.Payload...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}
