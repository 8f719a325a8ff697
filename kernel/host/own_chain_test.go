package host

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// TestComplexity holds the programs well below the verifier's limit of a
// million instructions: older kernels prune less.
func TestComplexity(t *testing.T) {
	t.Parallel()
	const bound = 100_000
	n := newOwnNet(t, 1)
	for name, p := range map[string]*ebpf.Program{"host_in": n.hosts[0].o.HostIn, "host_out": n.hosts[0].o.HostOut,
		"host_accept": n.hosts[0].o.HostAccept, "host_sockops": n.hosts[0].o.HostSockops} {
		info, err := p.Info()
		n.must(err)
		got, ok := info.VerifiedInstructions()
		if !ok {
			t.Skip("the kernel does not tell verified instructions (5.16 or newer does)")
		}
		t.Logf("%s: %d instructions verified", name, got)
		if got > bound {
			t.Errorf("%s: %d instructions verified, more than %d", name, got, bound)
		}
	}
}

// Chains as they should not be, and how they end. tunnels are the deliveries that
// say a time and a generation.

func eachTunnel(t *testing.T, n *ownNet, test func(c *client)) {
	t.Helper()
	for i, by := range deliveries {
		if by.outer != 0 {
			test(newClient(n, by, uint16(30000+100*i), false))
		}
	}
}

// stranger is a segment of a connection that nobody has. Each call has another
// acknowledgement, so that it is asked about anew.
func (c *client) stranger(what string, h *ownHost, f fate, chain ...uint16) {
	c.t.Helper()
	c.ack += 0x0011_0000
	c.expect(what, h, wire.ACK, f, chain...)
}

func TestOwnChainEndsByTime(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	for _, now := range []uint32{ownNow, 0, 1, 0xffff_ffff, 0x8000_0000, ownChainMS / 2} { // the clock wraps
		second.clock(now)
		eachTunnel(t, n, func(c *client) {
			for age, over := range map[int64]bool{0: false, 1: false, ownChainMS: false, ownChainMS + 1: true, 1<<31 - 1: true,
				-1: false, -2000: false, -2001: false, -(1 << 31): false} {
				c.time = now - uint32(age)
				f := taken("", 2, 1)
				if over {
					f = taken("in_unowned", 2)
				}
				before := second.reasons()["clock_ahead"]
				c.stranger(fmt.Sprintf("at %#x, age %d", now, age), second, f, 1)
				if ahead := second.reasons()["clock_ahead"] != before; ahead != (age < -2000) {
					t.Errorf("age %d: clock_ahead counted: %t", age, ahead)
				}
			}
		})
	}
}

// Without a chain there is no time to look at.
func TestOwnNoChainNoTime(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	h.clock(0x9000_0000)
	eachTunnel(t, n, func(c *client) {
		c.time = 0
		c.gen--
		before := h.reasons()["clock_ahead"]
		c.stranger("stale, no chain", h, dropped("drop_stale", 1))
		if h.reasons()["clock_ahead"] != before {
			t.Errorf("%s: clock_ahead counted", c.by.name)
		}
	})
}

// A chain's time is set by balancers, not by the server it passes: a server
// whose clock is behind passes on what another would not.
func TestOwnClocksDisagree(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	second, third := n.hosts[1], n.hosts[2]
	eachTunnel(t, n, func(c *client) {
		c.time = ownNow
		third.clock(ownNow + ownChainMS) // the last millisecond
		second.clock(ownNow - 60_000)
		c.stranger("one ahead, one behind", third, taken("", 3, 2, 1), 2, 1)
		second.clock(ownNow + ownChainMS + 1)
		c.stranger("over at the second", third, taken("in_unowned", 3, 2), 2, 1)
	})
}

func TestOwnUnknownPrevious(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 4)
	fourth := n.hosts[3]
	eachDelivery(t, n, func(c *client) {
		c.stranger("unknown first", fourth, taken("", 4, 1), 900, 1)
		c.stranger("two unknown", fourth, taken("", 4, 1), 900, 901, 1)
		c.stranger("unknown between", fourth, taken("", 4, 3, 1), 3, 900, 1)
		c.stranger("all unknown", fourth, taken("unknown_previous", 4), 900, 901, 902)
		c.stranger("all unknown", fourth, taken("in_unowned", 4), 900)
		if c.by.outer == 0 {
			return
		}
		key := bpf.HostPeerKey{VipId: vipID(c.vip), Slot: 3}
		var peer bpf.HostPeer
		n.must(fourth.o.HostPeers.Lookup(key, &peer))
		was := peer
		for what, flags := range map[string]uint32{"unresolved": was.Flags | 2, "of another family": was.Flags ^ 1} {
			peer.Flags = flags
			n.must(fourth.o.HostPeers.Put(key, peer))
			c.stranger(what, fourth, taken("", 4, 2), 3, 2)
			c.stranger(what+", and nobody else", fourth, taken("unresolved_previous", 4), 3)
		}
		n.must(fourth.o.HostPeers.Put(key, was))
	})
}

func TestOwnLoops(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	n.listenAll()
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		c.stranger("itself", second, dropped("drop_loop", 2), 2)
		c.stranger("itself behind others", second, dropped("drop_loop", 2), 1, 3, 2)
		c.stranger("round", second, dropped("drop_loop", 2, 1), 1, 3, 1)
		c.stranger("a server twice", second, dropped("drop_loop", 2, 1), 1, 1)
		c.connect(second, 1)
		c.expect("what it owns it takes", second, wire.ACK, taken("in_owned", 2), 2)
		if c.by.outer == 0 {
			return
		}
		c = c.again()
		c.outer.TTL = 1
		c.stranger("no hop left", second, dropped("drop_loop", 2), 1)
		c.outer.TTL = 2
		c.stranger("one hop left", n.hosts[2], dropped("drop_loop", 3, 2), 2, 1)
	})
}

// What is passed on is as it was but for the addresses of the tunnel, its TTL
// and the hops; with tags, by other interfaces, and however large.
func TestOwnPassedOn(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	first, second := n.hosts[0], n.hosts[1]
	r := rand.New(rand.NewPCG(4, 4))
	payload := make([]byte, 1300)
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	eachTunnel(t, n, func(c *client) {
		key := bpf.HostPeerKey{VipId: vipID(c.vip), Slot: 1}
		var peer bpf.HostPeer
		n.must(second.o.HostPeers.Lookup(key, &peer))
		was := peer
		for _, in := range []uint16{0, 42} {
			for _, out := range []uint16{0, 42, 43} {
				for _, tos := range []uint8{0, 0x2e << 2, 3} {
					c.tag, c.outer.TOS = in, tos
					peer.MacSrc = macWord(second.mac(), out)
					n.must(second.o.HostPeers.Put(key, peer))
					c.ack += 0x0011_0000
					packet := c.segment(wire.ACK, string(payload))
					verdict, got := second.run(c.frame(second, packet, 1, 7))
					want := *c
					want.tag, want.outer.TTL = out, 63
					want.outer.Src = second.addr(c.by.outer == 6)
					frame := want.frame(first, packet, 7)
					mac := second.mac()
					copy(frame[6:12], mac[:])
					if verdict != xdpTX || !bytes.Equal(got, frame) {
						t.Errorf("%s, tag %d to %d, tos %#x: verdict %d\n got  %x\n want %x", c.by.name, in, out, tos, verdict, got[:90], frame[:90])
					}
				}
			}
		}
		peer = was
		peer.Ifindex = 77
		n.must(second.o.HostPeers.Put(key, peer))
		c.tag = 0
		c.ack += 0x0011_0000
		if verdict, _ := second.run(c.frame(second, c.segment(wire.ACK, ""), 1)); verdict != 4 { // XDP_REDIRECT
			t.Errorf("%s: by another interface: verdict %d", c.by.name, verdict)
		}
		n.must(second.o.HostPeers.Put(key, was))
	})
}

// A wrong checksum stays wrong: nothing is repaired on the way.
func TestOwnKeepsWrongChecksums(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	for _, by := range []delivery{ipip4, gue4c} {
		c := newClient(n, by, 31000, false)
		frame := c.frame(second, c.segment(wire.ACK, ""), 1)
		frame[14+10] ^= 0x5a // outer IPv4 header's
		if _, out := second.run(frame); wire.Parse(out).ChecksumErrors() == nil {
			t.Errorf("%s: the IPv4 checksum was repaired", by.name)
		}
		if by == gue4c {
			frame[14+10] ^= 0x5a
			frame[14+20+6] ^= 0x5a
			if _, out := second.run(frame); wire.Parse(out).ChecksumErrors() == nil {
				t.Error("the UDP checksum was repaired")
			}
		}
	}
}

// Frames that are larger than a page: only their head is looked at.
func TestOwnLargeFrames(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	first, second := n.hosts[0], n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		c.connect(first)
		for _, size := range []int{4000, 9000, 20000, 60000} {
			packet := c.segment(wire.ACK|wire.PSH, string(make([]byte, size)))
			for _, h := range n.hosts {
				chain := uint16(3 - h.slot)
				frame := c.frame(h, packet, chain)
				verdict, out := h.run(frame)
				if h == first && (verdict != xdpPass || !bytes.Equal(out[wire.EthernetLen:], packet)) {
					t.Errorf("%s: %d bytes at the owner: verdict %d", c.by.name, size, verdict)
				}
				if h == second && (verdict != xdpTX || len(out) != len(frame) || !bytes.Equal(out[len(out)-size:], frame[len(frame)-size:])) {
					t.Errorf("%s: %d bytes at the other: verdict %d", c.by.name, size, verdict)
				}
			}
			c.ack += 0x0011_0000
		}
	})
}

// What a server offers its clients leaves room for the tunnel.
func TestOwnMSS(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	eachDelivery(t, n, func(c *client) {
		if c.by.outer == 0 {
			return
		}
		h.change(c.vip, func(v *bpf.HostVIP) { v.Mss = 1300 })
		for _, flags := range []uint8{wire.SYN | wire.ACK, wire.SYN, wire.ACK} {
			for _, mss := range []uint16{536, 1300, 1301, 1460} {
				frame := wire.TCP{Src: c.vip, Dst: c.addr, Flags: flags, Options: wire.SYNOptions(mss, 7)}.Frame()
				o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame))}
				n.must(h.ns.Do(func() error { _, err := h.o.HostOut.Run(&o); return err }))
				want := mss
				if flags == wire.SYN|wire.ACK {
					want = min(mss, 1300)
				}
				expect := wire.TCP{Src: c.vip, Dst: c.addr, Flags: flags, Options: wire.SYNOptions(want, 7)}.Frame()
				if !bytes.Equal(o.DataOut, expect) {
					t.Errorf("%s: flags %#x, MSS %d:\n got  %x\n want %x", c.by.name, flags, mss, o.DataOut, expect)
				}
			}
		}
	})
}
