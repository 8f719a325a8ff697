package attack

import (
	"net/netip"

	"github.com/fairlead/fairlead/wire"
)

// What is aimed at connections that live: each packet has one's addresses and
// ports. Sequence numbers are made up: who knows them can end a connection
// without a balancer's help.

// reset is an RST of a connection with a number out of its window.
func (a *Attacker) reset(client, vip netip.AddrPort) []byte {
	return wire.TCP{Src: client, Dst: vip, Flags: wire.RST, Seq: a.random.Uint32()}.Packet()
}

// resets are two RSTs for each connection, then a flood that wants the places
// of the flow table, with RSTs between.
func (a *Attacker) resets() []byte {
	if a.n < 2*len(a.Flows) {
		f := a.Flows[a.n%len(a.Flows)]
		return a.reset(f.Client, f.VIP)
	}
	if a.chance(16) {
		f := pick(a, a.Flows...)
		return a.reset(f.Client, f.VIP)
	}
	return a.flood()
}

// Ports that clients take, of those who do not know which.
const firstPort, lastPort = 10000, 65000

// spray is half a flood, half RSTs to the clients' addresses and any port.
func (a *Attacker) spray() []byte {
	if a.chance(2) {
		return a.flood()
	}
	f := pick(a, a.Flows...)
	return a.reset(netip.AddrPortFrom(f.Client.Addr(), uint16(firstPort+a.random.IntN(lastPort-firstPort))), f.VIP)
}

// cookies are segments whose echoed timestamp, which carries the cookie, is
// another: one bit, any bits, or all.
func (a *Attacker) cookies() []byte {
	f := pick(a, a.Flows...)
	ecr := f.TSEcr
	switch a.random.IntN(3) {
	case 0:
		ecr ^= 1 << a.random.IntN(32)
	case 1:
		ecr ^= a.random.Uint32()
	default:
		ecr = pick(a, pick(a, a.Flows...).TSEcr, a.random.Uint32(), 0, ^uint32(0))
	}
	return wire.TCP{Src: f.Client, Dst: f.VIP, Flags: pick[uint8](a, wire.ACK, wire.ACK, wire.ACK|wire.PSH, wire.ACK|wire.FIN, wire.SYN|wire.ACK),
		Seq: a.random.Uint32(), Ack: a.random.Uint32(), Options: wire.Timestamp(f.TSVal, ecr), Payload: a.bytes(a.random.IntN(20))}.Packet()
}

const (
	// AskGenuine is which of the errors is a genuine one.
	AskGenuine = 21
	// askRouters is from how many addresses the genuine come.
	askRouters = 200
)

// asks are ICMP errors, "too big", that quote so little of a packet that no
// balancer can tell whose it was: of nobody's connections, from one address,
// and between them genuine ones of those that live, each from another.
func (a *Attacker) asks() []byte {
	if !a.host.IsValid() {
		a.host = a.of(a.Attackers, pick(a, a.VIPs...).Addr().Is6())
	}
	vip := pick(a, a.VIPs...)
	for vip.Addr().Is6() != a.host.Is6() {
		vip = pick(a, a.VIPs...)
	}
	six := vip.Addr().Is6()
	e := wire.ICMPError{Src: a.host, Dst: vip.Addr()}
	client := netip.AddrPortFrom(a.source(six), a.port())
	if a.genuine = a.n%AskGenuine == 0; a.genuine {
		f := a.Flows[a.n/AskGenuine%len(a.Flows)]
		six, vip, client = f.VIP.Addr().Is6(), f.VIP, f.Client
		router := uint8(a.n / AskGenuine % askRouters)
		e.Dst, e.Src = vip.Addr(), netip.AddrFrom4([4]byte{198, 19, 255, router})
		if six {
			b := Sources6.Addr().As16() // each in a network of 64 bits of its own
			b[7], b[15] = router, 1
			e.Src = netip.AddrFrom16(b)
		}
	}
	quoted := wire.TCP{Src: vip, Dst: client, Flags: wire.ACK, Seq: a.random.Uint32(), Options: wire.Timestamp(a.random.Uint32(), a.random.Uint32())}
	e.Type, e.Code, e.MTU, e.QuoteBytes = wire.ICMPUnreachable, wire.ICMPFragNeeded, 1400, 28
	if six {
		e.Type, e.Code, e.QuoteBytes = wire.ICMPv6TooBig, 0, 48
	}
	e.Quoted = quoted.Packet()
	return e.Packet()
}
