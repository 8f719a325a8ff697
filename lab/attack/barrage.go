package attack

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/wire"
)

// longest is what every way takes, with what barrage pads.
const longest = 1400

// barrage is packets of all kinds, to VIPs and to machines' own addresses:
// half of them as they should be, the others cut short or changed.
func (a *Attacker) barrage() []byte {
	b := a.any(3)
	for len(b) > longest {
		b = a.any(3)
	}
	header := 20
	if b[0]>>4 == 6 {
		header = 40
	}
	switch a.random.IntN(8) {
	case 0, 1: // shorter than what is inside says
		b = b[:header+a.random.IntN(len(b)-header+1)]
		setLength(b)
	case 2: // a few bytes behind the header are others
		for range 1 + a.random.IntN(4) {
			if len(b) > header {
				b[header+a.random.IntN(len(b)-header)] = byte(a.random.Uint32())
			}
		}
	case 3: // padded
		b = append(b, a.bytes(a.random.IntN(8))...)
	}
	return b
}

// setLength makes a packet's header say how long it is.
func setLength(b []byte) {
	if b[0]>>4 == 6 {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
		return
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], wire.Checksum(b[:min(len(b), int(b[0]&15)*4)]))
}

// ends draws who a packet is from and to, of one family.
func (a *Attacker) ends() (from, to netip.AddrPort) {
	f := pick(a, a.Flows...)
	if !a.chance(4) { // a VIP
		to = pick(a, a.VIPs...)
		if a.chance(2) { // a connection's own
			return f.Client, f.VIP
		}
		if a.chance(4) {
			to = netip.AddrPortFrom(to.Addr(), uint16(a.random.Uint32()))
		}
	} else {
		to = netip.AddrPortFrom(pick(a, a.Machines...), pick[uint16](a, 80, wire.GUE.Port(), uint16(a.random.Uint32())))
	}
	six := to.Addr().Is6()
	by := pick(a, a.source(six), a.source(six), a.of(a.Attackers, six), a.of(a.Balancers, six), a.of(a.Machines, six))
	return netip.AddrPortFrom(by, a.port()), to
}

// any draws a packet; within tunnels, depth of them at most.
func (a *Attacker) any(depth int) []byte {
	from, to := a.ends()
	h := a.header(to.Addr().Is6())
	switch a.random.IntN(8) {
	case 0:
		h.Src, h.Dst, h.Protocol, h.Payload = from.Addr(), to.Addr(), uint8(a.random.Uint32()), a.bytes(a.random.IntN(120))
		return h.Packet()
	case 1, 2:
		return a.odd(from, to, h).Packet()
	case 3:
		return wire.UDP{Src: from, Dst: to, Payload: a.bytes(a.random.IntN(200)), NoChecksum: a.chance(2), IP: h}.Packet()
	case 4:
		return a.message(from, to, h).Packet()
	case 5:
		return a.gue(from, depth)
	}
	if depth == 0 {
		return a.odd(from, to, h).Packet()
	}
	return a.nested(depth)
}

// header draws options, extension headers, fragments.
func (a *Attacker) header(six bool) wire.IP {
	h := wire.IP{TTL: pick[uint8](a, 0, 2, 3, 255), TOS: uint8(a.random.Uint32()), ID: a.random.Uint32(), FlowLabel: a.random.Uint32()}
	if a.chance(4) {
		h.MoreFragments, h.FragmentOffset, h.Atomic = a.chance(2), pick[uint16](a, 0, 0, 1, 2, uint16(a.random.IntN(8000))), a.chance(2)
	}
	switch {
	case !a.chance(4):
	case !six:
		h.Options = pick(a, a.bytes(a.random.IntN(41)), []byte{1, 1, 1, 1}, wire.NewHops(a.random.Uint32(), 1).Append(nil))
	default:
		for range 1 + a.random.IntN(3) {
			h.Extensions = append(h.Extensions, wire.Extension{Type: pick[uint8](a, wire.ProtoHopByHop, wire.ProtoRouting, wire.ProtoDestOptions, wire.ProtoNoNext),
				Body: pick(a, nil, a.bytes(6), a.bytes(14), make([]byte, 300))})
		}
	}
	return h
}

// odd is a segment with any flags, options and lengths.
func (a *Attacker) odd(from, to netip.AddrPort, h wire.IP) wire.TCP {
	t := wire.TCP{Src: from, Dst: to, Flags: uint8(a.random.Uint32()), Seq: a.random.Uint32(), Ack: a.random.Uint32(), Window: uint16(a.random.Uint32()),
		Payload: a.bytes(a.random.IntN(60)), BadChecksum: a.chance(8), IP: h}
	t.Options = pick(a, nil, wire.Timestamp(a.random.Uint32(), a.random.Uint32()), wire.SYNOptions(1460, a.random.Uint32()), a.bytes(a.random.IntN(41)),
		wire.SACK(a.random.Uint32(), a.random.Uint32()))
	if a.chance(6) {
		t.DataOffset = uint8(a.random.IntN(16))
	}
	return t
}

// message is ICMP of any type. What it quotes, if anything, may be of a
// connection that lives.
func (a *Attacker) message(from, to netip.AddrPort, h wire.IP) wire.ICMP {
	f := pick(a, a.Flows...)
	m := wire.ICMP{Src: from.Addr(), Dst: to.Addr(), Type: uint8(a.random.Uint32()), Code: pick[uint8](a, 0, 1, 4, uint8(a.random.Uint32())),
		Rest: a.random.Uint32(), BadChecksum: a.chance(8), IP: h}
	if a.chance(2) {
		m.Type = pick[uint8](a, 0, 3, 4, 5, 8, 9, 10, 11, 12, 13)
		if to.Addr().Is6() {
			m.Type = pick[uint8](a, 1, 2, 3, 4, 128, 129, 130, 133, 134, 135, 136, 137)
		}
	}
	if m.Payload = a.bytes(a.random.IntN(80)); a.chance(2) {
		m.Payload = wire.TCP{Src: f.VIP, Dst: f.Client, Flags: wire.ACK, Seq: a.random.Uint32(), Ack: a.random.Uint32(), Options: wire.Timestamp(a.random.Uint32(), 1)}.Packet()
	}
	return m
}

// gue is a datagram to a server's GUE port with any header of GUE, and
// anything behind it.
func (a *Attacker) gue(from netip.AddrPort, depth int) []byte {
	server := pick(a, a.Servers...)
	six := server.Is6()
	payload := append([]byte{byte(a.random.Uint32()), pick[uint8](a, 4, 41, 17, 58, uint8(a.random.Uint32())), pick[uint8](a, 0, uint8(a.random.Uint32())), 0}, a.bytes(4*a.random.IntN(6))...)
	if depth > 0 {
		payload = append(payload, a.any(depth-1)...)
	}
	by := from.Addr()
	if by.Is6() != six {
		by = pick(a, a.source(six), a.of(a.Balancers, six))
	}
	return wire.UDP{Src: netip.AddrPortFrom(by, a.port()), Dst: netip.AddrPortFrom(server, wire.GUE.Port()), Payload: payload, NoChecksum: true}.Packet()
}

// nested is a packet in a tunnel with hops that name anybody, perhaps in
// another, or of another protocol than it says.
func (a *Attacker) nested(depth int) []byte {
	inner := a.any(depth - 1)
	server := pick(a, a.Servers...)
	if a.chance(4) {
		server = pick(a, a.Machines...)
	}
	six := server.Is6()
	o := wire.Outer{Dst: server, Src: pick(a, a.of(a.Attackers, six), a.source(six), a.of(a.Balancers, six), a.of(a.Machines, six)),
		Tunnel: pick(a, wire.Tunnels()...), SrcPort: a.port(), TTL: pick[uint8](a, 0, 3), TOS: uint8(a.random.IntN(4))}
	if a.chance(2) {
		h := wire.NewHops(a.random.Uint32(), a.random.Uint32N(64), uint16(a.random.IntN(8)), uint16(a.random.IntN(8)))
		o.Hops = &h
	}
	if a.chance(6) {
		return wire.IP{Src: o.Src, Dst: o.Dst, Protocol: pick[uint8](a, 4, 41, 47, 97, 115, 137), Payload: inner}.Packet()
	}
	return o.Encapsulate(inner)
}
