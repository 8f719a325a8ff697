package host

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// delivery is a way by which packets reach a server.
type delivery struct {
	name  string
	outer int // 4 or 6: of the tunnel; 0: faild
	over  wire.Tunnel
	check bool // with a UDP checksum
}

var (
	ipip4      = delivery{"ipip", 4, wire.IPIP, false}
	gue4       = delivery{"gue", 4, wire.GUE, false}
	gue4c      = delivery{"gue-checksum", 4, wire.GUE, true}
	ipip6      = delivery{"ipip6", 6, wire.IPIP, false}
	gue6       = delivery{"gue6", 6, wire.GUE, true}
	byMAC      = delivery{"mac", 0, "", false}
	deliveries = func() []delivery {
		all := []delivery{ipip4, gue4, gue4c, ipip6, gue6, byMAC}
		for _, t := range wire.Tunnels() {
			if t != wire.IPIP && t != wire.GUE {
				all = append(all, delivery{string(t), 4, t, true}, delivery{string(t) + "6", 6, t, true})
			}
		}
		return all
	}()
)

// over are the deliveries by tunnels of a family.
func over(outer int) (some []delivery) {
	for _, d := range deliveries {
		if d.outer == outer {
			some = append(some, d)
		}
	}
	return some
}

// client is a hand-made one: it sends what the test says, to the server the
// test says, and keeps what it must of TCP's sequence numbers.
type client struct {
	t        *testing.T
	net      *ownNet
	addr     netip.AddrPort
	vip      netip.AddrPort
	by       delivery
	seq, ack uint32
	time     uint32 // of the bucket's last move
	gen      uint32
	tag      uint16
	outer    wire.Outer
}

// newClient uses a VIP that the delivery leads to: of its own family.
func newClient(n *ownNet, by delivery, port uint16, udp bool) *client {
	c := &client{t: n.t, net: n, by: by, seq: 1_000_000, time: ownNow - 1000, gen: ownGeneration}
	c.addr = netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), port)
	c.vip = beamer4
	if by.outer == 6 {
		c.addr = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::7"), port)
		c.vip = beamer6
	}
	if by.outer == 0 {
		c.vip = faild4
	}
	if udp {
		c.vip = netip.AddrPortFrom(c.vip.Addr(), 443)
	}
	return c
}

// v6 makes the client of faild one of IPv6.
func (c *client) v6() *client {
	c.addr = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::7"), c.addr.Port())
	c.vip = netip.AddrPortFrom(faild6.Addr(), c.vip.Port())
	return c
}

// frame is a packet as a balancer or switch sends it to h, with a chain.
func (c *client) frame(h *ownHost, packet []byte, chain ...uint16) []byte {
	if c.by.outer == 0 {
		f := wire.Faild{Kind: wire.FaildPass, Current: h.slot, Previous: [3]uint16{wire.FaildNone, wire.FaildNone, wire.FaildNone}}
		copy(f.Previous[:], chain)
		mac, _ := wire.EncodeFaild(f) // with an error comes what no switch would send
		return wire.Link{Dst: mac, Src: wire.MAC{2, 0xee, 0, 0, 0, 1}, VLAN: c.tag}.Frame(packet)
	}
	hops := wire.NewHops(c.time, c.gen, chain...)
	o := c.outer
	o.Tunnel, o.Dst, o.Hops, o.Checksum = c.by.over, h.addr(c.by.outer == 6), &hops, c.by.check
	if !o.Src.IsValid() {
		o.Src = balancer4
		if c.by.outer == 6 {
			o.Src = balancer6
		}
	}
	if c.by.over.Port() != 0 {
		o.SrcPort = 50000
	}
	return wire.Link{Dst: h.mac(), VLAN: c.tag}.Frame(o.Encapsulate(packet))
}

func (c *client) segment(flags uint8, payload string) []byte {
	return wire.TCP{Src: c.addr, Dst: c.vip, Flags: flags, Seq: c.seq, Ack: c.ack, Payload: []byte(payload)}.Packet()
}

// send sends a segment to h; it ends up at the server that is returned.
func (c *client) send(h *ownHost, flags uint8, payload string, chain ...uint16) (*ownHost, uint32) {
	c.t.Helper()
	return c.net.deliver(h, c.frame(h, c.segment(flags, payload), chain...))
}

// sent is send of what uses up sequence numbers.
func (c *client) sent(h *ownHost, flags uint8, payload string, chain ...uint16) (*ownHost, uint32) {
	c.t.Helper()
	at, verdict := c.send(h, flags, payload, chain...)
	c.seq += uint32(len(payload))
	if flags&(wire.SYN|wire.FIN) != 0 {
		c.seq++
	}
	return at, verdict
}

// from tells answers to this client.
func (c *client) from(flags, not uint8) func(*wire.Parsed) bool {
	return func(p *wire.Parsed) bool {
		return p.Protocol == wire.ProtoTCP && p.Source() == c.vip && p.Destination() == c.addr && p.Is(flags) && p.Flags&not == 0
	}
}

// synAck sends a SYN to h and waits for the answer, which it returns without
// acknowledging it.
func (c *client) synAck(h *ownHost, chain ...uint16) *wire.Parsed {
	c.t.Helper()
	if at, verdict := c.send(h, wire.SYN, "", chain...); at != h || verdict != xdpPass {
		c.t.Fatalf("a SYN to server %d: verdict %d at %d", h.slot, verdict, at.slot)
	}
	return h.answer("SYN-ACK", c.from(wire.SYN|wire.ACK, 0))
}

// connect opens a connection with h.
func (c *client) connect(h *ownHost, chain ...uint16) {
	c.t.Helper()
	answer := c.synAck(h, chain...)
	c.seq++
	c.ack = answer.Seq + 1
	if at, verdict := c.send(h, wire.ACK, "", chain...); at != h || verdict != xdpPass {
		c.t.Fatalf("an ACK to server %d: verdict %d at %d", h.slot, verdict, at.slot)
	}
	c.talk(h, h, chain...)
}

// talk says something to server `to` and hears the answer of the owner.
func (c *client) talk(to, owner *ownHost, chain ...uint16) {
	c.t.Helper()
	at, verdict := c.sent(to, wire.ACK|wire.PSH, "hello", chain...)
	if at != owner || verdict != xdpPass {
		c.t.Fatalf("data to server %d: verdict %d at %d, want at %d (path %d)", to.slot, verdict, at.slot, owner.slot, c.net.path)
	}
	answer := owner.answer("answer", func(p *wire.Parsed) bool { return c.from(wire.ACK, 0)(p) && len(p.Payload) > 0 })
	if string(answer.Payload) != "HELLO" || answer.Seq != c.ack {
		c.t.Fatalf("server %d answered %q, seq %d, want seq %d", owner.slot, answer.Payload, answer.Seq, c.ack)
	}
	c.ack += uint32(len(answer.Payload))
	c.send(to, wire.ACK, "", chain...)
}

// hangUp has the owner close first, so that it is the one in TIME_WAIT.
func (c *client) hangUp(to, owner *ownHost, chain ...uint16) {
	c.t.Helper()
	c.sent(to, wire.ACK|wire.PSH, ".", chain...)
	fin := owner.answer("FIN", c.from(wire.FIN, 0))
	c.ack = fin.Seq + 1
	c.sent(to, wire.ACK|wire.FIN, "", chain...)
	owner.answer("ACK of FIN", func(p *wire.Parsed) bool { return c.from(wire.ACK, wire.FIN)(p) && p.Ack == c.seq })
}

// fate is what must become of a packet.
type fate struct {
	path    []uint16 // servers that it comes to, in order
	verdict uint32   // of the last
	reason  string   // that the last counts
}

func taken(reason string, path ...uint16) fate   { return fate{path, xdpPass, reason} }
func dropped(reason string, path ...uint16) fate { return fate{path, xdpDrop, reason} }

// want delivers a frame to h and looks what becomes of it.
func (n *ownNet) want(what string, h *ownHost, frame []byte, f fate) {
	n.t.Helper()
	last := n.hosts[f.path[len(f.path)-1]-1]

	var verdict uint32
	counts := last.counted(func() { _, verdict = n.deliver(h, frame) })
	if !slices.Equal(n.path, f.path) || verdict != f.verdict || f.reason != "" && counts[f.reason] == 0 {
		n.t.Errorf("%s: came to servers %d, verdict %d, counted %v; want %d, %d, %s", what, n.path, verdict, counts, f.path, f.verdict, f.reason)
	}

}

// expect is want for a segment of the client's.
func (c *client) expect(what string, h *ownHost, flags uint8, f fate, chain ...uint16) {
	c.t.Helper()
	c.net.want(c.by.name+": "+what, h, c.frame(h, c.segment(flags, ""), chain...), f)
}

// eachDelivery runs a test for every delivery; ports do not repeat.
func eachDelivery(t *testing.T, n *ownNet, test func(c *client)) {
	t.Helper()
	for i, by := range deliveries {
		test(newClient(n, by, uint16(10000+100*i), false))
	}
	test(newClient(n, byMAC, 20000, false).v6())
}

// again is another client of the same kind.
func (c *client) again() *client {
	next := *c
	next.addr = netip.AddrPortFrom(c.addr.Addr(), c.addr.Port()+1)
	next.seq = c.seq + 0x1234_0000
	next.ack = 0
	return &next
}

// listenAll has all servers listen at all VIPs of TCP.
func (n *ownNet) listenAll() {
	n.t.Helper()
	for _, h := range n.hosts {
		for _, vip := range ownVIPs {
			if !isUDP(vip) {
				h.listen(vip)
			}
		}
	}
}
