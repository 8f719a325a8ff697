package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Layer says where in a frame something is wrong.
type Layer int

const (
	LayerEthernet Layer = iota + 1
	LayerIP
	LayerL4
	LayerOption // TCP options
)

func (l Layer) String() string {
	return [...]string{"", "ethernet", "ip", "layer 4", "tcp option"}[l]
}

// Error says what is wrong with a frame.
type Error struct {
	Layer Layer
	What  string
}

func (e *Error) Error() string { return e.Layer.String() + ": " + e.What }

// Parsed is what Parse read. Everything before the place of Err is filled in.
// Offsets are bytes from the frame's start (ParsePacket: the packet's).
type Parsed struct {
	Frame     []byte
	EtherType uint16 // behind the tag
	VLAN      uint16 // the tag's control word
	Tagged    bool

	L3       int
	Version  int // 4, 6; 0: not IP
	Src, Dst netip.Addr
	TTL, TOS uint8
	ID       uint32 // IPv4's, or the IPv6 fragment header's
	// HeaderLen is the IPv4 header with options, or the IPv6 header with all
	// extension headers that were walked.
	HeaderLen int
	// Extensions is the number of IPv6 extension headers that were walked.
	Extensions int
	// TotalLen is the packet's length from layer 3 on, by its own header; what
	// follows in the frame is padding.
	TotalLen       int
	DontFragment   bool
	MoreFragments  bool
	FragmentOffset int // bytes

	L4       int
	Protocol uint8 // behind IPv6 extension headers
	// SrcPort, DstPort of TCP and UDP (0 in a later fragment), also where the
	// rest of the header is cut.
	SrcPort, DstPort uint16

	// TCP.
	Flags     uint8
	Seq, Ack  uint32
	Options   []byte
	Timestamp *TimestampOption

	// ICMP and ICMPv6. Quoted is the packet that an error quotes, which may
	// be cut: its Short is set then, and only its first 8 bytes of layer 4
	// need be there.
	ICMPType, ICMPCode uint8
	ICMPRest           uint32
	Quoted             *Parsed

	// Short: fewer bytes than TotalLen are there (only in Quoted).
	Short bool
	// Payload of layer 4, without padding.
	Payload []byte
	// Err is the first thing that is wrong; nil: nothing is. Checksums are
	// not part of it: see ChecksumErrors.
	Err *Error
}

// Fragmented reports whether the packet is one of several fragments.
func (p *Parsed) Fragmented() bool { return p.MoreFragments || p.FragmentOffset != 0 }

// Is reports whether all the given TCP flags are set.
func (p *Parsed) Is(flags uint8) bool { return p.Flags&flags == flags }

// Packet is the packet from its IP header on, without padding.
func (p *Parsed) Packet() []byte { return p.Frame[p.L3:min(p.L3+p.TotalLen, len(p.Frame))] }

// Source and Destination are address and port.
func (p *Parsed) Source() netip.AddrPort      { return netip.AddrPortFrom(p.Src, p.SrcPort) }
func (p *Parsed) Destination() netip.AddrPort { return netip.AddrPortFrom(p.Dst, p.DstPort) }

// Parse reads an Ethernet frame.
func Parse(frame []byte) *Parsed {
	p := &Parsed{Frame: frame}
	if len(frame) < EthernetLen {
		return p.fail(LayerEthernet, "frame of %d bytes, a header has %d", len(frame), EthernetLen)
	}
	p.L3 = EthernetLen
	p.EtherType = binary.BigEndian.Uint16(frame[12:])
	if p.EtherType == EtherTypeVLAN || p.EtherType == EtherTypeQinQ {
		if len(frame) < EthernetLen+VLANLen {
			return p.fail(LayerEthernet, "frame of %d bytes is cut in its VLAN tag", len(frame))
		}
		p.Tagged = true
		p.VLAN = binary.BigEndian.Uint16(frame[14:])
		p.EtherType = binary.BigEndian.Uint16(frame[16:])
		p.L3 += VLANLen
	}
	switch p.EtherType {
	case EtherTypeIPv4:
		p.Version = 4
	case EtherTypeIPv6:
		p.Version = 6
	default:
		return p // not IP: nothing more to read, nothing wrong
	}
	p.network(false)
	return p
}

// ParsePacket reads a packet from its IP header on.
func ParsePacket(packet []byte) *Parsed { return parsePacket(packet, false) }

func parsePacket(packet []byte, quoted bool) *Parsed {
	p := &Parsed{Frame: packet}
	if len(packet) == 0 {
		return p.fail(LayerIP, "empty packet")
	}
	p.Version = int(packet[0] >> 4)
	if p.Version != 4 && p.Version != 6 {
		v := p.Version
		p.Version = 0
		return p.fail(LayerIP, "version %d", v)
	}
	p.network(quoted)
	return p
}

func (p *Parsed) fail(l Layer, format string, args ...any) *Parsed {
	p.Err = &Error{l, fmt.Sprintf(format, args...)}
	return p
}

// network reads layer 3. A quoted packet may be cut behind its header.
func (p *Parsed) network(quoted bool) {
	if p.Version == 4 {
		p.network4(quoted)
	} else {
		p.network6(quoted)
	}
	if p.Err != nil {
		return
	}
	p.L4 = p.L3 + p.HeaderLen
	if p.FragmentOffset != 0 {
		p.Payload = p.Packet()[p.HeaderLen:]
		return
	}
	p.transport(quoted)
	if p.MoreFragments {
		// A first fragment may end anywhere in the header of layer 4.
		p.Err = nil
	}
}

func (p *Parsed) network4(quoted bool) {
	b := p.Frame[p.L3:]
	if len(b) < 20 {
		p.fail(LayerIP, "IPv4 header cut at %d of 20 bytes", len(b))
		return
	}
	// The addresses are read before what follows is judged, so that a
	// malformed packet still has a destination.
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p.TOS, p.TTL, p.Protocol = b[1], b[8], b[9]
	p.ID = uint32(binary.BigEndian.Uint16(b[4:]))
	p.HeaderLen, p.TotalLen = int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	frag := binary.BigEndian.Uint16(b[6:])
	p.DontFragment, p.MoreFragments = frag&0x4000 != 0, frag&0x2000 != 0
	p.FragmentOffset = int(frag&0x1fff) * 8
	switch {
	case b[0]>>4 != 4:
		p.fail(LayerIP, "version %d in an IPv4 frame", b[0]>>4)
	case p.HeaderLen < 20:
		p.fail(LayerIP, "IPv4 header length %d is under 20", p.HeaderLen)
	case p.TotalLen < p.HeaderLen:
		p.fail(LayerIP, "IPv4 total length %d is under the header's %d", p.TotalLen, p.HeaderLen)
	case p.HeaderLen > len(b):
		p.fail(LayerIP, "IPv4 header of %d bytes is cut at %d", p.HeaderLen, len(b))
	case p.TotalLen > len(b) && !quoted:
		p.fail(LayerIP, "IPv4 total length %d, but %d bytes are there", p.TotalLen, len(b))
	}
	p.Short = p.TotalLen > len(b)
}

func (p *Parsed) network6(quoted bool) {
	b := p.Frame[p.L3:]
	if len(b) < 40 {
		p.fail(LayerIP, "IPv6 header cut at %d of 40 bytes", len(b))
		return
	}
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	p.TOS, p.TTL = uint8(binary.BigEndian.Uint16(b)>>4), b[7]
	p.TotalLen = 40 + int(binary.BigEndian.Uint16(b[4:]))
	p.Protocol, p.HeaderLen = b[6], 40
	p.Short = p.TotalLen > len(b)
	switch {
	case b[0]>>4 != 6:
		p.fail(LayerIP, "version %d in an IPv6 frame", b[0]>>4)
		return
	case p.Short && !quoted:
		p.fail(LayerIP, "IPv6 length %d, but %d bytes are there", p.TotalLen, len(b))
		return
	}
	end := min(p.TotalLen, len(b))
	for ; ; p.Extensions++ {
		at := p.HeaderLen
		switch p.Protocol {
		case ProtoHopByHop, ProtoRouting, ProtoDestOptions:
			if at+8 > end {
				p.fail(LayerIP, "IPv6 extension header %d is cut", p.Protocol)
				return
			}
			n := (int(b[at+1]) + 1) * 8
			if at+n > end {
				p.fail(LayerIP, "IPv6 extension header %d of %d bytes is cut", p.Protocol, n)
				return
			}
			p.Protocol, p.HeaderLen = b[at], at+n
		case ProtoFragment:
			if at+8 > end {
				p.fail(LayerIP, "IPv6 fragment header is cut")
				return
			}
			off := binary.BigEndian.Uint16(b[at+2:])
			p.MoreFragments, p.FragmentOffset = off&1 != 0, int(off&^7)
			p.ID = binary.BigEndian.Uint32(b[at+4:])
			p.Protocol, p.HeaderLen = b[at], at+8
			if p.Fragmented() {
				// What follows is a piece of something; what all pieces
				// share, and are reassembled by, is this header's type.
				p.Extensions++
				return
			}
		default:
			return
		}
	}
}

// transport reads layer 4 of a packet that is not a later fragment.
func (p *Parsed) transport(quoted bool) {
	b := p.Packet()[p.HeaderLen:]
	need := map[uint8]int{ProtoTCP: 20, ProtoUDP: 8, ProtoICMP: 8, ProtoICMPv6: 8}[p.Protocol]
	if quoted {
		need = min(need, 8)
	}
	if len(b) >= 4 && (p.Protocol == ProtoTCP || p.Protocol == ProtoUDP) {
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	if len(b) < need {
		p.fail(LayerL4, "header of protocol %d cut at %d of %d bytes", p.Protocol, len(b), need)
		return
	}
	p.Payload = b
	switch p.Protocol {
	case ProtoTCP, ProtoUDP:
		if p.Protocol == ProtoTCP {
			p.tcp(b, quoted)
			return
		}
		n := int(binary.BigEndian.Uint16(b[4:]))
		if n < 8 || n > len(b) && !quoted && !p.MoreFragments {
			p.fail(LayerL4, "UDP length %d, but %d bytes are there", n, len(b))
			return
		}
		p.Payload = b[8:min(max(n, 8), len(b))]
	case ProtoICMP, ProtoICMPv6:
		p.ICMPType, p.ICMPCode = b[0], b[1]
		p.ICMPRest = binary.BigEndian.Uint32(b[4:])
		p.Payload = b[8:]
		if p.IsICMPError() && !quoted {
			p.Quoted = parsePacket(p.Payload, true)
		}
	}
}

// IsICMPError reports whether the message quotes a packet.
func (p *Parsed) IsICMPError() bool {
	switch p.Protocol {
	case ProtoICMP:
		switch p.ICMPType {
		case ICMPUnreachable, ICMPTimeExceeded, ICMPParameter:
			return true
		}
	case ProtoICMPv6:
		return p.ICMPType < 128 // RFC 4443: errors are 0-127
	}
	return false
}

func (p *Parsed) tcp(b []byte, quoted bool) {
	p.Seq = binary.BigEndian.Uint32(b[4:])
	if len(b) < 20 {
		return // quoted and cut
	}
	p.Ack = binary.BigEndian.Uint32(b[8:])
	p.Flags = b[13]
	header := int(b[12]>>4) * 4
	if header < 20 {
		p.fail(LayerL4, "TCP data offset %d is under 5", header/4)
		return
	}
	if header > len(b) && !quoted {
		p.fail(LayerL4, "TCP header of %d bytes is cut at %d", header, len(b))
		return
	}
	header = min(header, len(b))
	p.Options, p.Payload = b[20:header], b[header:]
	ts, ok, err := FindTimestamp(p.Options)
	if ok {
		p.Timestamp = &ts
	}
	if err != nil {
		p.fail(LayerOption, "%v", err)
	}
}

// ChecksumErrors names the checksums that are wrong in a packet that parsed
// without error; fragments and cut packets have only the IP header's checked.
func (p *Parsed) ChecksumErrors() []string {
	if p.Err != nil || p.Version == 0 {
		return nil
	}
	var wrong []string
	packet := p.Packet()
	if p.Version == 4 && Checksum(packet[:p.HeaderLen]) != 0 {
		wrong = append(wrong, "IPv4 header")
	}
	if p.Fragmented() || p.Short {
		return wrong
	}
	segment := packet[p.HeaderLen:]
	bad := false
	switch p.Protocol {
	case ProtoICMP:
		bad = Checksum(segment) != 0
	case ProtoUDP:
		segment = segment[:8+len(p.Payload)]
		none := segment[6] == 0 && segment[7] == 0
		bad = !none && TransportChecksum(p.Src, p.Dst, p.Protocol, segment) != 0
	case ProtoTCP, ProtoICMPv6:
		bad = TransportChecksum(p.Src, p.Dst, p.Protocol, segment) != 0
	}
	if bad {
		wrong = append(wrong, map[uint8]string{ProtoICMP: "ICMP", ProtoICMPv6: "ICMPv6", ProtoTCP: "TCP", ProtoUDP: "UDP"}[p.Protocol])
	}
	return wrong
}
