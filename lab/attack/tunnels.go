package attack

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/wire"
)

// What is aimed at servers past the balancers: packets in tunnels, from the
// attacker's own address, anybody's, or a balancer's, forged.

// Types of messages that hosts on one Ethernet send each other, and no
// balancer forwards.
const (
	icmpRedirect    = 5
	routerSolicit   = 133
	routerAdvert    = 134
	neighborSolicit = 135
	neighborAdvert  = 136
	redirect6       = 137
)

// falseMAC is no card's.
var falseMAC = wire.MAC{0x02, 0x66, 0x61, 0x6c, 0x73, 0x65}

// tunnel wraps a packet as a balancer does, with or without hops.
func (a *Attacker) tunnel(server netip.Addr, inner []byte) []byte {
	six := server.Is6()
	o := wire.Outer{Dst: server, Src: pick(a, a.of(a.Attackers, six), a.source(six), a.of(a.Balancers, six)), Tunnel: pick(a, wire.Tunnels()...),
		SrcPort: wire.TunnelPorts | uint16(a.random.IntN(1<<14))}
	if a.chance(2) {
		h := wire.NewHops(a.random.Uint32(), 0)
		o.Hops = &h
	}
	return o.Encapsulate(inner)
}

// vip draws a VIP's address of a family; ok is false where there is none.
func (a *Attacker) vip(six bool) (netip.Addr, bool) {
	for _, i := range a.random.Perm(len(a.VIPs)) {
		if v := a.VIPs[i].Addr(); v.Is6() == six {
			return v, true
		}
	}
	return netip.Addr{}, false
}

// discovery tells servers that their gateway has another card, or that there
// is another router: with the hop limit of who is on the same Ethernet.
func (a *Attacker) discovery() []byte {
	vip, ok := a.vip(true)
	if !ok { // IPv4's is no IP packet: ARP
		return a.redirect()
	}
	gateway, server := a.of(a.Gateways, true), pick(a, a.Servers...)
	mac := func(kind byte) []byte { return append([]byte{kind, 1}, falseMAC[:]...) }
	m := wire.ICMP{Src: gateway, Dst: vip, IP: a.disguise(wire.IP{TTL: 255})}
	switch a.random.IntN(6) {
	case 0, 1: // solicited, override
		m.Type, m.Rest, m.Payload = neighborAdvert, 3<<29, append(gateway.AsSlice(), mac(2)...)
	case 2:
		m.Type, m.Rest, m.Payload = neighborAdvert, 1<<29, append(gateway.AsSlice(), mac(2)...)
	case 3: // about the server itself, so that it notes the asker
		m.Type, m.Payload = neighborSolicit, append(a.of(a.Machines, true).AsSlice(), mac(1)...)
	case 4:
		m.Type, m.Src, m.Payload = routerAdvert, linkLocal(1), append(make([]byte, 8), mac(1)...)
		m.Rest = 64<<24 | 1800
	default:
		m.Type, m.Src, m.Payload = routerSolicit, gateway, mac(1)
	}
	return a.tunnel(server, m.Packet())
}

// disguise puts headers before a message of IPv6 that hosts skip.
func (a *Attacker) disguise(h wire.IP) wire.IP {
	switch a.random.IntN(6) {
	case 0:
		h.Extensions = []wire.Extension{{Type: wire.ProtoHopByHop}}
	case 1:
		h.Extensions = []wire.Extension{{Type: wire.ProtoDestOptions}}
	case 2:
		h.Atomic = true
	}
	return h
}

func linkLocal(n byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: n})
}

// redirect tells servers, as their gateway, that a client is reached by a
// neighbour of theirs.
func (a *Attacker) redirect() []byte {
	f := pick(a, a.Flows...)
	six, server := f.VIP.Addr().Is6(), pick(a, a.Servers...)
	gateway, idle := a.of(a.Gateways, six), a.of(a.Idle, six)
	// The stack takes what quotes an echo reply, and what quotes a
	// connection's very next byte.
	var quoted []byte
	if a.chance(2) {
		quoted = wire.Echo(f.VIP.Addr(), f.Client.Addr(), uint16(a.n), 1, a.bytes(8), true).Packet()
	} else {
		quoted = wire.TCP{Src: f.VIP, Dst: f.Client, Flags: wire.ACK, Seq: f.Ack, Options: wire.Timestamp(1, 1)}.Packet()
	}
	m := wire.ICMP{Src: gateway, Dst: f.VIP.Addr(), Type: icmpRedirect, Code: 1, Payload: quoted, IP: wire.IP{TTL: 255}}
	if !six {
		m.Rest = binary.BigEndian.Uint32(idle.AsSlice())
		if a.chance(4) {
			m.IP.Options = wire.NOPs(4)
		}
		packet := m.Packet()
		if a.chance(4) { // in two pieces, the first with the type
			first := 24 + 8*a.random.IntN(3)
			head := packet[:4*(packet[0]&15)]
			piece := func(payload []byte, offset int, more bool) []byte {
				p := wire.IP{Src: m.Src, Dst: m.Dst, Protocol: wire.ProtoICMP, TTL: 255, ID: uint32(a.n), MoreFragments: more, FragmentOffset: uint16(offset / 8), Payload: payload}
				return a.tunnel(server, p.Packet())
			}
			whole := packet[len(head):]
			a.queue = append(a.queue, piece(whole[first:], first, false))
			return piece(whole[:first], 0, true)
		}
		return a.tunnel(server, packet)
	}
	m.IP = a.disguise(m.IP)
	m.Type, m.Code, m.Src = redirect6, 0, pick(a, gateway, linkLocal(1))
	m.Payload = append(append(idle.AsSlice(), f.Client.Addr().AsSlice()...), 2, 1)
	m.Payload = append(m.Payload, falseMAC[:]...)
	return a.tunnel(server, m.Packet())
}

// generation is segments of nobody's connections by tables that are newer than
// any, as if from a balancer: who can forge its address inside the fabric.
func (a *Attacker) generation() []byte {
	server := pick(a, a.Servers...)
	vip := pick(a, a.VIPs...)
	six := server.Is6()
	g := pick(a, a.random.Uint32N(1<<12), 1<<20-1, 1<<20, 1<<20+a.random.Uint32N(1<<12), a.random.Uint32(), 1<<31)
	h := wire.NewHops(a.random.Uint32(), g)
	t, _ := Segment(a.random, vip)
	return wire.Outer{Dst: server, Src: a.of(a.Balancers, six), Tunnel: pick(a, wire.Tunnels()...), Hops: &h,
		SrcPort: wire.TunnelPorts}.Encapsulate(t.Packet())
}
