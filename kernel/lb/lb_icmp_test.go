package lb

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

var (
	router4 = netip.MustParseAddr("203.0.113.1")
	router6 = netip.MustParseAddr("2001:db8:ff::1")
)

// reply is what the server on slot sent to the client, and what an ICMP error
// quotes: its TSval carries the cookie.
func reply(c netip.AddrPort, options []byte) wire.TCP {
	s := segment(c, wire.ACK, options)
	s.Src, s.Dst, s.Payload = s.Dst, s.Src, bytes.Repeat([]byte("z"), 400)
	return s
}

func quoting(c netip.AddrPort, quoted []byte, bytes int) wire.ICMPError {
	e := wire.ICMPError{Src: router4, Dst: vip4, Type: wire.ICMPUnreachable, Code: wire.ICMPFragNeeded, MTU: 1400,
		Quoted: quoted, QuoteBytes: bytes}
	if c.Addr().Is6() {
		e.Src, e.Dst, e.Type, e.Code = router6, vip6, wire.ICMPv6TooBig, 0
	}
	return e
}

func header(c netip.AddrPort) int {
	if c.Addr().Is6() {
		return 40
	}
	return 20
}

// TestICMPErrors reach the server whose packet they quote.
func TestICMPErrors(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		for slot := range uint32(5) {
			q := reply(c, wire.Timestamp(echo(12, slot&1, slot, c, 80, 3), 99)).Packet()
			for _, n := range []int{header(c) + 32, header(c) + 40, 128} {
				to := r.expect("quote", quoting(c, q, n).Frame(), bpf.ForwardICMP)
				if to.As4()[3] != byte(slot+1) {
					t.Errorf("%v slot %d, %d bytes quoted: went to %v", c, slot, n, to)
				}
			}
		}
		// A timestamp behind other options, at an odd offset.
		odd := append(append(wire.NOPs(1), wire.SACK(1, 2)...), wire.BareTimestamp(echo(12, 0, 3, c, 80, 3), 99)...)
		q := reply(c, odd).Packet()
		if to := r.expect("odd", quoting(c, q, 200).Frame(), bpf.ForwardICMP); to.As4()[3] != 4 {
			t.Errorf("timestamp at an odd offset: went to %v", to)
		}
	}
}

// TestICMPWithoutCookie: what is cut before the cookie is asked about, what
// never had one goes as the connection does, if that is tracked.
func TestICMPWithoutCookie(t *testing.T) {
	r := standardOf(t, bpf.PolicyRR, true)
	for _, c := range []netip.AddrPort{client4, client6} {
		q := reply(c, wire.Timestamp(echo(12, 0, 3, c, 80, 3), 99)).Packet()
		for _, n := range []int{8, 12, 20, 24, 27} {
			reason, action, _ := r.why(quoting(c, q, header(c)+n).Frame())
			if reason != bpf.AskICMP && reason != bpf.DropAskLimit || action != xdpDrop {
				t.Errorf("%v, %d bytes of TCP: reason %d action %d", c, n, reason, action)
			}
		}
		o := netip.AddrPortFrom(c.Addr(), 7777)
		was := r.expect("SYN", segment(o, wire.SYN, wire.MSS(1460)).Frame(), bpf.ForwardNoTimestamp)
		for _, n := range []int{8, 20, 60} {
			frame := quoting(o, reply(o, nil).Packet(), header(o)+n).Frame()
			if to := r.expect("quote", frame, bpf.ForwardICMP); to != was {
				t.Errorf("%v: connection at %v, its error went to %v", o, was, to)
			}
		}
	}
	// A third of the rate, rounded up, for each of two sources.
	if n := r.reasons()[bpf.AskICMP]; n < 4 {
		t.Errorf("%d asked", n)
	}
}

func TestICMPOfUDP(t *testing.T) {
	r := newRig(t)
	for _, a := range []netip.Addr{vip4, vip6} {
		r.add(rigVIP{addr: a, port: 80, proto: wire.ProtoUDP, scheme: bpf.SchemeCheetah, servers: servers(5, bpf.FwdIPIP)})
		r.address(a, 0)
	}
	r.commit()
	for _, c := range []netip.AddrPort{client4, client6} {
		s := segment(c, 0, nil)
		was := r.expect("datagram", wire.UDP{Src: c, Dst: s.Dst, Payload: []byte("?")}.Frame(), bpf.ForwardUDP)
		q := wire.UDP{Src: s.Dst, Dst: c, Payload: make([]byte, 100)}.Packet()
		if to := r.expect("quote", quoting(c, q, 0).Frame(), bpf.ForwardICMP); to != was {
			t.Errorf("%v: flow at %v, its error went to %v", c, was, to)
		}
	}
}

// TestICMPRefused: errors that quote what no server of ours sent.
func TestICMPRefused(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		q := reply(c, wire.Timestamp(1, 2))
		q.Src = netip.AddrPortFrom(c.Addr().Next(), 80)
		r.drops("another's packet", quoting(c, q.Packet(), 0).Frame(), bpf.DropMalformedL4)
		q = reply(c, wire.Timestamp(1, 2))
		q.Src = netip.AddrPortFrom(q.Src.Addr(), 8080)
		if reason, action, _ := r.why(quoting(c, q.Packet(), 0).Frame()); reason != bpf.PassVIPOther || action != xdpPass {
			t.Errorf("of a port that is no VIP: reason %d action %d", reason, action)
		}
	}
	// Redirects and the like are the kernel's.
	m := wire.ICMP{Src: router4, Dst: vip4, Type: 5, Payload: make([]byte, 28)}
	if reason, action, _ := r.why(m.Frame()); reason != bpf.PassVIPOther || action != xdpPass {
		t.Errorf("redirect: reason %d action %d", reason, action)
	}
	m = wire.ICMP{Src: router6, Dst: vip6, Type: 135, Payload: make([]byte, 20)}
	if reason, action, _ := r.why(m.Frame()); reason != bpf.PassVIPOther || action != xdpPass {
		t.Errorf("neighbour solicitation: reason %d action %d", reason, action)
	}
}

func TestEcho(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newRig(t)
		var flags uint8
		if on {
			flags = uint8(bpf.VIPICMPEcho)
		}
		r.address(vip4, flags)
		r.address(vip6, flags)
		r.commit()
		for _, c := range []netip.AddrPort{client4, client6} {
			for _, n := range []int{0, 1, 56, 1400} {
				for _, tag := range []uint16{0, 42} {
					m := wire.Echo(c.Addr(), segment(c, 0, nil).Dst.Addr(), 7, 8, bytes.Repeat([]byte("e"), n), false)
					m.VLAN = tag
					m.IP.TTL = 3
					frame := m.Frame()
					if !on {
						r.drops("echo", frame, bpf.DropEcho)
						continue
					}
					reason, action, out := r.why(frame)
					p := wire.Parse(out)
					if reason != bpf.ReplyEcho || action != xdpTX || p.Err != nil || len(p.ChecksumErrors()) != 0 {
						t.Fatalf("reason %d action %d: %v %v", reason, action, p.Err, p.ChecksumErrors())
					}
					want := wire.Echo(m.Dst, m.Src, 7, 8, m.Payload, true)
					if p.Src != m.Dst || p.Dst != m.Src || p.ICMPType != want.Type || p.ICMPRest != 7<<16|8 ||
						!bytes.Equal(p.Payload, m.Payload) || p.TTL != 64 || p.VLAN != tag {
						t.Errorf("the reply is %+v", p)
					}
				}
			}
		}
	}
}

// TestFragments: by the VIP's setting dropped, or all of a client's to one
// server, where its whole packets go too.
func TestFragments(t *testing.T) {
	r := newRig(t)
	r.address(vip4, 0)
	r.address(vip6, 0)
	frag := uint8(bpf.VIPFragAddresses)
	for _, a := range []netip.Addr{vip4, vip6} {
		r.add(rigVIP{addr: a, port: 80, proto: wire.ProtoUDP, scheme: bpf.SchemeCheetah, flags: frag,
			servers: servers(5, bpf.FwdIPIP)})
		r.add(rigVIP{addr: a, proto: wire.ProtoUDP | 0x80, scheme: bpf.SchemeCheetah, flags: frag})
		e := &r.entries[len(r.entries)-1]
		*e = r.entries[len(r.entries)-2]
		e.Port, e.Proto = 0, wire.ProtoUDP|0x80
		r.add(rigVIP{addr: a, proto: wire.ProtoTCP | 0x80, scheme: bpf.SchemeCheetah})
	}
	r.commit()
	seen := map[netip.Addr]bool{}
	for i := range 32 {
		for _, c := range []netip.AddrPort{client4, client6} {
			b := c.Addr().AsSlice()
			b[len(b)-1] = byte(i)
			src, _ := netip.AddrFromSlice(b)
			dst := segment(c, 0, nil).Dst.Addr()
			var to netip.Addr
			for k, ip := range []wire.IP{
				{MoreFragments: true}, {MoreFragments: true, FragmentOffset: 185}, {FragmentOffset: 370},
			} {
				ip.Src, ip.Dst, ip.Protocol, ip.Payload = src, dst, wire.ProtoUDP, make([]byte, 64)
				got := r.expect("fragment", wire.Link{}.Frame(ip.Packet()), bpf.ForwardFragment)
				if k > 0 && got != to {
					t.Fatalf("fragments of %v went to %v and %v", src, to, got)
				}
				to = got
				ip.Protocol = wire.ProtoTCP
				r.drops("TCP fragment", wire.Link{}.Frame(ip.Packet()), bpf.DropFragment)
			}
			u := wire.UDP{Src: netip.AddrPortFrom(src, uint16(i+1)), Dst: netip.AddrPortFrom(dst, 80)}
			if got := r.expect("whole", u.Frame(), bpf.ForwardUDP); got != to {
				t.Errorf("fragments of %v go to %v, its whole packets to %v", src, to, got)
			}
			seen[to] = true
		}
	}
	if len(seen) < 4 {
		t.Errorf("32 clients met %d servers", len(seen))
	}
}
