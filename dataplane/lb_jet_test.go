package dataplane

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/wire"
)

// The program by hand, where connections are tracked: what is refused an
// entry, what other balancers tell, and VIPs that track all.

// jetRig is a balancer with VIP 1, TCP, and VIP 2, UDP, of scheme jet.
func jetRig(t *testing.T, flags uint8, tracked bool) *rig {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: lbFlSchemeFL_SCHEME_JET, flags: flags,
		servers: servers(5, lbFlForwardingFL_FWD_IPIP), tracked: tracked})
	r.add(rigVIP{addr: vip4, port: 53, proto: wire.ProtoUDP, scheme: lbFlSchemeFL_SCHEME_JET, flags: flags,
		servers: servers(5, lbFlForwardingFL_FWD_IPIP), tracked: tracked})
	r.commit()
	return r
}

// counters of a VIP, of all CPUs.
func (r *rig) counters(id uint32) (sum lbFlVipCpu) {
	r.t.Helper()
	var all []lbFlVipCpu
	if err := r.o.VipCpu.Lookup(id, &all); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range all {
		sum.Tracked += c.Tracked
		sum.FlowFull += c.FlowFull
		sum.FlowReplaced += c.FlowReplaced
		sum.FlowHits += c.FlowHits
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
			to := r.expect("opening", jetOpening(port, udp), lbFlReasonFL_FORWARD_NEW)
			if got := r.expect("data", jetData(port, udp), lbFlReasonFL_REASON_COUNT); got != to {
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

// TestTracksAll: with the flag each connection is tracked, though its row says
// that it need not be; without it, none.
func TestTracksAll(t *testing.T) {
	for _, flags := range []uint8{0, uint8(lbFlVipFlagsFL_VIP_TRACK_ALL)} {
		r := jetRig(t, flags, false)
		want := uint64(0)
		for entry, udp := range []bool{false, true} {
			for port := uint16(1000); port < 1020; port++ {
				to := r.expect("opening", jetOpening(port, udp), lbFlReasonFL_FORWARD_NEW)
				if got := r.expect("data", jetData(port, udp), lbFlReasonFL_REASON_COUNT); got != to {
					t.Errorf("UDP %v, port %d: opened on %v, goes on on %v", udp, port, to, got)
				}
				r.expect("data of an old one", jetData(port+1000, udp), lbFlReasonFL_REASON_COUNT)
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
	from := r.expect("SYN", jetOpening(1000, false), lbFlReasonFL_FORWARD_NEW)
	var x uint64
	var slot uint16
	for i, b := range readBuckets(t, r) {
		for at, tag := range b.Tag[:flowWays] {
			if tag != 0 {
				x = b.Entry[at]>>32<<32 | uint64(i)<<32/rigFlows | uint64(tag&0x7f)
				slot = uint16(b.Entry[at] & 0x3fff)
			}
		}
	}
	other := (slot + 1) % 5
	tell := func(state uint8, want uint32) {
		t.Helper()
		w := lbFlFlowWrite{Count: 1}
		w.Record[0] = lbFlShared{X: x, Slot: other, State: state, Tcp: 1}
		if _, err := r.o.FlowWrite.Run(&ebpf.RunOptions{Context: w, ContextOut: &w}); err != nil || w.Taken != want {
			t.Fatalf("told of slot %d: %d taken, want %d (%v)", other, w.Taken, want, err)
		}
	}
	known := func(what string) netip.Addr {
		t.Helper()
		return r.expect(what, jetData(1000, false), lbFlReasonFL_REASON_COUNT)
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
	r.expect("RST", segment(netip.AddrPortFrom(client4.Addr(), 1000), wire.RST, nil).Frame(), lbFlReasonFL_REASON_COUNT)
	tell(FlowConfirmed, 1)
	if got := known("ACK"); got == from {
		t.Errorf("what was told did not take the place of a closed connection's entry")
	}
}
