package router

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// word is a MAC address as the program compares and writes it, with what
// stands in its upper two bytes.
func word(mac [6]byte, upper uint16) uint64 {
	var b [8]byte
	copy(b[:], mac[:])
	return binary.LittleEndian.Uint64(b[:]) | uint64(upper)<<48
}

func (d Device) encode() (bpf.InputKey, uint64) {
	flags := uint16(0)
	if d.IPv4 {
		flags |= uint16(bpf.InputIPV4)
	}
	if d.IPv6 {
		flags |= uint16(bpf.InputIPV6)
	}
	return bpf.InputKey{Ifindex: uint32(d.Ifindex), Vlan: d.VLAN}, word(d.MAC, flags)
}

func (h Hop) encode() bpf.Hop {
	flags := uint16(0)
	if h.MAC == [6]byte{} {
		flags |= uint16(bpf.HopUnresolved)
	}
	if !h.Redirect {
		flags |= uint16(bpf.HopNoXmit)
	}
	gateway := h.ID.Gateway.As16()
	return bpf.Hop{MacDst: word(h.MAC, flags), MacSrc: word(h.Source, h.VLAN),
		Ifindex: uint32(h.Ifindex), Mtu: uint32(h.MTU), Device: uint32(h.ID.Device),
		Gateway: [2]uint64{binary.LittleEndian.Uint64(gateway[:8]), binary.LittleEndian.Uint64(gateway[8:])}}
}

// hopID is the identity of a hop that was read from its map.
func hopID(h *bpf.Hop) HopID {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], h.Gateway[0])
	binary.LittleEndian.PutUint64(b[8:], h.Gateway[1])
	return HopID{Device: int(h.Device), Gateway: netip.AddrFrom16(b).Unmap()}
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

func key4(p netip.Prefix) bpf.Route4 {
	a := p.Addr().As4()
	return bpf.Route4{Bits: uint32(p.Bits()), Addr: le32(a[:])}
}

func key6(p netip.Prefix) bpf.Route6 {
	a := p.Addr().As16()
	return bpf.Route6{Bits: uint32(p.Bits()), Addr: [4]uint32{le32(a[:]), le32(a[4:]), le32(a[8:]), le32(a[12:])}}
}

func prefix4(k bpf.Route4) netip.Prefix {
	var a [4]byte
	binary.LittleEndian.PutUint32(a[:], k.Addr)
	return netip.PrefixFrom(netip.AddrFrom4(a), int(k.Bits))
}

func prefix6(k bpf.Route6) netip.Prefix {
	var a [16]byte
	for i, w := range k.Addr {
		binary.LittleEndian.PutUint32(a[4*i:], w)
	}
	return netip.PrefixFrom(netip.AddrFrom16(a), int(k.Bits))
}

// value is what a route's map holds: FL_ROUTE_*.
func value(kind bpf.RouteKind, index uint32) uint32 { return uint32(kind)<<30 | index }

func pass(reason bpf.RouterReason) uint32 {
	return value(bpf.RoutePass, uint32(reason))
}

// groupOf is a value's group; false: it names none.
func groupOf(v uint32) (uint32, bool) {
	return v & 0x3fffffff, v>>30 == uint32(bpf.RouteGroup)
}

// encodeGroup is the form that the program chooses from.
func encodeGroup(g *pathsel.Group, hops []uint32) (out bpf.RouterGroup) {
	c := &out.Choice
	c.Ports, c.Known, c.Count, c.Even, c.Hop, c.Last = g.Ports, g.Known, g.Count, g.Even, g.Hop, g.Last
	for i, h := range hops {
		out.Hop[i] = uint16(h)
	}
	return out
}
