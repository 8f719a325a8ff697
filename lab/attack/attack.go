// Package attack makes the packets of somebody who wants to break connections,
// for scenario attack of the laboratory. It does no I/O: a packet follows from
// what the attacker knows of the site, and from the seed.
package attack

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/wire"
)

// Site is what an attacker knows: more than one would, as knowing must not
// help.
type Site struct {
	VIPs []netip.AddrPort `json:"vips"`
	// Flows are the connections that live.
	Flows []Flow `json:"flows"`
	// Servers are where tunnels end, Machines all that have an address of
	// their own.
	Servers  []netip.Addr `json:"servers"`
	Machines []netip.Addr `json:"machines"`
	// Balancers are sources of tunnels, which the attacker forges.
	Balancers []netip.Addr `json:"balancers"`
	// Gateways are the servers' next hops to clients; Idle are their
	// neighbours that forward nothing.
	Gateways []netip.Addr `json:"gateways"`
	Idle     []netip.Addr `json:"idle"`
	// Attackers are the attacker's own addresses.
	Attackers []netip.Addr `json:"attackers"`
}

// Flow is a connection that lives, as its client's last segment had it.
type Flow struct {
	Client  netip.AddrPort `json:"client"`
	VIP     netip.AddrPort `json:"vip"`
	Ack     uint32         `json:"ack"`
	Stamped bool           `json:"stamped"` // it carries timestamps
	TSVal   uint32         `json:"tsval"`
	TSEcr   uint32         `json:"tsecr"`
}

// Sources of packets that nobody is to answer: RFC 2544's and RFC 5180's
// prefixes for benchmarks.
var (
	Sources4 = netip.MustParsePrefix("198.18.0.0/15")
	Sources6 = netip.MustParsePrefix("2001:2::/48")
)

// Plan is an attack.
type Plan struct {
	Kind string `json:"kind"`
	Site Site   `json:"site"`
}

// kinds of packets that Plan.Kind names.
var kinds = map[string]func(*Attacker) []byte{
	"barrage":    (*Attacker).barrage,
	"flood":      (*Attacker).flood,
	"discovery":  (*Attacker).discovery,
	"redirect":   (*Attacker).redirect,
	"resets":     (*Attacker).resets,
	"spray":      (*Attacker).spray,
	"asks":       (*Attacker).asks,
	"cookies":    (*Attacker).cookies,
	"generation": (*Attacker).generation,
}

// Attacker makes a plan's packets, one after the other.
type Attacker struct {
	Site
	random *rand.Rand
	next   func(*Attacker) []byte
	// n counts packets.
	n int
	// host is the one address that asks.
	host netip.Addr
	// queue is what follows the packet before.
	queue [][]byte
	// genuine tells that the last packet was no attack.
	genuine bool
}

// New begins an attack.
func New(p Plan, random *rand.Rand) (*Attacker, error) {
	next, known := kinds[p.Kind]
	switch {
	case !known:
		return nil, fmt.Errorf("attack %q: must be one of %v", p.Kind, slices.Sorted(maps.Keys(kinds)))
	case len(p.Site.VIPs) == 0 || len(p.Site.Flows) == 0 || len(p.Site.Servers) == 0 || len(p.Site.Machines) == 0 ||
		len(p.Site.Balancers) == 0 || len(p.Site.Gateways) == 0 || len(p.Site.Idle) == 0 || len(p.Site.Attackers) == 0:
		return nil, fmt.Errorf("attack %s: the site %+v lacks something to attack", p.Kind, p.Site)
	}
	return &Attacker{Site: p.Site, random: random, next: next}, nil
}

// Next is the next packet, from its IP header on. genuine tells that it is no
// attack, but what has to get through.
func (a *Attacker) Next() (packet []byte, genuine bool) {
	a.genuine = false
	if len(a.queue) > 0 {
		packet, a.queue = a.queue[0], a.queue[1:]
	} else {
		packet = a.next(a)
	}
	a.n++
	return packet, a.genuine
}

// pick draws one of several.
func pick[T any](a *Attacker, of ...T) T { return of[a.random.IntN(len(of))] }

// chance is true once in n times.
func (a *Attacker) chance(n int) bool { return a.random.IntN(n) == 0 }

func (a *Attacker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.random.Uint32())
	}
	return b
}

// of draws an address of a family; there is one.
func (a *Attacker) of(addresses []netip.Addr, six bool) netip.Addr {
	var fit []netip.Addr
	for _, x := range addresses {
		if x.Is6() == six {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		panic(fmt.Sprintf("attack: no address of the family wanted in %v", addresses))
	}
	return pick(a, fit...)
}

// source draws an address that nobody has.
func (a *Attacker) source(six bool) netip.Addr {
	if six {
		return Address(a.random, Sources6)
	}
	return Address(a.random, Sources4)
}

// Address draws an address of a prefix.
func Address(random *rand.Rand, prefix netip.Prefix) netip.Addr {
	b := prefix.Addr().AsSlice()
	for i := range b {
		keep := min(8, max(0, prefix.Bits()-8*i)) // bits of this byte
		mask := byte(0xff) >> keep
		b[i] |= byte(random.Uint32()) & mask
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// port draws a client's.
func (a *Attacker) port() uint16 { return uint16(1024 + a.random.IntN(64512)) }

// Segment draws a SYN or an ACK of nobody's connection, half of each with
// timestamps.
func Segment(random *rand.Rand, to netip.AddrPort) (t wire.TCP, syn bool) {
	from := Sources4
	if to.Addr().Is6() {
		from = Sources6
	}
	draw := random.Uint64()
	t = wire.TCP{Src: netip.AddrPortFrom(Address(random, from), uint16(1024+random.IntN(64512))), Dst: to, Seq: random.Uint32(), Flags: wire.SYN}
	syn = draw&1 == 0
	if !syn {
		t.Flags, t.Ack = wire.ACK, random.Uint32()
	}
	switch stamped := draw&2 == 0; {
	case syn && stamped:
		t.Options = wire.SYNOptions(1460, random.Uint32())
	case syn:
		t.Options = wire.MSS(1460)
	case stamped:
		t.Options = wire.Timestamp(random.Uint32(), random.Uint32())
	}
	return t, syn
}

// flood is SYNs, ACKs and datagrams of nobody's connections.
func (a *Attacker) flood() []byte {
	to := pick(a, a.VIPs...)
	if a.chance(5) {
		return wire.UDP{Src: netip.AddrPortFrom(a.source(to.Addr().Is6()), a.port()), Dst: to, Payload: a.bytes(a.random.IntN(100))}.Packet()
	}
	t, _ := Segment(a.random, to)
	return t.Packet()
}
