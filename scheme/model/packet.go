package model

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// kind of packet, as fl_kind.
type kind int

const (
	segment  kind = iota // TCP or UDP with its own header
	quote                // ICMP error: the fields are the quoted packet's, reversed
	fragment             // no ports
	other                // ICMP, another protocol, or malformed
)

// packet is what the stages hand on, as fl_lb_packet.
type packet struct {
	*wire.Parsed
	kind      kind
	client    netip.AddrPort
	vip       netip.AddrPort
	proto     uint8
	carried   carried
	word      uint32 // what the carrier holds
	flags     uint8
	malformed Reason // 0: not
	// quotedFragment: a fragment that an ICMP error quotes; it has no ports.
	quotedFragment bool
	quote          []byte // of kind quote: what it quotes from the TCP or UDP header on
}

// Bounds of the program that the strict parser does not have.
const (
	// maxExtensions: the walk over IPv6 extension headers ends with the
	// eighth, which must be a fragment's then.
	maxExtensions = 7
	// maxL4: no header begins behind this offset in the frame (FL_L4_MAX).
	maxL4 = 1024
	// minFrame: an Ethernet and a minimal IPv4 header.
	minFrame = 34
)

// classify reads a frame as far as the ports; false: it is not IP.
func classify(p *wire.Parsed) (*packet, bool) {
	minimum := map[int]int{4: 20, 6: 40}[p.Version]
	if len(p.Frame) < minFrame || p.EtherType == wire.EtherTypeVLAN || minimum == 0 ||
		p.Tagged && binary.BigEndian.Uint16(p.Frame[12:]) != wire.EtherTypeVLAN ||
		len(p.Frame) < p.L3+minimum || int(p.Frame[p.L3]>>4) != p.Version {
		return nil, false
	}
	k := &packet{Parsed: p, proto: p.Protocol, flags: p.Flags,
		client: p.Source(), vip: p.Destination()}
	switch {
	case p.Err != nil && p.Err.Layer == wire.LayerIP, walksTooFar(p), unsound(p):
		k.kind, k.malformed = other, bpf.DropMalformedIP
	case p.Fragmented():
		k.kind = fragment
	case p.Protocol != wire.ProtoTCP && p.Protocol != wire.ProtoUDP:
		k.kind = other
	case p.TotalLen-p.HeaderLen < 8:
		k.kind, k.malformed = other, bpf.DropMalformedL4
	}
	return k, true
}

// unsound: nobody may have sent it so, or it was damaged under way.
func unsound(p *wire.Parsed) bool {
	return p.TTL == 0 || p.Src.Is4In6() || p.Dst.Is4In6() || p.Version == 4 && wire.Checksum(p.Frame[p.L3:p.L3+p.HeaderLen]) != 0
}

// walksTooFar: more extension headers than the program follows.
func walksTooFar(p *wire.Parsed) bool {
	headers, last := p.Extensions, p.L3+p.HeaderLen
	if p.Fragmented() && p.Version == 6 {
		headers, last = headers-1, last-8 // a fragment's header ends the walk
	}
	return p.Version == 6 && (headers > maxExtensions || headers > 0 && last > maxL4)
}

// layer4 checks a segment's header and reads what its carrier holds; false: the
// segment is malformed, for the returned reason.
func (k *packet) layer4(c vip.Carrier) (Reason, bool) {
	if e := k.Err; e != nil && e.Layer == wire.LayerL4 {
		return bpf.DropMalformedL4, false
	}
	if k.proto == wire.ProtoUDP && k.client.Addr() == k.vip.Addr() { // a server that echoes would answer itself for ever
		return bpf.DropMalformedIP, false
	}
	return k.carrier(c)
}

// Least payload of a UDP datagram that opens a connection of QUIC (RFC 9000
// §14.1).
const minInitial = 1200

// initial: a datagram that starts with an Initial packet of QUIC, version 1
// or 2 (RFC 9000 §17.2.2, RFC 9369 §3.2). Nothing behind the version is
// looked at. layer4 must have found the UDP header good.
func (k *packet) initial() bool {
	if k.proto != wire.ProtoUDP {
		return false
	}
	udp := k.Frame[k.L4:]
	payload := udp[8:binary.BigEndian.Uint16(udp[4:])]
	if len(payload) < minInitial {
		return false
	}
	kind := byte(0xc0) // long header, fixed bit, type 0
	switch binary.BigEndian.Uint32(payload[1:]) {
	case wire.QUIC1:
	case wire.QUIC2:
		kind = 0xd0 // type 1
	default:
		return false
	}
	return payload[0]&0xf0 == kind
}
