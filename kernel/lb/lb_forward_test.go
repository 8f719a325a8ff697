package lb

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// known is a frame of a connection on slot 0 of the client's VIP.
func known(c netip.AddrPort, vlan uint16, payload []byte) []byte {
	s := segment(c, wire.ACK, wire.Timestamp(7, echo(12, 0, 0, c, 80, 10)))
	s.VLAN, s.Payload, s.IP.DontFragment = vlan, payload, c.Addr().Is4()
	return s.Frame()
}

// tunnels are the forwardings that make one.
func tunnels() map[string]bpf.Forwarding {
	all := map[string]bpf.Forwarding{}
	for _, r := range vip.Forwardings() {
		if r.Tunnel {
			all[string(r.Name)] = bpf.Forwarding(r.Number)
		}
	}
	return all
}

// TestForwardings sends both families through every forwarding to servers of
// both families, with and without a tag on either side.
func TestForwardings(t *testing.T) {
	addrs := map[string]string{"4": "10.1.0.1", "6": "fd00::1"}
	for _, sum := range []uint32{0, 1} {
		for name, f := range tunnels() {
			for family, addr := range addrs {
				for _, tagOut := range []uint16{0, 77} {
					t.Run(fmt.Sprintf("%s to v%s tag %d sum %d", name, family, tagOut, sum), func(t *testing.T) {
						r := newRigOf(t, sum == 1)
						l := server(addr, f)
						l.MacSrc |= uint64(tagOut) << 48
						for _, a := range []netip.Addr{vip4, vip6} {
							r.add(rigVIP{addr: a, port: 80, proto: wire.ProtoTCP,
								scheme: bpf.SchemeCheetah, servers: []bpf.Line{l}})
						}
						r.commit()
						for _, c := range []netip.AddrPort{client4, client6} {
							for _, tagIn := range []uint16{0, 42} {
								for _, payload := range [][]byte{nil, []byte("odd"), bytes.Repeat([]byte("x"), 1000)} {
									frame := known(c, tagIn, payload)
									reason, action, out := r.why(frame)
									if reason != bpf.ReasonCount || action != xdpTX {
										t.Fatalf("reason %d action %d", reason, action)
									}
									in, o := inner(t, out, tagOut)
									if o.Dst != netip.MustParseAddr(addr) || string(o.Tunnel) != name {
										t.Fatalf("tunnel %+v", o)
									}
									if wire.Tunnel(name).Port() != 0 && (o.Checksum != (sum == 1 && family == "6") || o.SrcPort < 49152) {
										t.Fatalf("over UDP %+v", o)
									}
									at := 14
									if tagIn != 0 {
										at = 18
									}
									if !bytes.Equal(in, frame[at:]) {
										t.Fatal("the inner packet changed")
									}
									if !bytes.Equal(out[:12], []byte{2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 0, 2}) {
										t.Fatalf("link addresses % x", out[:12])
									}
								}
							}
						}
					})
				}
			}
		}
	}
}

// TestL2 changes nothing but the Ethernet header.
func TestL2(t *testing.T) {
	for _, tagOut := range []uint16{0, 77} {
		r := newRig(t)
		l := server("10.1.0.1", bpf.FwdL2)
		l.MacSrc |= uint64(tagOut) << 48
		for _, a := range []netip.Addr{vip4, vip6} {
			r.add(rigVIP{addr: a, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, servers: []bpf.Line{l}})
		}
		r.commit()
		for _, c := range []netip.AddrPort{client4, client6} {
			for _, tagIn := range []uint16{0, 42} {
				frame := known(c, tagIn, []byte("payload"))
				_, action, out := r.why(frame)
				p, want := wire.Parse(out), wire.Parse(frame)
				if action != xdpTX || p.VLAN != tagOut || !bytes.Equal(p.Packet(), want.Packet()) {
					t.Fatalf("tags %d to %d: action %d, out % x", tagIn, tagOut, action, out)
				}
			}
		}
	}
}

// TestL2Flooded: a frame for somebody else that a bridge brought here is
// passed, not sent round again.
func TestL2Flooded(t *testing.T) {
	r := newRig(t)
	l := server("10.1.0.1", bpf.FwdL2)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, servers: []bpf.Line{l}})
	r.commit()
	r.inputs(input{1, 0, wire.MAC{2, 0, 0, 0, 0, 2}})
	frame := known(client4, 0, nil)
	frame[5] = 77
	reason, action, out := r.why(frame)
	if reason != bpf.PassNotMine || action != xdpPass || !bytes.Equal(out, frame) {
		t.Errorf("reason %d action %d", reason, action)
	}
	if n := r.line(1).Packets; n != 0 {
		t.Errorf("%d packets counted as forwarded", n)
	}
}

// TestOuterSourceSpreads: receivers' RSS sees many sources or ports, and each
// connection keeps its own.
func TestOuterSourceSpreads(t *testing.T) {
	for _, f := range tunnels() {
		r := newRig(t)
		r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, servers: servers(1, f)})
		r.commit()
		seen := map[string]bool{}
		for i := range 200 {
			c := netip.AddrPortFrom(client4.Addr(), uint16(3000+i))
			_, _, out := r.why(known(c, 0, nil))
			_, o := inner(t, out, 0)
			key := fmt.Sprint(o.Src, o.SrcPort)
			seen[key] = true
			_, _, out = r.why(known(c, 0, []byte("more")))
			if _, o = inner(t, out, 0); fmt.Sprint(o.Src, o.SrcPort) != key {
				t.Fatal("a connection changed its outer source")
			}
		}
		if len(seen) < 190 {
			t.Errorf("200 connections had %d outer sources", len(seen))
		}
	}
}

// TestTrafficClass: DSCP and ECN are copied to the outer header.
func TestTrafficClass(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		s := segment(c, wire.ACK, wire.Timestamp(7, echo(12, 0, 0, c, 80, 10)))
		s.IP.TOS = 0xbb // EF with CE
		_, _, out := r.why(s.Frame())
		if _, o := inner(t, out, 0); o.TOS != 0xbb {
			t.Errorf("%v: outer TOS %#x, want 0xbb", c, o.TOS)
		}
	}
}

func TestUnresolvedDrops(t *testing.T) {
	r := newRig(t)
	l := server("10.1.0.1", bpf.FwdIPIP)
	l.MacDst |= bpf.LineUnresolved << 56
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, servers: []bpf.Line{l}})
	r.commit()
	if reason, action, _ := r.why(known(client4, 0, nil)); reason != bpf.DropUnresolved || action != xdpDrop {
		t.Errorf("reason %d action %d", reason, action)
	}
}

// TestTooBig: what does not fit the tunnel is answered from the VIP, in both
// families, tagged or not, and the quote begins with the packet itself.
func TestTooBig(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		for _, tag := range []uint16{0, 42} {
			frame := known(c, tag, bytes.Repeat([]byte("y"), 1480))
			reason, action, out := r.why(frame)
			if reason != bpf.ReplyTooBig || action != xdpTX {
				t.Fatalf("%v tag %d: reason %d action %d", c, tag, reason, action)
			}
			p := wire.Parse(out)
			if p.Err != nil || len(p.ChecksumErrors()) != 0 {
				t.Fatalf("the answer is wrong: %v %v", p.Err, p.ChecksumErrors())
			}
			want := segment(c, 0, nil)
			wantType, limit := uint8(wire.ICMPUnreachable), 576
			if c.Addr().Is6() {
				wantType, limit = wire.ICMPv6TooBig, 1280
			}
			if p.Src != want.Dst.Addr() || p.Dst != c.Addr() || p.ICMPType != wantType || p.VLAN != tag {
				t.Errorf("answer from %v to %v, type %d, tag %d", p.Src, p.Dst, p.ICMPType, p.VLAN)
			}
			if p.ICMPRest&0xffff != 1500 || p.TotalLen > limit {
				t.Errorf("MTU %d, %d bytes long", p.ICMPRest&0xffff, p.TotalLen)
			}
			in := wire.Parse(frame).Packet()
			quote := out[p.L4+8:]
			if !bytes.HasPrefix(in, quote) {
				t.Error("the quote is not the packet's beginning")
			}
			if !bytes.Equal(out[:6], frame[6:12]) || !bytes.Equal(out[6:12], frame[:6]) {
				t.Error("the answer does not go back where the packet came from")
			}
		}
	}
	if n := r.line(1).Packets; n != 0 {
		t.Errorf("%d packets counted as forwarded", n)
	}
}

// TestTooBigUnanswered: a sender that lets routers fragment is not told,
// and an error never answers an error.
func TestTooBigUnanswered(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	s := segment(client4, wire.ACK, wire.Timestamp(7, echo(12, 0, 0, client4, 80, 10)))
	s.Payload = make([]byte, 1480)
	r.drops("without DF", s.Frame(), bpf.DropTooBig)
	q := reply(client4, wire.Timestamp(echo(12, 0, 0, client4, 80, 3), 99))
	q.Payload = make([]byte, 1440)
	e := quoting(client4, q.Packet(), 1492)
	e.IP.DontFragment = true
	r.drops("an error", e.Frame(), bpf.DropTooBig)
}

// TestMTUEdge: a packet of exactly the line's MTU goes, one byte more does not.
func TestMTUEdge(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for extra, want := range []bpf.Reason{bpf.ReasonCount, bpf.ReplyTooBig} {
		frame := known(client4, 0, make([]byte, 1500-20-32+extra))
		if reason, _, _ := r.why(frame); reason != want {
			t.Errorf("%d bytes: reason %d, want %d", len(frame)-14, reason, want)
		}
	}
}

// TestLineWriteKeepsCounters: a new address or MAC does not lose counts, a
// reset does, and a server that goes is gone.
func TestLineWriteKeepsCounters(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	r.why(known(client4, 0, nil))
	l := server("10.1.0.99", bpf.FwdIPIP)
	r.writeLine(1, l, false)
	_, _, out := r.why(known(client4, 0, nil))
	if _, o := inner(t, out, 0); o.Dst != netip.MustParseAddr("10.1.0.99") {
		t.Errorf("went to %v", o.Dst)
	}
	if n := r.line(1).Packets; n != 2 {
		t.Errorf("%d packets counted, want 2", n)
	}
	r.writeLine(1, bpf.Line{}, true)
	if reason, _, _ := r.why(known(client4, 0, nil)); reason != bpf.ForwardBadCookie {
		t.Errorf("a slot without a server: reason %d", reason)
	}
	if n := r.line(1).Packets; n != 0 {
		t.Errorf("%d packets after a reset", n)
	}
}
