package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// Datagrams: whose a flow is, a connected socket says, or a server's table of
// the flows whose datagrams it took.

// datagram is frame of one.
func (c *client) datagram(h *ownHost, payload []byte, chain ...uint16) []byte {
	return c.frame(h, wire.UDP{Src: c.addr, Dst: c.vip, Payload: payload}.Packet(), chain...)
}

func (c *client) says(what string, h *ownHost, f fate, chain ...uint16) {
	c.t.Helper()
	c.net.want(c.by.name+": "+what, h, c.datagram(h, []byte("hello"), chain...), f)
}

func eachDeliveryUDP(t *testing.T, n *ownNet, test func(c *client)) {
	t.Helper()
	for i, by := range deliveries {
		test(newClient(n, by, uint16(10000+100*i), true))
	}
	test(newClient(n, byMAC, 20000, true).v6())
}

// A flow stays where its first datagram was taken, wherever its bucket goes; a
// new one is taken by who has the bucket, after nobody before knew it.
//
//	M               A               B               C
//	│── [B,A] ─────────────────────────────────────▶│ not known
//	│               │               │◀── [A,C] ─────│
//	│               │◀── [C] ───────│ not known     │
//	│               │── [] ────────────────────────▶│ taken
func TestOwnFlows(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 4)
	first, second, third, fourth := n.hosts[0], n.hosts[1], n.hosts[2], n.hosts[3]
	eachDeliveryUDP(t, n, func(c *client) {
		c.says("the first datagram", first, taken("", 1))
		c.says("moved", second, taken("", 2, 1), 1)
		c.says("moved twice", third, taken("", 3, 2, 1), 2, 1)
		c.says("moved thrice", fourth, taken("", 4, 3, 2, 1), 3, 2, 1)
		c.says("and back", first, taken("in_owned", 1), 4, 3, 2)

		// Known to nobody.
		d := c.again()
		d.says("one hop", second, taken("in_returned", 2, 1, 2), 1)
		d.says("known now", second, taken("in_owned", 2), 1)
		d.says("at others, too", third, taken("", 3, 1, 2), 1, 2)
		d = d.again()
		d.says("two hops", third, taken("in_returned", 3, 2, 1, 3), 2, 1)
		d = d.again()
		d.says("three hops", fourth, taken("in_returned", 4, 3, 2, 1, 4), 3, 2, 1)
		d = d.again()
		d.says("unknown servers in the chain", fourth, taken("in_returned", 4, 2, 4), 900, 2, 901)
		d = d.again()
		d.says("nobody else", fourth, taken("in_unowned", 4), 900)
		d = d.again()
		d.says("itself", fourth, dropped("drop_loop", 4), 4)
		d.says("itself behind others", fourth, dropped("drop_loop", 4), 1, 4)
		d.says("itself behind others", third, dropped("drop_loop", 3), 1, 3, 2)
	})
}

// A datagram that nobody owns comes back, but not from behind a machine that is
// silent: it is not asked, or no flow would begin while a chain names it.
// Segments are lost there, rather than reset by who is asked instead.
//
//	M               A               B (silent)      C
//	│── [B,C] ─────▶│               │               │
//	│               │── [A] ───────────────────────▶│
//	│               │◀── [] ────────────────────────│
func TestOwnSilentPrevious(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	n.listenAll()
	first, third := n.hosts[0], n.hosts[2]
	silence := func(vip netip.AddrPort, at *ownHost) {
		key := bpf.HostPeerKey{VipId: vipID(vip), Slot: 2}
		var peer bpf.HostPeer
		n.must(at.o.HostPeers.Lookup(key, &peer))
		peer.Flags |= bpf.PeerSilent
		n.must(at.o.HostPeers.Put(key, peer))
	}
	eachDeliveryUDP(t, n, func(c *client) {
		silence(c.vip, first)
		silence(c.vip, third)
		c.says("nobody else", first, taken("unresolved_previous", 1), 2)
		c = c.again()
		c.says("the first", first, taken("in_returned", 1, 3, 1), 2, 3)
		c = c.again()
		c.says("the last", first, taken("in_returned", 1, 3, 1), 3, 2)
		c = c.again()
		c.says("known behind it", third, taken("", 3))
		c.says("known behind it", first, taken("in_owned", 1, 3), 2, 3)
	})
	eachDelivery(t, n, func(c *client) {
		silence(c.vip, first)
		c.connect(n.hosts[1])
		c.expect("its own connection", first, wire.ACK, taken("", 1, 2), 2)
	})
}

// What is settled is taken without a question, and known from then on.
func TestOwnFlowsForgotten(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	first := n.hosts[0]
	eachDeliveryUDP(t, n, func(c *client) {
		for _, now := range []uint32{ownNow, 0xffff_ff00} { // the clock wraps
			c = c.again()
			at := func(age uint32) {
				first.clock(now + age)
				n.hosts[1].clock(now + age)
				c.time = now + age
			}
			at(0)
			c.says("taken", first, taken("", 1))
			at(ownChainMS)
			c.says("just known", first, taken("in_owned", 1), 2)
			at(ownChainMS + ownChainMS)
			c.says("the last datagram counts", first, taken("in_owned", 1), 2)
			at(3*ownChainMS + 1)
			c.says("forgotten", first, taken("in_returned", 1, 2, 1), 2)
		}
		first.clock(ownNow)
		n.hosts[1].clock(ownNow)
	})
}

// An entry is written once a second at most.
func TestOwnFlowsWrittenRarely(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	c := newClient(n, gue4, 10000, true)
	entry := func() (last uint32) {
		key := bpf.Tuple{Addr: words("::ffff:198.51.100.7"), Sport: c.addr.Port()<<8 | c.addr.Port()>>8, Dport: 443<<8&0xffff | 443>>8, VipId: vipID(c.vip)}
		n.must(h.o.HostFlows.Lookup(key, &last))
		return last
	}
	for _, step := range []struct{ at, want uint32 }{{0, 0}, {1, 0}, {999, 0}, {1000, 1000}, {1500, 1000}, {1999, 1000}, {2000, 2000}, {90_000, 90_000}} {
		h.clock(ownNow + step.at)
		c.says("again", h, taken("", 1))
		if got := entry() - ownNow; got != step.want {
			t.Errorf("at %d ms: the entry is of %d, want %d", step.at, got, step.want)
		}
	}
}

// A socket that is connected to the client owns its flow; one that is for all
// says nothing.
func TestOwnConnectedUDP(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	for _, vip := range []netip.AddrPort{beamer4U, beamer6U, faild4U, faild6U} {
		n.must(second.ns.Do(func() error {
			c, err := (&net.ListenConfig{Control: reuse}).ListenPacket(t.Context(), "udp", vip.String())
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		}))
	}
	eachDeliveryUDP(t, n, func(c *client) {
		c.says("a socket for all", second, taken("in_returned", 2, 1, 2), 1)
		c = c.again()
		n.must(second.ns.Do(func() error {
			d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(c.vip), Control: reuse}
			conn, err := d.Dial("udp", c.addr.String())
			if err == nil {
				t.Cleanup(func() { conn.Close() })
			}
			return err
		}))
		c.says("a socket of its own", second, taken("in_owned", 2), 1)
		c.again().says("another client", second, taken("in_returned", 2, 1, 2), 1)
	})
}

// A QUIC client's first packet opens a connection with who has the bucket.
func TestOwnQUICInitial(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	eachDeliveryUDP(t, n, func(c *client) {
		for _, version := range []uint32{1, 0x6b3343cf} {
			c = c.again()
			initial := wire.QUICInitial(version, 7, 1200)
			n.want(fmt.Sprintf("%s: version %#x", c.by.name, version), second, c.datagram(second, initial, 1), taken("in_opening", 2))
			c.says("it is known then", second, taken("in_owned", 2), 1)
			d := c.again().again().again()
			n.want(c.by.name+": too short", second, d.datagram(second, initial[:1199], 1), taken("in_returned", 2, 1, 2))
			d = d.again()
			n.want(c.by.name+": cut", second, d.datagram(second, initial[:4], 1), taken("in_returned", 2, 1, 2))
			d = d.again()
			other := wire.QUICInitial(version, 7, 1200)
			other[4] ^= 0x10
			n.want(c.by.name+": another version", second, d.datagram(second, other, 1), taken("in_returned", 2, 1, 2))
			c = d
		}
	})
}

// Datagrams that nobody knows are taken, whatever the table that they came by:
// nothing resets them, and most begin a flow.
func TestOwnFlowsStale(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	eachDeliveryUDP(t, n, func(c *client) {
		second.change(c.vip, func(v *bpf.HostVIP) { v.Flags = 1 })
		c.says("unsettled", second, taken("in_unowned", 2))
		c.says("known, unsettled", second, taken("in_owned", 2))
		second.change(c.vip, func(v *bpf.HostVIP) { v.Flags = 0 })
		if c.by.outer == 0 {
			return
		}
		c.gen--
		c.says("known, stale", second, taken("in_owned", 2))
		c = c.again()
		c.says("unknown, stale", second, taken("in_unowned", 2))
		c = c.again()
		c.says("unknown, stale, with a chain", second, taken("in_returned", 2, 1, 2), 1)
	})
}

// Balancers' prefixes may hold the servers, too: a datagram does not go round
// for it.
func TestOwnFlowsSourcesOverlap(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	for _, h := range n.hosts {
		n.must(h.o.HostSources.Put(uint32(0), bpf.HostSource{Addr: words("10.0.0.0"), Mask: [2]uint64{^uint64(0), ^uint64(0) >> 24}}))
	}
	c := newClient(n, gue4, 12000, true)
	c.says("nobody's", n.hosts[2], taken("", 3, 2, 1, 3), 2, 1)
}

// reuse lets a socket share its port.
func reuse(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(err, set)
}
