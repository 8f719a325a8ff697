package wire

import (
	"cmp"
	"encoding/binary"
	"net/netip"
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// TCP describes a TCP segment in its packet.
type TCP struct {
	Src, Dst netip.AddrPort
	Flags    uint8
	Seq, Ack uint32
	Window   uint16 // 0: 65535
	// Options are padded with zeros (end of options) to a multiple of 4, at
	// most 40 bytes.
	Options, Payload []byte
	// DataOffset overrides the header length in words of 4 bytes; 0: right.
	DataOffset uint8
	// BadChecksum inverts the checksum.
	BadChecksum bool
	VLAN        uint16 // as Link.VLAN, for short
	Link        Link
	IP          IP // further fields of the IP header
}

// Packet builds the segment from its IP header on.
func (t TCP) Packet() []byte {
	header := 20 + (len(t.Options)+3)/4*4
	if header > 60 {
		panic("wire: more than 40 bytes of TCP options")
	}
	t.Window = cmp.Or(t.Window, 65535)
	t.DataOffset = cmp.Or(t.DataOffset, uint8(header/4))
	b := make([]byte, header, header+len(t.Payload))
	binary.BigEndian.PutUint16(b, t.Src.Port())
	binary.BigEndian.PutUint16(b[2:], t.Dst.Port())
	binary.BigEndian.PutUint32(b[4:], t.Seq)
	binary.BigEndian.PutUint32(b[8:], t.Ack)
	b[12], b[13] = t.DataOffset<<4, t.Flags
	binary.BigEndian.PutUint16(b[14:], t.Window)
	copy(b[20:], t.Options)
	b = append(b, t.Payload...)
	c := TransportChecksum(t.Src.Addr(), t.Dst.Addr(), ProtoTCP, b)
	if t.BadChecksum {
		c = ^c
	}
	binary.BigEndian.PutUint16(b[16:], c)
	return t.IP.with(t.Src.Addr(), t.Dst.Addr(), ProtoTCP, b).Packet()
}

// Frame builds the segment's Ethernet frame.
func (t TCP) Frame() []byte { return t.Link.withVLAN(t.VLAN).Frame(t.Packet()) }

// UDP describes a UDP datagram in its packet.
type UDP struct {
	Src, Dst    netip.AddrPort
	Payload     []byte
	BadChecksum bool
	// NoChecksum sends zero: "none" (legal in IPv4, in IPv6 by RFC 6935).
	NoChecksum bool
	VLAN       uint16
	Link       Link
	IP         IP
}

// Packet builds the datagram from its IP header on.
func (u UDP) Packet() []byte {
	b := make([]byte, 8, 8+len(u.Payload))
	binary.BigEndian.PutUint16(b, u.Src.Port())
	binary.BigEndian.PutUint16(b[2:], u.Dst.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(u.Payload)))
	b = append(b, u.Payload...)
	if !u.NoChecksum {
		c := TransportChecksum(u.Src.Addr(), u.Dst.Addr(), ProtoUDP, b)
		if c == 0 {
			c = 0xffff // zero would mean "none"
		}
		if u.BadChecksum {
			c = ^c
		}
		binary.BigEndian.PutUint16(b[6:], c)
	}
	return u.IP.with(u.Src.Addr(), u.Dst.Addr(), ProtoUDP, b).Packet()
}

// Frame builds the datagram's Ethernet frame.
func (u UDP) Frame() []byte { return u.Link.withVLAN(u.VLAN).Frame(u.Packet()) }

// with fills in what the layer above decides.
func (p IP) with(src, dst netip.Addr, proto uint8, payload []byte) IP {
	p.Src, p.Dst, p.Protocol, p.Payload = src, dst, proto, payload
	return p
}

func (l Link) withVLAN(tag uint16) Link {
	if tag != 0 {
		l.VLAN = tag
	}
	return l
}
