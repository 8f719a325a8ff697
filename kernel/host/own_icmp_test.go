package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// ICMP errors go by the connection that they quote.

// quoted is a segment of the server's to the client.
func (c *client) quoted(seq uint32) []byte {
	return wire.TCP{Src: c.vip, Dst: c.addr, Flags: wire.ACK, Seq: seq, Ack: c.seq, Payload: make([]byte, 100)}.Packet()
}

// One hop at a time from who has the bucket to who has the connection.
func TestOwnICMP(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	n.listenAll()
	first, second, third := n.hosts[0], n.hosts[1], n.hosts[2]
	eachTunnel(t, n, func(c *client) {
		c.connect(first)
		error := c.icmp(c.quoted(c.ack))
		n.want(c.by.name+": at the owner", first, c.frame(first, error, 2), taken("in_owned", 1))
		n.want(c.by.name+": two hops", third, c.frame(third, error, 2, 1), taken("", 3, 2, 1))
		n.want(c.by.name+": settled", second, c.frame(second, error), taken("", 2))
		n.want(c.by.name+": itself", second, c.frame(second, error, 2, 1), dropped("drop_loop", 2))
		c.gen--
		n.want(c.by.name+": stale and nobody's", second, c.frame(second, error), taken("", 2))
		c.gen++

		// A request is meant by its own number alone.
		d := c.again()
		isn := d.synAck(second, 1).Seq
		n.want(c.by.name+": the request's SYN-ACK", second, d.frame(second, d.icmp(d.quoted(isn)), 1), taken("in_owned", 2))
		n.want(c.by.name+": behind it", second, d.frame(second, d.icmp(d.quoted(isn+1)), 1), taken("in_owned", 2))
		n.want(c.by.name+": another's SYN-ACK", second, d.frame(second, d.icmp(d.quoted(isn+2)), 1), taken("", 2, 1))

		// TIME_WAIT sends nothing that could be too big.
		e := d.again()
		e.connect(second, 1)
		e.hangUp(second, second, 1)
		n.want(c.by.name+": TIME_WAIT", second, e.frame(second, e.icmp(e.quoted(e.ack)), 1), taken("", 2, 1))

		// UDP by its table; an error makes no flow known and does not go round.
		u := newClient(n, c.by, c.addr.Port(), true)
		datagram := wire.UDP{Src: u.vip, Dst: u.addr, Payload: make([]byte, 100)}.Packet()
		n.want(c.by.name+": datagram, unknown", second, u.frame(second, u.icmp(datagram), 1), taken("", 2, 1))
		u.says("makes it known", second, taken("", 2))
		n.want(c.by.name+": datagram", second, u.frame(second, u.icmp(datagram), 1), taken("in_owned", 2))
	})
}

// What quotes no connection of ours is never passed on, nor is it taken out of a
// tunnel: no balancer sends it.
func TestOwnICMPOfNothing(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	eachTunnel(t, n, func(c *client) {
		take := func(what string, packet []byte) {
			t.Helper()
			n.want(c.by.name+": "+what, second, c.frame(second, packet, 1), taken("", 2))
		}
		v6 := c.vip.Addr().Is6()
		from := map[bool]netip.Addr{false: router4, true: router6}[v6]
		take("echo", wire.Echo(from, c.vip.Addr(), 1, 2, []byte("hello"), false).Packet())
		take("echo reply", wire.Echo(from, c.vip.Addr(), 1, 2, []byte("hello"), true).Packet())
		other := wire.TCP{Src: netip.AddrPortFrom(from, 80), Dst: c.addr, Flags: wire.ACK}.Packet()
		drop := func(what string, packet []byte) {
			t.Helper()
			n.want(c.by.name+": "+what, second, c.frame(second, packet, 1), dropped("drop_foreign_icmp", 2))
		}
		drop("of another address", c.icmp(other))
		drop("of no VIP of that port", c.icmp(wire.TCP{Src: netip.AddrPortFrom(c.vip.Addr(), 81), Dst: c.addr}.Packet()))
		drop("of an echo", c.icmp(wire.Echo(c.vip.Addr(), c.addr.Addr(), 1, 2, nil, true).Packet()))
		drop("of nothing", c.icmp(nil))
		whole := c.quoted(1)
		for length := 1; length < map[bool]int{false: 28, true: 48}[v6]; length++ {
			drop(fmt.Sprintf("of %d bytes", length), c.icmp(whole[:length]))
		}
		if !v6 {
			take("of a later fragment", c.icmp(wire.TCP{Src: c.vip, Dst: c.addr, IP: wire.IP{FragmentOffset: 8}}.Packet()))
		}
	})
}

// In faild an error comes to any server. Who does not own the connection has
// the others asked, within bounds, and who is asked asks nobody.
func TestOwnICMPFaild(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	first, second := n.hosts[0], n.hosts[1]
	ring, err := ringbuf.NewReader(second.o.HostAsks)
	n.must(err)
	defer ring.Close()
	asked := func() (all []bpf.HostAsk) {
		t.Helper()
		for {
			ring.SetDeadline(time.Unix(1, 0)) // what is there, no more
			r, err := ring.Read()
			if err != nil {
				return all
			}
			var ask bpf.HostAsk
			_, err = binary.Decode(r.RawSample, binary.NativeEndian, &ask)
			n.must(err)
			all = append(all, ask)
		}
	}
	for _, c := range []*client{newClient(n, byMAC, 10000, false), newClient(n, byMAC, 10000, false).v6()} {
		c.connect(first)
		error := c.icmp(c.quoted(c.ack))
		n.want("at the owner", first, c.frame(first, error), taken("in_owned", 1))
		n.want("at the owner of a moved bucket", first, c.frame(first, error, 2), taken("in_owned", 1))
		n.want("elsewhere", second, c.frame(second, error, 1), dropped("ask_icmp", 2))
		all := asked()
		if len(all) != 1 || all[0].VipId != vipID(c.vip) || all[0].Ifindex != 1 || int(all[0].Length) != min(len(error), 256) ||
			!bytes.Equal(all[0].Packet[:all[0].Length], error[:all[0].Length]) || (all[0].Family == 6) != c.vip.Addr().Is6() {
			t.Fatalf("asked %+v about %x", all, error)
		}
		copied := func(h *ownHost) []byte {
			frame := c.frame(h, error)
			frame[0] = byte(wire.FaildCopy)
			return frame
		}
		n.want("copy at the owner", first, copied(first), taken("in_owned", 1))
		n.want("copy elsewhere", second, copied(second), dropped("drop_not_mine", 2))
		if all := asked(); len(all) != 0 {
			t.Errorf("a copy had %d others asked", len(all))
		}
	}

	// One sender may use an eighth (ask_rate is 16 here); all together 16.
	// The clock stands still, so nothing is added while that is counted, and
	// no packet before it: by then the bounds are full.
	second.clock(ownNow + 60_000)
	c := newClient(n, byMAC, 11000, false)
	send := func(router string) string {
		t.Helper()
		e := wire.ICMPError{Src: netip.MustParseAddr(router), Dst: c.vip.Addr(), Type: 3, Code: 4, MTU: 1300, Quoted: c.quoted(1)}.Packet()
		counts := second.counted(func() { second.run(c.frame(second, e)) })
		for reason := range counts {
			return reason
		}
		return ""
	}
	for i, want := range []string{"ask_icmp", "ask_icmp", "drop_ask_limit", "drop_ask_limit"} {
		if got := send("203.0.113.77"); got != want {
			t.Errorf("error %d of one sender: %q, want %q", i, got, want)
		}
	}
	second.clock(ownNow + 61_000)
	if got := send("203.0.113.77"); got != "ask_icmp" {
		t.Errorf("a second later: %q", got)
	}
	// Of IPv6, all addresses of a network are one sender.
	second.clock(ownNow + 62_000)
	six := newClient(n, byMAC, 12000, false).v6()
	for i, want := range []string{"ask_icmp", "ask_icmp", "drop_ask_limit", "drop_ask_limit"} {
		e := wire.ICMPError{Src: netip.MustParseAddr(fmt.Sprintf("2001:db8:4::%x", i+1)), Dst: six.vip.Addr(), Type: 2, MTU: 1300, Quoted: six.quoted(1)}.Packet()
		counts := second.counted(func() { second.run(six.frame(second, e)) })
		if counts[want] == 0 {
			t.Errorf("error %d of one network of IPv6: %v, want %q", i, counts, want)
		}
	}
	second.clock(ownNow + 63_000)
	allowed := 0
	for i := range 200 {
		if send(fmt.Sprintf("203.0.113.%d", 100+i%100)) == "ask_icmp" {
			allowed++
		}
	}
	// The bound of all is one of each CPU.
	if cpus := len(second.perCPU()); allowed < 8 || allowed > 16*cpus {
		t.Errorf("%d errors of many senders were asked about, want at most 16 a CPU (%d)", allowed, cpus)
	}
}

func (h *ownHost) perCPU() (cpus []bpf.Count) {
	h.t.Helper()
	h.net.must(h.o.HostReasons.Lookup(uint32(0), &cpus))
	return cpus
}

// Whatever is a copy: who does not own it ignores it, chain or none.
func TestOwnFaildCopies(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	first, second := n.hosts[0], n.hosts[1]
	for _, c := range []*client{newClient(n, byMAC, 10000, false), newClient(n, byMAC, 10000, false).v6()} {
		c.connect(first)
		for _, chain := range [][]uint16{nil, {1}} {
			frame := c.frame(second, c.segment(wire.ACK, ""), chain...)
			frame[0] = byte(wire.FaildCopy)
			n.want("a segment", second, frame, dropped("drop_not_mine", 2))
		}
		frame := c.frame(first, c.segment(wire.ACK, ""))
		frame[0] = byte(wire.FaildCopy)
		n.want("a segment at its owner", first, frame, taken("in_owned", 1))
		u := newClient(n, byMAC, 10001, true)
		frame = u.datagram(second, []byte("hello"), 1)
		frame[0] = byte(wire.FaildCopy)
		n.want("a datagram", second, frame, dropped("drop_not_mine", 2))
	}
}

// Fragments go by their addresses to who has the bucket, and are never asked
// about.
func TestOwnFragments(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		for _, f := range []wire.IP{{MoreFragments: true}, {FragmentOffset: 64}, {FragmentOffset: 64, MoreFragments: true}} {
			for _, packet := range [][]byte{
				wire.TCP{Src: c.addr, Dst: c.vip, Flags: wire.ACK, IP: f}.Packet(),
				wire.UDP{Src: c.addr, Dst: netip.AddrPortFrom(c.vip.Addr(), 443), Payload: []byte("hello"), IP: f}.Packet(),
			} {
				n.want(c.by.name+": fragment", second, c.frame(second, packet, 1), taken("", 2))
			}
		}
	})
}

// ---- faild's own

// Frames for other servers, which a bridge floods, are dropped.
func TestOwnFlooded(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	second := n.hosts[1]
	for _, c := range []*client{newClient(n, byMAC, 10000, false), newClient(n, byMAC, 10000, false).v6(), newClient(n, byMAC, 10000, true)} {
		packet := c.segment(wire.SYN, "")
		if isUDP(c.vip) {
			packet = wire.UDP{Src: c.addr, Dst: c.vip}.Packet()
		}
		for _, other := range []*ownHost{n.hosts[0], n.hosts[2]} {
			for _, kind := range []wire.FaildKind{wire.FaildPass, wire.FaildBack, wire.FaildCopy} {
				frame := c.frame(other, packet, 2)
				frame[0] = byte(kind)
				if verdict, _ := second.run(frame); verdict != xdpDrop {
					t.Errorf("kind %#x: verdict %d", kind, verdict)
				}
			}
		}
		for _, mac := range []wire.MAC{{}, second.mac(), {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x9b, 0, 0xc0, 0, 0, 0}} {
			if verdict, _ := second.run(wire.Link{Dst: mac, Src: wire.MAC{2}}.Frame(packet)); verdict != xdpPass {
				t.Errorf("to %x: verdict %d", mac, verdict)
			}
		}
	}
	// Ten bits hold all the slots that there are.
	for _, slot := range []uint16{0, 1, 511, 512, 1021, 1022} {
		second.change(faild4, func(v *bpf.HostVIP) { v.Slot = slot })
		c := newClient(n, byMAC, 10000, false)
		mac, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildPass, Current: slot, Previous: [3]uint16{wire.FaildNone, wire.FaildNone, wire.FaildNone}})
		n.must(err)
		frame := wire.Link{Dst: mac, Src: wire.MAC{2}}.Frame(c.segment(wire.ACK, ""))
		if verdict, _ := second.run(frame); verdict != xdpPass {
			t.Errorf("slot %d: verdict %d", slot, verdict)
		}
	}
	second.change(faild4, func(v *bpf.HostVIP) { v.Slot = bpf.NoSlot })
	if verdict, _ := second.run(wire.Link{Dst: wire.MAC{0x9a}, Src: wire.MAC{2}}.Frame(newClient(n, byMAC, 1, false).segment(wire.ACK, ""))); verdict != xdpDrop {
		t.Errorf("without a slot: verdict %d", verdict)
	}
}

// A frame that cannot leave under this server's own address does not leave.
func TestOwnFaildWithoutAddress(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	n.must(second.o.HostNics.Delete(uint32(1)))
	c := newClient(n, byMAC, 10000, false)
	c.stranger("no MAC", second, dropped("unresolved_previous", 2), 1)
}

// The chain and the kind of a frame that is passed on, with a tag as without.
func TestOwnFaildPassedOn(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 4)
	third := n.hosts[2]
	for _, tag := range []uint16{0, 42} {
		for _, udp := range []bool{false, true} {
			c := newClient(n, byMAC, 10000, udp)
			c.tag = tag
			packet := c.segment(wire.ACK, "")
			if udp {
				packet = wire.UDP{Src: c.addr, Dst: c.vip}.Packet()
			}
			frame := c.frame(third, packet, 2, 1, 4)
			before, _, err := wire.DecodeFaild(wire.MAC(frame[:6]))
			n.must(err)
			want, _ := before.Next()
			if udp {
				want, _ = before.Back()
			}
			mac, err := wire.EncodeFaild(want)
			n.must(err)
			expect := bytes.Clone(frame)
			from := third.mac()
			copy(expect, mac[:])
			copy(expect[6:], from[:])
			if verdict, out := third.run(frame); verdict != xdpTX || !bytes.Equal(out, expect) {
				t.Errorf("tag %d, udp %t: verdict %d\n got  %x\n want %x", tag, udp, verdict, out, expect)
			}
		}
	}
}
