package wire

import (
	"encoding/binary"
	"net/netip"
)

// ICMP and ICMPv6 types that Fairlead looks at.
const (
	ICMPEchoReply       = 0
	ICMPUnreachable     = 3
	ICMPFragNeeded      = 4 // code of ICMPUnreachable
	ICMPEchoRequest     = 8
	ICMPTimeExceeded    = 11
	ICMPParameter       = 12
	ICMPv6Unreachable   = 1
	ICMPv6TooBig        = 2
	ICMPv6TimeExceeded  = 3
	ICMPv6Parameter     = 4
	ICMPv6EchoRequest   = 128
	ICMPv6EchoReply     = 129
	icmpHeader          = 8
	maxICMPv6Error      = 1280
	defaultICMPv4Quoted = 28 // IP header and 8 bytes: RFC 792
)

// ICMP describes an ICMP or ICMPv6 message; the addresses' family decides.
type ICMP struct {
	Src, Dst   netip.Addr
	Type, Code uint8
	// Rest is bytes 4-7: identifier and sequence number, or the MTU.
	Rest        uint32
	Payload     []byte
	BadChecksum bool
	VLAN        uint16
	Link        Link
	IP          IP
}

// Packet builds the message from its IP header on.
func (m ICMP) Packet() []byte {
	b := make([]byte, icmpHeader, icmpHeader+len(m.Payload))
	b[0], b[1] = m.Type, m.Code
	binary.BigEndian.PutUint32(b[4:], m.Rest)
	b = append(b, m.Payload...)
	proto, c := uint8(ProtoICMP), uint16(0)
	if m.Src.Is4() {
		c = Checksum(b)
	} else {
		proto = ProtoICMPv6
		c = TransportChecksum(m.Src, m.Dst, proto, b)
	}
	if m.BadChecksum {
		c = ^c
	}
	binary.BigEndian.PutUint16(b[2:], c)
	return m.IP.with(m.Src, m.Dst, proto, b).Packet()
}

// Frame builds the message's Ethernet frame.
func (m ICMP) Frame() []byte { return m.Link.withVLAN(m.VLAN).Frame(m.Packet()) }

// Echo is an echo request, or a reply to one.
func Echo(src, dst netip.Addr, id, seq uint16, payload []byte, reply bool) ICMP {
	m := ICMP{Src: src, Dst: dst, Type: ICMPEchoRequest, Rest: uint32(id)<<16 | uint32(seq), Payload: payload}
	switch {
	case src.Is4() && reply:
		m.Type = ICMPEchoReply
	case !src.Is4() && reply:
		m.Type = ICMPv6EchoReply
	case !src.Is4():
		m.Type = ICMPv6EchoRequest
	}
	return m
}

// ICMPError describes an error message that quotes a packet (from its IP
// header on) which its receiver had sent.
type ICMPError struct {
	// Src sends the error (a router, say), Dst is the quoted packet's source.
	Src, Dst   netip.Addr
	Type, Code uint8
	// MTU of "fragmentation needed" and "packet too big".
	MTU    uint32
	Quoted []byte
	// QuoteBytes cuts the quotation. 0: in IPv4 the header and 8 bytes as old
	// routers do when the header has no options (28), in IPv6 what fits 1280.
	QuoteBytes int
	VLAN       uint16
	Link       Link
	IP         IP
}

// Packet builds the error from its IP header on.
func (e ICMPError) Packet() []byte {
	n := e.QuoteBytes
	if n == 0 && e.Src.Is4() {
		n = defaultICMPv4Quoted
	} else if n == 0 {
		n = maxICMPv6Error - 40 - icmpHeader
	}
	return ICMP{Src: e.Src, Dst: e.Dst, Type: e.Type, Code: e.Code, Rest: e.MTU,
		Payload: e.Quoted[:min(n, len(e.Quoted))], IP: e.IP}.Packet()
}

// Frame builds the error's Ethernet frame.
func (e ICMPError) Frame() []byte { return e.Link.withVLAN(e.VLAN).Frame(e.Packet()) }
