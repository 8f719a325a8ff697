package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/wire"
)

// TestComplexity holds the programs well below the verifier's limit of a
// million instructions: older kernels prune less.
func TestComplexity(t *testing.T) {
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

// Chains as they should not be, and how they end. tunnels are the carriers that
// say a time and a generation.

func eachTunnel(t *testing.T, n *ownNet, test func(c *client)) {
	t.Helper()
	for i, by := range carriers {
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
	n := newOwnNet(t, 4)
	fourth := n.hosts[3]
	eachCarrier(t, n, func(c *client) {
		c.stranger("unknown first", fourth, taken("", 4, 1), 900, 1)
		c.stranger("two unknown", fourth, taken("", 4, 1), 900, 901, 1)
		c.stranger("unknown between", fourth, taken("", 4, 3, 1), 3, 900, 1)
		c.stranger("all unknown", fourth, taken("unknown_previous", 4), 900, 901, 902)
		c.stranger("all unknown", fourth, taken("in_unowned", 4), 900)
		if c.by.outer == 0 {
			return
		}
		key := hostFlHostPeerKey{VipId: vipID(c.vip), Slot: 3}
		var peer hostFlHostPeer
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
	n := newOwnNet(t, 3)
	n.listenAll()
	second := n.hosts[1]
	eachCarrier(t, n, func(c *client) {
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
	n := newOwnNet(t, 2)
	first, second := n.hosts[0], n.hosts[1]
	r := rand.New(rand.NewPCG(4, 4))
	payload := make([]byte, 1300)
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	eachTunnel(t, n, func(c *client) {
		key := hostFlHostPeerKey{VipId: vipID(c.vip), Slot: 1}
		var peer hostFlHostPeer
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
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	for _, by := range []carrier{ipip4, gue4c} {
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
	n := newOwnNet(t, 2)
	n.listenAll()
	first, second := n.hosts[0], n.hosts[1]
	eachCarrier(t, n, func(c *client) {
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
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	eachCarrier(t, n, func(c *client) {
		if c.by.outer == 0 {
			return
		}
		h.change(c.vip, func(v *hostFlHostVip) { v.Mss = 1300 })
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

// ---- generations

func TestOwnGenerations(t *testing.T) {
	n := newOwnNet(t, 3)
	first, second := n.hosts[0], n.hosts[1]
	for _, base := range []uint32{ownGeneration, 0xffff_fffe, 0x7fff_ffff, 5} { // serial numbers wrap
		eachTunnel(t, n, func(c *client) {
			for _, h := range n.hosts {
				h.change(c.vip, func(v *hostFlHostVip) { v.Generation = base })
				h.forget(c.vip)
			}
			step := func(what string, gen uint32, f fate, newest uint32, chain ...uint16) {
				t.Helper()
				c.gen = base + gen
				c.stranger(fmt.Sprintf("base %#x: %s", base, what), second, f, chain...)
				if got := second.newest(c.vip); newest != 0 && got != base+newest {
					t.Errorf("%s: base %#x: %s: newest is %+d, want %+d", c.by.name, base, what, int32(got-base), newest)
				}
			}
			old := ^uint32(0) // one less
			step("as the agent's", 0, taken("", 2), 0)
			step("older than the agent's", old, dropped("drop_stale", 2), 0)
			step("older, with a chain", old, dropped("drop_stale", 2, 1), 0, 1)
			step("newer", 1, taken("", 2), 1)
			step("now the agent's is old", 0, dropped("drop_stale", 2), 1)
			step("much newer", 1+1<<20, taken("", 2), 1+1<<20)
			step("backwards", 1<<20, dropped("drop_stale", 2), 1+1<<20)
			step("half the circle back", 1+1<<20+1<<31, dropped("drop_stale", 2), 1+1<<20)
			before := second.reasons()["generation_jump"]
			step("too far", 2+2<<20, taken("", 2), 1+1<<20)
			step("far too far", 1<<31-1, taken("", 2), 1+1<<20)
			if jumps := second.reasons()["generation_jump"] - before; jumps != 2 {
				t.Errorf("%s: %d jumps counted, want 2", c.by.name, jumps)
			}
			c.outer.Src = first.addr(c.by.outer == 6)
			step("a server teaches nothing", 2+1<<20, taken("", 2), 1+1<<20)
			c.outer.Src = netip.Addr{}
			// The agent hears of a table that is older than what was learned
			// (restored from a backup, say), and clears that.
			second.change(c.vip, func(v *hostFlHostVip) { v.Generation = base - 100 })
			second.forget(c.vip)
			step("the agent's again", ^uint32(99), taken("", 2), 0)
		})
	}
}

func (h *ownHost) forget(vip netip.AddrPort) {
	h.t.Helper()
	h.net.must(h.o.HostOwn.Put(vipID(vip), hostFlHostOwn{}))
}

// The moment of the last packet by an older table is kept for the agent.
func TestOwnStaleMoment(t *testing.T) {
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	c := newClient(n, ipip4, 32000, false)
	var own hostFlHostOwn
	n.must(h.o.HostOwn.Lookup(vipID(c.vip), &own))
	c.stranger("fresh", h, taken("", 1))
	if own.StaleMs != 0 {
		t.Errorf("stale at %#x before anything was", own.StaleMs)
	}
	c.gen--
	c.stranger("stale", h, dropped("drop_stale", 1))
	n.must(h.o.HostOwn.Lookup(vipID(c.vip), &own))
	if own.StaleMs&^1 != ownNow&^1 {
		t.Errorf("stale at %#x, want %#x", own.StaleMs, ownNow)
	}
}

// While balancers may disagree whether a server is up, it resets nothing.
func TestOwnUnsettled(t *testing.T) {
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	eachCarrier(t, n, func(c *client) {
		second.change(c.vip, func(v *hostFlHostVip) { v.Flags = 1 })
		c.stranger("no chain", second, dropped("drop_stale", 2))
		c.stranger("a chain", second, taken("", 2, 1), 1)
		c.expect("SYN", second, wire.SYN, taken("in_opening", 2))
		d := c.again()
		d.connect(second)
		d.expect("owned", second, wire.ACK, taken("in_owned", 2))
		second.change(c.vip, func(v *hostFlHostVip) { v.Flags = 0 })
		c.again().again().stranger("settled", second, taken("", 2))
	})
}

// ---- who may send

func TestOwnForeignSource(t *testing.T) {
	n := newOwnNet(t, 3)
	second := n.hosts[1]
	eachTunnel(t, n, func(c *client) {
		v6 := c.by.outer == 6
		for addr, ok := range map[string]bool{
			"10.254.0.0": true, "10.254.255.255": true, "10.253.255.255": false, "10.255.0.0": false, "10.9.0.1": true, "10.9.0.3": true,
			"10.9.0.2": false, "10.9.0.4": false, "198.51.100.7": false, "0.0.0.0": false, "255.255.255.255": false,
			"fd00:254::": true, "fd00:254:ffff::1": true, "fd00:253::1": false, "fd00:255::1": false, "fd00:9::1": true, "fd00:9::2": false,
			"::": false, "::ffff:10.254.0.9": false,
		} {
			a := netip.MustParseAddr(addr)
			if a.Is6() != v6 || a.Is4In6() {
				continue
			}
			c.outer.Src = a
			for _, chain := range [][]uint16{nil, {1}} {
				f := dropped("drop_foreign_source", 2)
				if ok && chain != nil {
					f = taken("", 2, 1)
				} else if ok {
					f = taken("", 2)
				}
				c.stranger("from "+addr, second, f, chain...)
			}
			// Without hops too: whoever may not send tunnels may send none.
			o := wire.Outer{Tunnel: wire.IPIP, Src: a, Dst: second.addr(v6)}
			if c.by.gue {
				o.Tunnel = wire.GUE
			}
			f := dropped("drop_foreign_source", 2)
			if ok {
				f = taken("", 2)
			}
			n.want(c.by.name+": no hops from "+addr, second, wire.Link{}.Frame(o.Encapsulate(c.segment(wire.ACK, ""))), f)
			frag := wire.TCP{Src: c.addr, Dst: c.vip, Flags: wire.ACK, IP: wire.IP{MoreFragments: true}}.Packet()
			n.want(c.by.name+": fragment from "+addr, second, wire.Link{}.Frame(o.Encapsulate(frag)), f)
		}
	})
	// All sources used, and the last of them counts.
	for i := range uint32(64) {
		one := hostFlHostSource{Addr: words(fmt.Sprintf("10.77.0.%d", i)), Mask: [2]uint64{^uint64(0), ^uint64(0)}}
		n.must(second.o.HostSources.Put(i, one))
	}
	c := newClient(n, ipip4, 33000, false)
	c.outer.Src = netip.MustParseAddr("10.77.0.63")
	c.stranger("the 64th source", second, taken("", 2))
	c.outer.Src = netip.MustParseAddr("10.77.0.64")
	c.stranger("none", second, dropped("drop_foreign_source", 2))
}

// Packets without a tunnel are the VIP's as they always were: from clients in
// the same network, say.
func TestOwnWithoutTunnel(t *testing.T) {
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	for _, vip := range []netip.AddrPort{beamer4, beamer6, faild4, faild6} {
		c := newClient(n, ipip4, 34000, false)
		c.vip = vip
		if vip.Addr().Is6() {
			c.addr = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::7"), 34000)
		}
		n.want("direct", h, wire.Link{Dst: h.mac()}.Frame(c.segment(wire.ACK, "")), taken("in_direct", 1))
	}
}

// ---- damage

// Whatever is cut off, nothing is passed on or decapsulated that is not there.
func TestOwnTruncatedAtEveryByte(t *testing.T) {
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	test := func(c *client, name string, packet []byte) {
		for _, tag := range []uint16{0, 42} {
			c.tag = tag
			whole := c.frame(second, packet, 1)
			for cut := 14; cut < len(whole); cut++ {
				frame := whole[:cut]
				verdict, out := second.run(frame)
				if verdict == xdpTX || verdict == xdpPass && !bytes.Equal(out, frame) {
					t.Errorf("%s, %s, tag %d: %d of %d bytes: verdict %d\n in  %x\n out %x", c.by.name, name, tag, cut, len(whole), verdict, frame, out)
				}
			}
			if verdict, _ := second.run(whole); verdict != xdpTX {
				t.Errorf("%s, %s, tag %d: the whole: verdict %d", c.by.name, name, tag, verdict)
			}
		}
	}
	eachCarrier(t, n, func(c *client) {
		test(c, "tcp", c.segment(wire.ACK, "hello"))
		test(c, "options", wire.TCP{Src: c.addr, Dst: c.vip, Flags: wire.ACK, Options: wire.Timestamp(1, 2)}.Packet())
		test(c, "udp", wire.UDP{Src: c.addr, Dst: netip.AddrPortFrom(c.vip.Addr(), 443), Payload: []byte("hello")}.Packet())
		if c.by.outer != 0 {
			test(c, "icmp", c.icmp(wire.TCP{Src: c.vip, Dst: c.addr, Flags: wire.ACK}.Packet()))
		}
	})
}

// icmp is a router's error about a packet that a server sent to the client.
func (c *client) icmp(quoted []byte) []byte {
	e := wire.ICMPError{Src: router4, Dst: c.vip.Addr(), Type: 3, Code: 4, MTU: 1300, Quoted: quoted}
	if c.vip.Addr().Is6() {
		e.Src, e.Type, e.Code = router6, 2, 0
	}
	return e.Packet()
}

// Bits that flip: never an error of the program, never a larger packet, and
// what goes on to another server is a tunnel that this one would have taken.
func TestOwnDamaged(t *testing.T) {
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var frames [][]byte
	eachCarrier(t, n, func(c *client) {
		quoted := wire.TCP{Src: c.vip, Dst: c.addr, Flags: wire.ACK}.Packet()
		for _, packet := range [][]byte{c.segment(wire.ACK, "hello"), c.segment(wire.SYN, ""), c.icmp(quoted),
			wire.UDP{Src: c.addr, Dst: netip.AddrPortFrom(c.vip.Addr(), 443), Payload: []byte("hello")}.Packet()} {
			for _, chain := range [][]uint16{nil, {1}, {900, 1}, {2}} {
				frames = append(frames, c.frame(second, packet, chain...))
			}
		}
	})
	for i := range 40_000 {
		frame := bytes.Clone(frames[r.IntN(len(frames))])
		for range 1 + r.IntN(3) {
			frame[r.IntN(min(len(frame), 110))] ^= byte(1 << r.IntN(8))
		}
		if r.IntN(4) == 0 {
			frame = frame[:14+r.IntN(len(frame)-14)]
		}
		verdict, out := second.run(frame)
		bad := len(out) > len(frame) || verdict > xdpTX || verdict == 0
		if verdict == xdpTX {
			_, faild, _ := wire.DecodeFaild(wire.MAC(out[:6]))
			bad = bad || len(out) != len(frame) && binary.BigEndian.Uint16(frame[12:]) != wire.EtherTypeVLAN
			if p := wire.Parse(out); !faild && p.Src != second.addr(p.Src.Is6()) {
				bad = true
			}
		}
		if bad {
			t.Fatalf("seed %d, %d: verdict %d\n in  %x\n out %x", seed, i, verdict, frame, out)
		}
	}
}
