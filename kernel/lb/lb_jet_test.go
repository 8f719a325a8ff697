package lb

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/wire"
)

// The program by hand, where connections are tracked: what is refused an
// entry, what other balancers tell, and VIPs that track all.

// jetRig is a balancer with VIP 1, TCP, and VIP 2, UDP, of scheme jet.
func jetRig(t *testing.T, flags uint8, tracked bool) *rig {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeJet, flags: flags,
		servers: servers(5, bpf.FwdIPIP), tracked: tracked})
	r.add(rigVIP{addr: vip4, port: 53, proto: wire.ProtoUDP, scheme: bpf.SchemeJet, flags: flags,
		servers: servers(5, bpf.FwdIPIP), tracked: tracked})
	r.commit()
	return r
}

// counters of a VIP, of all CPUs.
func (r *rig) counters(id uint32) (sum bpf.VIPCPU) {
	r.t.Helper()
	var all []bpf.VIPCPU
	if err := r.o.VipCpu.Lookup(id, &all); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range all {
		sum.Tracked += c.Tracked
		sum.FlowFull += c.FlowFull
		sum.FlowReplaced += c.FlowReplaced
		sum.FlowHits += c.FlowHits
		sum.NewConns += c.NewConns
	}
	return sum
}

func jetOpening(port uint16, udp bool) []byte {
	from := netip.AddrPortFrom(client4.Addr(), port)
	if udp {
		return wire.UDP{Src: from, Dst: netip.AddrPortFrom(vip4, 53), Payload: wire.QUICInitial(wire.QUIC1, 1, 1200)}.Frame()
	}
	return segment(from, wire.SYN, nil).Frame()
}

func jetData(port uint16, udp bool) []byte {
	from := netip.AddrPortFrom(client4.Addr(), port)
	if udp {
		return wire.UDP{Src: from, Dst: netip.AddrPortFrom(vip4, 53), Payload: []byte("x")}.Frame()
	}
	return segment(from, wire.ACK, nil).Frame()
}

// TestRefusedOpening: where the flow table is full of live connections, a new
// one opens on the server on which it goes on.
func TestRefusedOpening(t *testing.T) {
	r := jetRig(t, 0, true)
	fillFlows(t, r, rigNow>>10, FlowConfirmed)
	last := netip.MustParseAddr("10.1.0.5")
	for entry, udp := range []bool{false, true} {
		undo := r.drain(entry, true)
		elsewhere := 0
		for port := uint16(1000); port < 1050; port++ {
			to := r.expect("opening", jetOpening(port, udp), bpf.ForwardNew)
			if got := r.expect("data", jetData(port, udp), bpf.ReasonCount); got != to {
				t.Errorf("UDP %v, port %d: opened on %v, goes on on %v", udp, port, to, got)
			}
			if to == last {
				elsewhere++
			}
		}
		if elsewhere == 0 {
			t.Errorf("UDP %v: no connection was to be held elsewhere, which proves nothing", udp)
		}
		if c := r.counters(uint32(entry + 1)); c.FlowFull != 100 || c.Tracked != 0 {
			t.Errorf("UDP %v: %d refused, %d tracked, want 100, 0", udp, c.FlowFull, c.Tracked)
		}
		undo()
	}
}

// TestForgedOpenings: what somebody makes up who knows a connection's
// addresses and ports moves none that an entry knows: a SYN, also while the
// server drains, and behind an RST no older than two minutes; an RST, for as
// long as a connection may be silent. Nor does what nobody sends, a SYN and FIN.
func TestForgedOpenings(t *testing.T) {
	const rst, syn, both = wire.RST, wire.SYN, wire.SYN | wire.FIN
	for name, x := range map[string]struct {
		drains bool
		forged []uint8
		quiet  uint32 // ms until the connection's next packet, and between those forged
		stays  bool
		down   bool
	}{
		"SYN, draining":                 {true, []uint8{syn}, 0, true, false},
		"SYN, down":                     {true, []uint8{syn}, 0, false, true},
		"SYN and FIN, draining":         {true, []uint8{both}, 10_000, true, false},
		"RST, SYN":                      {false, []uint8{rst, syn}, 0, true, false},
		"RST, SYN and FIN, draining":    {true, []uint8{rst, both}, 10_000, true, false},
		"RST, SYN, draining":            {true, []uint8{rst, syn}, 0, true, false},
		"RST, 100 s, SYN, draining":     {true, []uint8{rst, syn}, 100_000, true, false},
		"RST, 130 s, SYN, draining":     {true, []uint8{rst, syn}, 130_000, false, false},
		"RST, SYN, down":                {true, []uint8{rst, syn}, 0, false, true},
		"RST and 130 s, draining":       {true, []uint8{rst}, 130_000, true, false},
		"RST and two hours, draining":   {true, []uint8{rst}, 7_300_000, true, false},
		"RST and three hours, draining": {true, []uint8{rst}, 10_800_000, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := jetRig(t, 0, true)
			last := netip.MustParseAddr("10.1.0.5")
			var ports []uint16
			for port := uint16(1000); port < 1100; port++ {
				if r.expect("SYN", jetOpening(port, false), bpf.ForwardNew) == last {
					r.expect("ACK", jetData(port, false), bpf.ReasonCount)
					ports = append(ports, port)
				}
			}
			open := r.line(5)
			open.Packets, open.Bytes, open.Opened = 0, 0, 0
			r.drain(0, false)
			switch {
			case !x.drains: // as if a server of the horizon had taken over
				r.writeLine(5, open, false)
			case x.down:
				open.MacDst |= (bpf.LineClosed | bpf.LineDown) << 56
				r.writeLine(5, open, false)
			}
			for _, port := range ports {
				for i, flags := range x.forged {
					r.setClock(rigNow + uint32(i)*x.quiet)
					to := r.expect("forged", segment(netip.AddrPortFrom(client4.Addr(), port), flags, nil).Frame(), reasonOf(flags))
					if x.stays && to != last {
						t.Errorf("port %d: flags %#x went to %v", port, flags, to)
					}
				}
				r.setClock(rigNow + uint32(len(x.forged))*x.quiet)
				if to := r.expect("ACK", jetData(port, false), bpf.ReasonCount); (to == last) != x.stays {
					t.Errorf("port %d went on on %v, stays: want %v", port, to, x.stays)
				}
			}
			if len(ports) == 0 {
				t.Error("no connection to move")
			}
		})
	}
}

// TestForgedOpeningsLapse: a forged SYN takes a connection that no entry knows
// from the server that holds it for as long as a handshake may take, no longer;
// what data confirms meanwhile stays where it opened.
func TestForgedOpeningsLapse(t *testing.T) {
	r := jetRig(t, 0, false)
	last := netip.MustParseAddr("10.1.0.5")
	var held []uint16
	for port := uint16(1000); port < 1100; port++ {
		if r.expect("SYN", jetOpening(port, false), bpf.ForwardNew) == last {
			held = append(held, port)
		}
	}
	r.drain(0, true)
	opened := map[uint16]netip.Addr{}
	for _, port := range held {
		if opened[port] = r.expect("SYN", jetOpening(port, false), bpf.ForwardNew); opened[port] == last {
			t.Fatalf("port %d opens on the draining server", port)
		}
	}
	if len(held) < 8 {
		t.Fatalf("%d connections are held", len(held))
	}
	real := held[:len(held)/2]
	r.setClock(rigNow + 95_000) // the last SYN-ACK is answered
	for _, port := range real {
		if to := r.expect("ACK", jetData(port, false), bpf.ReasonCount); to != opened[port] {
			t.Errorf("port %d opened on %v, goes on on %v", port, opened[port], to)
		}
	}
	for _, quiet := range []uint32{130_000, 7_000_000} {
		r.setClock(rigNow + quiet)
		for i, port := range held {
			want := last
			if i < len(real) {
				want = opened[port]
			}
			if to := r.expect("ACK", jetData(port, false), bpf.ReasonCount); to != want {
				t.Errorf("%d ms later port %d is on %v, want %v", quiet, port, to, want)
			}
		}
	}
}

// TestSYNAndFIN: with a timestamp it opens nothing either, whatever chooses
// servers.
func TestSYNAndFIN(t *testing.T) {
	for _, p := range []bpf.Policy{bpf.PolicyRR, bpf.PolicyHash} {
		r := standardOf(t, p, true)
		for port := uint16(1000); port < 1020; port++ {
			c := netip.AddrPortFrom(client4.Addr(), port)
			for _, options := range [][]byte{wire.SYNOptions(1460, 1), wire.MSS(1460)} {
				if reason, _, _ := r.why(segment(c, wire.SYN|wire.FIN, options).Frame()); reason == bpf.ForwardNew {
					t.Errorf("policy %d: a SYN and FIN opens a connection", p)
				}
			}
		}
		if c := r.counters(1); c.Tracked != 0 || c.NewConns != 0 {
			t.Errorf("policy %d: %d tracked, %d new connections; want none", p, c.Tracked, c.NewConns)
		}
	}
}

// reasonOf is why a segment that nobody knows by a cookie is forwarded.
func reasonOf(flags uint8) bpf.Reason {
	if flags == wire.SYN {
		return bpf.ForwardNew
	}
	return bpf.ReasonCount
}

// TestTracksAll: with the flag each connection is tracked, though its row says
// that it need not be; without it, none.
func TestTracksAll(t *testing.T) {
	for _, flags := range []uint8{0, uint8(bpf.VIPTrackAll)} {
		r := jetRig(t, flags, false)
		want := uint64(0)
		for entry, udp := range []bool{false, true} {
			for port := uint16(1000); port < 1020; port++ {
				to := r.expect("opening", jetOpening(port, udp), bpf.ForwardNew)
				if got := r.expect("data", jetData(port, udp), bpf.ReasonCount); got != to {
					t.Errorf("UDP %v, port %d: opened on %v, goes on on %v", udp, port, to, got)
				}
				r.expect("data of an old one", jetData(port+1000, udp), bpf.ReasonCount)
			}
			if flags != 0 {
				want = 20
			}
			if c := r.counters(uint32(entry + 1)); c.Tracked != 2*want || c.FlowHits != want {
				t.Errorf("flags %#x, UDP %v: %d tracked, %d by entry; want %d, %d", flags, udp, c.Tracked, c.FlowHits, 2*want, want)
			}
		}
	}
}

// TestToldAboutOwn: what other balancers tell takes no connection from the
// server on which it was confirmed here.
func TestToldAboutOwn(t *testing.T) {
	r := jetRig(t, 0, true)
	from := r.expect("SYN", jetOpening(1000, false), bpf.ForwardNew)
	var x uint64
	var slot uint16
	for i, b := range readBuckets(t, r) {
		for at, tag := range b.Tag[:jet.Ways] {
			if tag != 0 {
				x = b.Entry[at]>>32<<32 | uint64(i)<<32/rigFlows | uint64(tag&0x7f)
				slot = uint16(b.Entry[at] & 0x3fff)
			}
		}
	}
	other := (slot + 1) % 5
	tell := func(state uint8, want uint32) {
		t.Helper()
		w := bpf.FlowWrite{Count: 1}
		w.Record[0] = bpf.Shared{X: x, Slot: other, State: state, Tcp: 1}
		if _, err := r.o.FlowWrite.Run(&ebpf.RunOptions{Context: w, ContextOut: &w}); err != nil || w.Taken != want {
			t.Fatalf("told of slot %d: %d taken, want %d (%v)", other, w.Taken, want, err)
		}
	}
	known := func(what string) netip.Addr {
		t.Helper()
		return r.expect(what, jetData(1000, false), bpf.ReasonCount)
	}
	if got := known("ACK"); got != from {
		t.Fatalf("SYN to %v, ACK to %v", from, got)
	}
	for state := range uint8(4) {
		tell(state, 0)
		if got := known("ACK"); got != from {
			t.Errorf("told state %d of another server: moved from %v to %v", state, from, got)
		}
	}
	// What nothing confirmed here gives way.
	r.expect("RST", segment(netip.AddrPortFrom(client4.Addr(), 1000), wire.RST, nil).Frame(), bpf.ReasonCount)
	tell(FlowConfirmed, 1)
	if got := known("ACK"); got == from {
		t.Errorf("what was told did not take the place of a closed connection's entry")
	}
}
