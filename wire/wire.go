// Package wire builds and reads the packets that Fairlead handles: Ethernet
// frames with at most one VLAN tag, IPv4 and IPv6 with options and extension
// headers, TCP, UDP, ICMP, and the tunnels that carry them. Builders always
// compute the right lengths and checksums unless a field asks for a wrong
// one, so that tests can be hostile on purpose. Parse is strict and says what
// is wrong with a frame and in which layer. Nothing here does I/O except the
// pcap reader and writer, on the caller's stream.
//
// Builders panic on what no packet can express (mixed address families,
// options longer than the header can hold): that is a mistake in the caller.
package wire

import "encoding/binary"

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeQinQ = 0x88a8
	EtherTypeIPv6 = 0x86dd
)

// IP protocol numbers and IPv6 header types.
const (
	ProtoHopByHop    = 0
	ProtoICMP        = 1
	ProtoIPIP        = 4
	ProtoTCP         = 6
	ProtoUDP         = 17
	ProtoIPv6        = 41
	ProtoRouting     = 43
	ProtoFragment    = 44
	ProtoICMPv6      = 58
	ProtoNoNext      = 59
	ProtoDestOptions = 60
)

// EthernetLen and VLANLen are bytes of an Ethernet header and of one tag.
const (
	EthernetLen = 14
	VLANLen     = 4
)

// MAC is an Ethernet address.
type MAC [6]byte

// Link is an Ethernet header. The zero Link is the pair of locally
// administered test addresses 02:00:00:00:00:01 → 02:00:00:00:00:02.
type Link struct {
	Src, Dst MAC
	// VLAN is the tag's control word (priority and VLAN number, 1-4094);
	// 0: untagged.
	VLAN uint16
	// EtherType overrides the one that the packet's version implies.
	EtherType uint16
}

// Frame puts the Ethernet header before a packet of layer 3, whose first
// half byte tells IPv4 from IPv6.
func (l Link) Frame(packet []byte) []byte {
	if l.Src == (MAC{}) {
		l.Src = MAC{2, 0, 0, 0, 0, 1}
	}
	if l.Dst == (MAC{}) {
		l.Dst = MAC{2, 0, 0, 0, 0, 2}
	}
	if l.EtherType == 0 {
		l.EtherType = EtherTypeIPv4
		if len(packet) > 0 && packet[0]>>4 == 6 {
			l.EtherType = EtherTypeIPv6
		}
	}
	b := make([]byte, 0, EthernetLen+VLANLen+len(packet))
	b = append(b, l.Dst[:]...)
	b = append(b, l.Src[:]...)
	if l.VLAN != 0 {
		b = binary.BigEndian.AppendUint16(b, EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, l.VLAN)
	}
	b = binary.BigEndian.AppendUint16(b, l.EtherType)
	return append(b, packet...)
}
