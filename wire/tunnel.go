package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
)

// Tunnel is a way to carry a packet to a server.
type Tunnel string

const (
	IPIP Tunnel = "ipip" // 4in4, 6in6, 4in6, 6in4 by the addresses
	GUE  Tunnel = "gue"  // RFC-draft GUE variant 0 over UDP
)

// overUDP is how a tunnel over UDP puts a packet into a datagram.
type overUDP struct {
	name Tunnel
	port uint16 // 0: it is none over UDP
	// header goes before a packet of this IP protocol number.
	header func(proto uint8, hops *Hops) []byte
	// parse is its inverse: the packet's protocol number, where it begins, and
	// the hops if there are any.
	parse func(payload []byte) (proto uint8, at int, hops *Hops, err error)
}

var tunnels = []overUDP{{name: IPIP}, gue}

// Tunnels are all there are.
func Tunnels() (all []Tunnel) {
	for _, t := range tunnels {
		all = append(all, t.name)
	}
	return all
}

// Port is the UDP port that a tunnel comes to; 0: it has none.
func (t Tunnel) Port() uint16 { return t.row().port }

func (t Tunnel) row() (none overUDP) {
	for _, row := range tunnels {
		if row.name == t {
			return row
		}
	}
	return none
}

// TunnelPorts is the first of the 2^14 source ports, the ephemeral ones, that a
// balancer's hash chooses among.
const TunnelPorts = bpf.TunnelPorts

// Outer describes a tunnel's outer headers.
type Outer struct {
	Tunnel   Tunnel
	Src, Dst netip.Addr
	TTL      uint8 // 0: 64
	TOS      uint8
	SrcPort  uint16 // over UDP
	// Checksum asks for the outer UDP checksum; otherwise it is zero,
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
	udp := o.Tunnel.row()
	if udp.port == 0 {
		if o.Hops != nil {
			o.Hops.carry(&ip, o.Src.Is4())
		}
		return ip.with(o.Src, o.Dst, proto, inner).Packet()
	}
	return UDP{Src: netip.AddrPortFrom(o.Src, o.SrcPort), Dst: netip.AddrPortFrom(o.Dst, udp.port),
		Payload: append(udp.header(proto, o.Hops), inner...), NoChecksum: !o.Checksum, IP: ip}.Packet()
}

// Decapsulate takes the outer headers off a packet (from its IP header on).
// The error says why the packet is no tunnel of ours.
func Decapsulate(packet []byte) (inner []byte, o Outer, err error) {
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
	case proto == ProtoUDP && p.Err == nil:
		o.SrcPort = p.SrcPort
		o.Checksum = binary.BigEndian.Uint16(packet[p.L4+6:]) != 0
		var at int
		if o.Tunnel, proto, at, o.Hops, err = Datagram(p.DstPort, p.Payload); err != nil {
			return nil, o, err
		}
		inner = p.Payload[at:]
	default:
		return nil, o, fmt.Errorf("tunnel: protocol %d is none", proto)
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

// Datagram reads the tunnel that a datagram to the port is: the inner packet's IP
// protocol number, where in the payload it begins, and hops if there are any.
func Datagram(port uint16, payload []byte) (t Tunnel, proto uint8, at int, hops *Hops, err error) {
	i := slices.IndexFunc(tunnels, func(t overUDP) bool { return t.port == port && port != 0 })
	if i < 0 {
		return "", 0, 0, nil, fmt.Errorf("tunnel: UDP port %d is none's", port)
	}
	proto, at, hops, err = tunnels[i].parse(payload)
	if err != nil {
		err = fmt.Errorf("tunnel: %w", err)
	}
	return tunnels[i].name, proto, at, hops, err
}
