package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Tunnel is a way to carry a packet to a server.
type Tunnel string

const (
	IPIP Tunnel = "ipip" // 4in4, 6in6, 4in6, 6in4 by the addresses
	GUE  Tunnel = "gue"  // RFC-draft GUE variant 0 over UDP
)

// GUEPort is the default destination port of GUE.
const GUEPort = 6080

// TunnelPorts is the first of the 2^14 source ports, the ephemeral ones, that a
// balancer's hash chooses among.
const TunnelPorts = 49152

// Outer describes a tunnel's outer headers.
type Outer struct {
	Tunnel   Tunnel
	Src, Dst netip.Addr
	TTL      uint8 // 0: 64
	TOS      uint8
	// SrcPort and DstPort of GUE; DstPort 0: GUEPort.
	SrcPort, DstPort uint16
	// Checksum asks for GUE's outer UDP checksum; otherwise it is zero,
	// which IPv4 allows, and RFC 6935 in IPv6.
	Checksum bool
	// Hops of scheme beamer; nil: none.
	Hops *Hops
	// IP gives further header fields.
	IP IP
}

// Encapsulate wraps a packet (from its IP header on) in the outer headers.
func (o Outer) Encapsulate(inner []byte) []byte {
	proto := uint8(ProtoIPIP)
	if len(inner) > 0 && inner[0]>>4 == 6 {
		proto = ProtoIPv6
	}
	ip := o.IP
	ip.TTL, ip.TOS = o.TTL, o.TOS
	if o.Tunnel != GUE {
		if o.Hops != nil {
			o.Hops.carry(&ip, o.Src.Is4())
		}
		return ip.with(o.Src, o.Dst, proto, inner).Packet()
	}
	if o.DstPort == 0 {
		o.DstPort = GUEPort
	}
	// Variant 0, no control bit, length of private data in words: then the
	// inner protocol and no flags.
	payload := []byte{0, proto, 0, 0}
	if o.Hops != nil {
		payload[0] = HopsBytes / 4
		payload = o.Hops.Append(payload)
	}
	payload = append(payload, inner...)
	return UDP{Src: netip.AddrPortFrom(o.Src, o.SrcPort), Dst: netip.AddrPortFrom(o.Dst, o.DstPort),
		Payload: payload, NoChecksum: !o.Checksum, IP: ip}.Packet()
}

// Decapsulate takes the outer headers off a packet (from its IP header on).
// guePort is the UDP port that means GUE; 0: GUEPort. The error says why the
// packet is no tunnel of ours.
func Decapsulate(packet []byte, guePort uint16) (inner []byte, o Outer, err error) {
	if guePort == 0 {
		guePort = GUEPort
	}
	p := ParsePacket(packet)
	if p.Err != nil && p.Err.Layer <= LayerIP {
		return nil, o, p.Err
	}
	o = Outer{Src: p.Src, Dst: p.Dst, TTL: p.TTL, TOS: p.TOS}
	end := p.L3 + p.TotalLen
	proto := p.Protocol
	switch {
	case p.Fragmented():
		return nil, o, fmt.Errorf("tunnel: the outer packet is a fragment")
	case proto == ProtoIPIP || proto == ProtoIPv6:
		o.Tunnel = IPIP
		o.Hops = ipipHops(packet, p)
		inner = packet[p.L4:end]
	case proto == ProtoUDP && p.Err == nil && p.DstPort == guePort:
		o.Tunnel, o.SrcPort, o.DstPort = GUE, p.SrcPort, p.DstPort
		o.Checksum = binary.BigEndian.Uint16(packet[p.L4+6:]) != 0
		gue := p.Payload
		if len(gue) < 4 {
			return nil, o, fmt.Errorf("tunnel: GUE header of %d bytes, 4 are needed", len(gue))
		}
		// Variant (2 bits), control (1) must be 0; header length in words.
		if gue[0]&0xe0 != 0 {
			return nil, o, fmt.Errorf("tunnel: GUE first byte %#02x: only variant 0 data is understood", gue[0])
		}
		skip := 4 + int(gue[0]&0x1f)*4
		if len(gue) < skip {
			return nil, o, fmt.Errorf("tunnel: GUE header of %d bytes is cut at %d", skip, len(gue))
		}
		if skip == 4+HopsBytes && gue[2] == 0 && gue[3] == 0 {
			if h, err := ParseHops(gue[4:]); err == nil {
				o.Hops = &h
			}
		}
		proto, inner = gue[1], gue[skip:]
	default:
		return nil, o, fmt.Errorf("tunnel: protocol %d is neither ipip nor gue", proto)
	}
	want := uint8(4)
	if proto == ProtoIPv6 {
		want = 6
	} else if proto != ProtoIPIP {
		return nil, o, fmt.Errorf("tunnel: inner protocol %d is neither IPv4 nor IPv6", proto)
	}
	if len(inner) == 0 || inner[0]>>4 != want {
		return nil, o, fmt.Errorf("tunnel: the inner packet is not IPv%d as its header says", want)
	}
	return inner, o, nil
}
