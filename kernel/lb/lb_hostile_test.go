package lb

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// TestPasses: what is not ours goes to the kernel, untouched.
func TestPasses(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	otherPort := segment(client4, wire.SYN, nil)
	otherPort.Dst = netip.AddrPortFrom(vip4, 443)
	otherAddr := segment(client4, wire.SYN, nil)
	otherAddr.Dst = netip.AddrPortFrom(vip4.Next(), 80)
	otherAddr6 := segment(client6, wire.SYN, nil)
	otherAddr6.Dst = netip.AddrPortFrom(vip6.Next(), 80)
	arp := append(bytes.Repeat([]byte{0xff}, 12), append([]byte{8, 6}, make([]byte, 46)...)...)
	qinq := segment(client4, wire.SYN, nil)
	qinq.VLAN, qinq.Link.EtherType = 5, wire.EtherTypeVLAN
	gre := wire.IP{Src: client4.Addr(), Dst: vip4, Protocol: 47, Payload: make([]byte, 20)}
	cut := segment(client4, wire.SYN, nil)
	cut.Dst = netip.AddrPortFrom(vip4.Next(), 80)
	for name, c := range map[string]struct {
		frame []byte
		want  bpf.Reason
	}{
		"ARP":                 {arp, bpf.PassNotIP},
		"two tags":            {qinq.Frame(), bpf.PassNotIP},
		"14 bytes":            {arp[:14], bpf.PassNotIP},
		"port not served":     {otherPort.Frame(), bpf.PassVIPOther},
		"protocol":            {wire.Link{}.Frame(gre.Packet()), bpf.PassVIPOther},
		"address":             {otherAddr.Frame(), bpf.PassNoVIP},
		"IPv6 address":        {otherAddr6.Frame(), bpf.PassNoVIP},
		"malformed, no VIP":   {cut.Frame()[:40], bpf.PassNoVIP},
		"UDP to a TCP VIP":    {wire.UDP{Src: client4, Dst: netip.AddrPortFrom(vip4, 80)}.Frame(), bpf.PassVIPOther},
		"IPv4 with type IPv6": {wire.Link{EtherType: wire.EtherTypeIPv6}.Frame(otherAddr.Packet()), bpf.PassNotIP},
	} {
		reason, action, out := r.why(c.frame)
		if reason != c.want || action != xdpPass || !bytes.Equal(out, c.frame) {
			t.Errorf("%s: reason %d action %d, want reason %d and the packet untouched", name, reason, action, c.want)
		}
	}
}

// TestOptions: where the timestamp may stand, and what is malformed.
func TestOptions(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		ts := wire.BareTimestamp(1, echo(12, 0, 2, c, 80, 0))
		wrong := wire.BareTimestamp(1, echo(12, 0, 4, c, 80, 0))
		cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
		const ok, none = bpf.ReasonCount, bpf.ForwardNoTimestamp
		const bad = bpf.DropMalformedOption
		for name, o := range map[string]struct {
			options []byte
			want    bpf.Reason
		}{
			"bare first":         {cat(ts, wire.NOPs(2)), ok},
			"aligned":            {cat(wire.NOPs(2), ts), ok},
			"odd":                {cat(wire.NOPs(1), ts, wire.NOPs(1)), ok},
			"odd, behind others": {cat(wire.NOPs(1), wire.SACK(1, 2), wire.NOPs(2), ts), ok},
			"last of forty":      {cat(wire.NOPs(30), ts), ok},
			"behind an MSS":      {cat(wire.MSS(1), ts, wire.NOPs(2)), ok},
			"doubled":            {cat(wire.NOPs(2), ts, wire.NOPs(2), wrong), ok},
			"forty NOPs":         {wire.NOPs(40), none},
			"ended before":       {cat([]byte{0, 1}, ts), none},
			"length 0":           {cat([]byte{30, 0}, ts), bad},
			"length 1":           {cat([]byte{30, 1}, ts), bad},
			"past the end":       {[]byte{1, 1, 30, 3}, bad},
			"far past the end":   {[]byte{30, 255, 1, 1}, bad},
			"kind alone at end":  {[]byte{1, 1, 1, 30}, bad},
			"timestamp of 9":     {cat([]byte{8, 9}, make([]byte, 7), wire.NOPs(3)), bad},
			"timestamp of 12":    {cat([]byte{8, 12}, make([]byte, 10)), bad},
			"timestamp past end": {[]byte{1, 1, 1, 1, 8, 10, 0, 0}, bad},
			"none":               {nil, none},
		} {
			for _, payload := range [][]byte{nil, []byte("behind")} {
				s := segment(c, wire.ACK, o.options)
				s.Payload = payload
				reason, _, out := r.why(s.Frame())
				if reason != o.want {
					t.Errorf("%s (%v, %d bytes behind): reason %d, want %d", name, c.Addr(), len(payload), reason, o.want)
				} else if reason == ok {
					if _, tunnel := inner(t, out, 0); tunnel.Dst.As4()[3] != 3 {
						t.Errorf("%s: went to %v", name, tunnel.Dst)
					}
				}
			}
		}
	}
}

// TestDataOffset: under five words, or past the packet's end.
func TestDataOffset(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for offset := range uint8(16) {
		s := segment(client4, wire.ACK, wire.Timestamp(1, 2))
		f := s.Frame()
		f[14+20+12] = offset << 4
		reason, action, _ := r.why(f)
		bad := offset < 5 || offset > 8
		if (reason == bpf.DropMalformedL4 && action == xdpDrop) != bad {
			t.Errorf("data offset %d: reason %d action %d", offset, reason, action)
		}
	}
}

// Options of IPv4 and extension headers move the rest, and nothing breaks.
func TestUnusualHeaders(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for n := 4; n <= 40; n += 4 {
		s := segment(client4, wire.ACK, wire.Timestamp(1, echo(12, 0, 2, client4, 80, 0)))
		s.IP.Options = wire.NOPs(n)
		frame := s.Frame()
		reason, _, out := r.why(frame)
		if reason != bpf.ReasonCount {
			t.Fatalf("%d bytes of IPv4 options: reason %d", n, reason)
		}
		if in, o := inner(t, out, 0); o.Dst.As4()[3] != 3 || !bytes.Equal(in, frame[14:]) {
			t.Errorf("%d bytes of IPv4 options: went to %v", n, o.Dst)
		}
	}
	for n := 1; n <= 10; n++ {
		s := segment(client6, wire.ACK, wire.Timestamp(1, echo(12, 0, 2, client6, 80, 0)))
		for range n {
			s.IP.Extensions = append(s.IP.Extensions, wire.Extension{Type: wire.ProtoDestOptions})
		}
		s.IP.Atomic = n == 3
		reason, _, out := r.why(s.Frame())
		want := bpf.ReasonCount
		if n >= 8 {
			want = bpf.DropMalformedIP
		}
		if reason != want {
			t.Fatalf("%d extension headers: reason %d, want %d", n, reason, want)
		}
		if reason == bpf.ReasonCount {
			if _, o := inner(t, out, 0); o.Dst.As4()[3] != 3 {
				t.Errorf("%d extension headers: went to %v", n, o.Dst)
			}
		}
	}
}

// fixtures are one packet of every kind that the program looks into.
func fixtures() map[string][]byte {
	f := map[string][]byte{}
	for _, c := range []netip.AddrPort{client4, client6} {
		name := func(s string) string { return fmt.Sprintf("%s v%d", s, c.Addr().BitLen()) }
		ts := wire.Timestamp(1, echo(12, 0, 2, c, 80, 0))
		syn := segment(c, wire.SYN, wire.SYNOptions(1460, 1))
		f[name("SYN")] = syn.Frame()
		syn.VLAN = 9
		f[name("tagged SYN")] = syn.Frame()
		f[name("known")] = segment(c, wire.ACK, ts).Frame()
		f[name("RST")] = segment(c, wire.RST, nil).Frame()
		f[name("40 bytes of options")] = segment(c, wire.ACK, append(wire.NOPs(30), ts[2:]...)).Frame()
		f[name("UDP")] = wire.UDP{Src: c, Dst: segment(c, 0, nil).Dst, Payload: []byte("data")}.Frame()
		f[name("QUIC Initial")] = wire.UDP{Src: c, Dst: segment(c, 0, nil).Dst, Payload: wire.QUICInitial(wire.QUIC1, 1, 1200)}.Frame()
		f[name("QUIC 2 Initial")] = wire.UDP{Src: c, Dst: segment(c, 0, nil).Dst, Payload: wire.QUICInitial(wire.QUIC2, 1, 1200)}.Frame()
		f[name("SYN without timestamp")] = segment(c, wire.SYN, nil).Frame()
		f[name("FIN")] = segment(c, wire.ACK|wire.FIN, nil).Frame()
		f[name("echo")] = wire.Echo(c.Addr(), segment(c, 0, nil).Dst.Addr(), 1, 2, []byte("echo"), false).Frame()
		f[name("ICMP error")] = quoting(c, reply(c, ts).Packet(), 100).Frame()
		f[name("too big")] = known(c, 0, make([]byte, 1480))
		ext := segment(c, wire.ACK, ts)
		if c.Addr().Is4() {
			ext.IP.Options = wire.NOPs(20)
		} else {
			ext.IP.Extensions = []wire.Extension{{Type: wire.ProtoHopByHop}, {Type: wire.ProtoDestOptions}}
		}
		f[name("unusual header")] = ext.Frame()
		ip := wire.IP{Src: c.Addr(), Dst: segment(c, 0, nil).Dst.Addr(), Protocol: wire.ProtoUDP, MoreFragments: true, Payload: make([]byte, 32)}
		f[name("fragment")] = wire.Link{}.Frame(ip.Packet())
	}
	return f
}

// TestTruncated cuts each fixture at every byte. Whatever is left: one
// verdict, at most one reason, and what is sent is well formed; what is cut is
// never forwarded.
func TestTruncated(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for name, whole := range fixtures() {
		t.Run(name, func(t *testing.T) {
			r.t = t
			for n := 14; n < len(whole); n++ {
				if n > 200 && n < len(whole)-40 {
					continue // payload
				}
				reason, action, out := r.why(whole[:n])
				switch action {
				case xdpPass:
					if !bytes.Equal(out, whole[:n]) {
						t.Fatalf("cut at %d: passed but changed", n)
					}
				case xdpDrop:
				default:
					t.Fatalf("cut at %d: reason %d action %d", n, reason, action)
				}
			}
		})
	}
	r.t = t
}

// TestPadded: Ethernet pads short frames; what follows the packet is no part
// of it.
func TestPadded(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for name, whole := range fixtures() {
		want, wantAction, _ := r.why(whole)
		if want == bpf.DropAskLimit || want == bpf.AskRST {
			continue // the bound changes from packet to packet
		}
		got, action, _ := r.why(append(bytes.Clone(whole), make([]byte, 22)...))
		if got != want || action != wantAction {
			t.Errorf("%s: reason %d action %d, padded %d and %d", name, want, wantAction, got, action)
		}
	}
}
