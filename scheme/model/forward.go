package model

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/wire"
)

const outerTTL = 64

// forward is the frame that goes to the line's server. Bytes behind the
// packet's own length (Ethernet padding) stay where they are: behind it.
func (t *Tables) forward(k *packet, line *Line, r *Result) []byte {
	inner := k.Packet()
	packet := inner
	if row := line.Forwarding.Row(); row.Tunnel {
		o := t.outer(k.Parsed, line, r.Hash)
		o.Hops = r.Hops
		if packet = o.Encapsulate(inner); o.Tunnel.Port() != 0 && t.GUEChecksum6 && !line.Addr.Is4() {
			t.udpChecksum(k, o, packet)
		}
	}
	b := ethernet(line.MACDst, line.MACSrc, line.VLAN != 0, line.VLAN, packet)
	return append(b, k.Frame[k.L3+k.TotalLen:]...)
}

// ethernet is wire.Link.Frame without its defaults.
func ethernet(dst, src wire.MAC, tagged bool, tag uint16, packet []byte) []byte {
	b := append(append([]byte(nil), dst[:]...), src[:]...)
	if tagged {
		b = binary.BigEndian.AppendUint16(b, wire.EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, tag)
	}
	kind := uint16(wire.EtherTypeIPv4)
	if packet[0]>>4 == 6 {
		kind = wire.EtherTypeIPv6
	}
	return append(binary.BigEndian.AppendUint16(b, kind), packet...)
}

// udpChecksum sets the outer UDP checksum, as if the inner checksums were
// right: then the inner packet's sum is known without reading it, and if they
// are not, the packet is lost either way. Zero (none) where that sum is not
// known: no segment, extension headers, a datagram without checksum, or one
// that is shorter than its packet.
func (t *Tables) udpChecksum(k *packet, o wire.Outer, packet []byte) {
	inner := append([]byte(nil), k.Packet()...)
	l4 := inner[k.HeaderLen:]
	if k.kind != segment || k.Version == 6 && k.HeaderLen != 40 {
		return
	}
	at := 16
	if k.proto == wire.ProtoUDP {
		if at = 6; l4[6] == 0 && l4[7] == 0 || int(binary.BigEndian.Uint16(l4[4:])) != len(l4) {
			return
		}
	}
	if k.Version == 4 {
		inner[10], inner[11] = 0, 0
		binary.BigEndian.PutUint16(inner[10:], wire.Checksum(inner[:k.HeaderLen]))
	}
	l4[at], l4[at+1] = 0, 0
	binary.BigEndian.PutUint16(l4[at:], wire.TransportChecksum(k.Src, k.Dst, k.proto, l4))
	o.Checksum = true
	copy(packet[46:48], o.Encapsulate(inner)[46:48])
}

// outer is the outer header of a packet to a server. DSCP and ECN are copied
// (RFC 6040, normal mode).
func (t *Tables) outer(k *wire.Parsed, line *Line, hash uint64) wire.Outer {
	spread := t.spread(line, hash)
	o := wire.Outer{Tunnel: wire.Tunnel(line.Forwarding), Dst: line.Addr, TTL: outerTTL, TOS: k.TOS}
	if line.Addr.Is4() {
		o.Src = hostBits(t.Source4, uint64(uint32(hash>>32)), 0)
		o.IP.DontFragment = true
	} else {
		o.Src = hostBits(t.Source6, hash, hash>>32|hash<<32)
		o.IP.FlowLabel = spread.Label
	}
	if wire.Tunnel(line.Forwarding).Port() != 0 {
		o.SrcPort = spread.Port
	}
	return o
}

// hostBits fills the prefix's host bits from two words as the program's
// little-endian loads lay them out.
func hostBits(p netip.Prefix, first, second uint64) netip.Addr {
	words := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), second)
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		host := byte(0xff)
		if n := p.Bits() - i*8; n >= 8 {
			host = 0
		} else if n > 0 {
			host >>= n
		}
		b[i] |= words[i] & host
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
