package lb

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/wire"
)

// expect runs a frame and returns where its tunnel goes.
func (r *rig) expect(what string, frame []byte, want bpf.Reason) netip.Addr {
	r.t.Helper()
	reason, action, out := r.why(frame)
	if reason != want || action != xdpTX {
		r.t.Fatalf("%s: reason %d action %d, want reason %d", what, reason, action, want)
	}
	_, o := inner(r.t, out, 0)
	return o.Dst
}

// drops runs a frame that must be dropped.
func (r *rig) drops(what string, frame []byte, want bpf.Reason) {
	r.t.Helper()
	reason, action, _ := r.why(frame)
	if reason != want || action != xdpDrop {
		r.t.Errorf("%s: reason %d action %d, want reason %d and a drop", what, reason, action, want)
	}
}

// TestWithoutTimestamps: hash within the VIP. When a server drains its
// connections stay, whether they are in the flow table or not, new ones go
// elsewhere, and their ends are counted.
func TestWithoutTimestamps(t *testing.T) {
	for _, tracked := range []bool{false, true} {
		testWithoutTimestamps(t, tracked)
	}
}

func testWithoutTimestamps(t *testing.T, tracked bool) {
	for _, c := range []netip.AddrPort{client4, client6} {
		r := standardOf(t, bpf.PolicyRR, tracked)
		entry := 0
		if c.Addr().Is6() {
			entry = 1
		}
		const no = bpf.ForwardNoTimestamp
		conns := map[uint16]netip.Addr{}
		drained := 0
		for port := uint16(1000); port < 1040; port++ {
			c := netip.AddrPortFrom(c.Addr(), port)
			conns[port] = r.expect("SYN", segment(c, wire.SYN, wire.MSS(1460)).Frame(), no)
			if got := r.expect("ACK", segment(c, wire.ACK, nil).Frame(), no); got != conns[port] {
				t.Fatalf("SYN to %v, ACK to %v", conns[port], got)
			}
		}
		r.drain(entry, !tracked) // where all are tracked, the table alone knows
		for port, was := range conns {
			c := netip.AddrPortFrom(c.Addr(), port)
			if got := r.expect("ACK", segment(c, wire.ACK, nil).Frame(), no); got != was {
				t.Errorf("port %d moved from %v to %v", port, was, got)
			}
			o := netip.AddrPortFrom(c.Addr(), port+5000)
			to := r.expect("new SYN", segment(o, wire.SYN, nil).Frame(), no)
			if to == netip.MustParseAddr("10.1.0.5") {
				drained++
			}
			if got := r.expect("its FIN", segment(o, wire.FIN|wire.ACK, nil).Frame(), no); got != to {
				t.Errorf("port %d: a new connection moved from %v to %v", port+5000, to, got)
			}
			r.expect("FIN", segment(c, wire.FIN|wire.ACK, nil).Frame(), no)
		}
		if drained != 0 {
			t.Errorf("%d new connections went to the server that drains", drained)
		}
		for i := range uint32(5) {
			if n := r.conns(uint32(1+5*entry) + i); n != 0 {
				t.Errorf("line %d: %d connections open after all ended", i, n)
			}
		}
	}
}

// TestFlowsAge: a flow is forgotten when it was quiet for long. A SYN takes
// up an old one that was confirmed, as the SYN may be forged and the connection
// alive, and two minutes behind its end not on the server that drains.
func TestFlowsAge(t *testing.T) {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, servers: servers(5, bpf.FwdIPIP), tracked: true})
	r.add(rigVIP{addr: vip4, port: 53, proto: wire.ProtoUDP, scheme: bpf.SchemeCheetah, servers: servers(5, bpf.FwdIPIP), tracked: true})
	r.commit()
	gone := netip.MustParseAddr("10.1.0.5")
	datagram := func(port uint16) []byte {
		return wire.UDP{Src: netip.AddrPortFrom(client4.Addr(), port), Dst: netip.AddrPortFrom(vip4, 53)}.Frame()
	}
	tcp := func(port uint16, flags uint8) []byte {
		return segment(netip.AddrPortFrom(client4.Addr(), port), flags, nil).Frame()
	}
	var ports []uint16 // whose flows are on the server that drains
	for port := uint16(1); len(ports) < 4; port++ {
		to := r.expect("datagram", datagram(port), bpf.ForwardUDP)
		if r.expect("SYN", tcp(port, wire.SYN), bpf.ForwardNoTimestamp) == gone && to == gone {
			ports = append(ports, port)
		}
	}
	r.drain(0, false)
	r.drain(1, false)
	for _, c := range []struct {
		after    uint32 // ms
		udp, tcp bool   // whether the flow is still known
	}{{0, true, true}, {119_000, true, true}, {240_000, false, true}, {8_000_000, false, false}} {
		port := ports[0]
		ports = ports[1:]
		r.setClock(rigNow + c.after)
		if to := r.expect("datagram", datagram(port), bpf.ForwardUDP); (to == gone) != c.udp {
			t.Errorf("UDP after %d ms: went to %v", c.after, to)
		}
		if to := r.expect("ACK", tcp(port, wire.ACK), bpf.ForwardNoTimestamp); (to == gone) != c.tcp {
			t.Errorf("TCP after %d ms: went to %v", c.after, to)
		}
		if to := r.expect("SYN", tcp(port, wire.SYN), bpf.ForwardNoTimestamp); (to == gone) != c.tcp {
			t.Errorf("a SYN after %d ms went to %v", c.after, to)
		}
		r.expect("FIN", tcp(port, wire.FIN|wire.ACK), bpf.ForwardNoTimestamp)
		r.setClock(rigNow + c.after + 125_000)
		if to := r.expect("SYN", tcp(port, wire.SYN), bpf.ForwardNoTimestamp); to == gone {
			t.Errorf("a SYN behind a FIN after %d ms went to the server that drains", c.after)
		}
		if to := r.expect("ACK", tcp(port, wire.ACK), bpf.ForwardNoTimestamp); to == gone {
			t.Errorf("the connection of that SYN went to the server that drains")
		}
		// A clock set back by a second makes nothing old.
		r.setClock(rigNow + c.after + 123_500)
		r.expect("ACK", tcp(port, wire.ACK), bpf.ForwardNoTimestamp)
	}
}

// TestBadCookie: a slot that nobody has goes by the hash, always to the same
// server, and is counted.
func TestBadCookie(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for _, c := range []netip.AddrPort{client4, client6} {
		var first netip.Addr
		for slot := uint32(5); slot < 2048; slot += 77 {
			f := segment(c, wire.ACK, wire.Timestamp(1, echo(12, slot&1, slot, c, 80, 0))).Frame()
			to := r.expect("bad cookie", f, bpf.ForwardBadCookie)
			if first.IsValid() && to != first {
				t.Fatalf("slot %d went to %v, others to %v", slot, to, first)
			}
			first = to
		}
	}
	if n := r.line(1).Opened; n != 0 {
		t.Errorf("bad cookies opened %d connections", n)
	}
}

// TestEveryCookieValue: whatever stands in TSecr, the packet goes to a server
// of its own VIP.
func TestEveryCookieValue(t *testing.T) {
	r := newRig(t)
	other := server("10.2.0.1", bpf.FwdIPIP)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah,
		bits: 15, servers: servers(3, bpf.FwdIPIP)})
	r.add(rigVIP{addr: vip4, port: 81, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah,
		bits: 15, servers: []bpf.Line{other}})
	r.commit()
	l := cheetah.Layout{Bits: 15}
	for field := range uint32(1 << 15) {
		f := segment(client4, wire.ACK, wire.Timestamp(1, l.WireTS(field, rigNow))).Frame()
		action, out := r.run(f)
		if action != xdpTX {
			t.Fatalf("field %d: action %d", field, action)
		}
		if d := [4]byte(out[30:34]); d[0] != 10 || d[1] != 1 || d[3] < 1 || d[3] > 3 {
			t.Fatalf("field %d went to %v", field, d)
		}
	}
}

// TestEpochs: only epochs that are live decode.
func TestEpochs(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	r.entries[0].Epochs = 2
	r.commit()
	f := func(epoch uint32) []byte {
		return segment(client4, wire.ACK, wire.Timestamp(1, echo(12, epoch, 2, client4, 80, 0))).Frame()
	}
	r.expect("live epoch", f(1), bpf.ReasonCount)
	r.expect("dead epoch", f(0), bpf.ForwardBadCookie)
}

func TestUDP(t *testing.T) {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 53, proto: wire.ProtoUDP, scheme: bpf.SchemeCheetah, servers: servers(5, bpf.FwdIPIP)})
	r.add(rigVIP{addr: vip6, proto: wire.ProtoUDP, scheme: bpf.SchemeStateless, servers: servers(5, bpf.FwdGUE)})
	r.address(vip4, 0)
	r.commit()
	flow := map[uint16]netip.Addr{}
	frame := func(port uint16) []byte {
		return wire.UDP{Src: netip.AddrPortFrom(client4.Addr(), port), Dst: netip.AddrPortFrom(vip4, 53), Payload: []byte("?")}.Frame()
	}
	for port := uint16(100); port < 140; port++ {
		flow[port] = r.expect("datagram", frame(port), bpf.ForwardUDP)
	}
	r.drain(0, true)
	for port, was := range flow {
		if to := r.expect("datagram", frame(port), bpf.ForwardUDP); to != was {
			t.Errorf("flow %d moved from %v to %v", port, was, to)
		}
	}
	// All ports of the other VIP, without memory.
	for _, port := range []uint16{1, 53, 65535} {
		u := wire.UDP{Src: client6, Dst: netip.AddrPortFrom(vip6, port), Payload: []byte("?")}
		r.expect("stateless datagram", u.Frame(), bpf.ForwardStateless)
	}
	short := frame(100)
	short[14+20+5] = 200 // UDP length past the packet's end
	r.drops("long UDP length", short, bpf.DropMalformedL4)
}

// TestStateless remembers nothing: after the pool shrinks, connections move.
func TestStateless(t *testing.T) {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeStateless,
		policy: bpf.PolicyHash, servers: servers(5, bpf.FwdIPIP)})
	r.commit()
	before := map[uint16]netip.Addr{}
	frame := func(port uint16, flags uint8) []byte {
		return segment(netip.AddrPortFrom(client4.Addr(), port), flags, wire.Timestamp(1, 1)).Frame()
	}
	for port := uint16(100); port < 200; port++ {
		before[port] = r.expect("SYN", frame(port, wire.SYN), bpf.ForwardStateless)
		if to := r.expect("ACK", frame(port, wire.ACK), bpf.ForwardStateless); to != before[port] {
			t.Fatalf("SYN to %v, ACK to %v", before[port], to)
		}
	}
	r.drain(0, true)
	moved := 0
	for port, was := range before {
		if r.expect("ACK", frame(port, wire.ACK), bpf.ForwardStateless) != was {
			moved++
		}
	}
	if moved == 0 {
		t.Error("nothing moved: this is no baseline")
	}
}

// TestLoadPolicies: p2c and least-conn even the load out, and weights count.
func TestLoadPolicies(t *testing.T) {
	for _, policy := range []bpf.Policy{bpf.PolicyP2C, bpf.PolicyLeastConn} {
		r := newRig(t)
		r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah, policy: policy,
			servers: servers(4, bpf.FwdIPIP), weights: []uint32{1, 1, 1, 3}, noNew: map[int]bool{2: true}})
		r.commit()
		for i := range 500 {
			c := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
			r.expect("SYN", segment(c, wire.SYN, wire.SYNOptions(1460, 1)).Frame(), bpf.ForwardNew)
		}
		a, b, drained, heavy := r.conns(1), r.conns(2), r.conns(3), r.conns(4)
		if drained != 0 {
			t.Errorf("policy %d: %d new connections on a draining server", policy, drained)
		}
		// Two choices meet the heavy one of three in 5/9 of all draws.
		if a < 85 || a > 130 || b < 85 || b > 130 || heavy < 245 || heavy > 330 {
			t.Errorf("policy %d: 500 connections spread %d, %d, %d for weights 1, 1, 3", policy, a, b, heavy)
		}
	}
}

// TestAffinityKeepsLive: with affinity by address, a client's new connection
// goes by today's table and leaves its live ones where they are. (One entry
// for all connections of a client moved them.)
func TestAffinityKeepsLive(t *testing.T) {
	r := standard(t, bpf.PolicyHash)
	r.entries[0].Flags |= uint8(bpf.VIPAffinity)
	r.commit()
	const no = bpf.ForwardNoTimestamp
	moved := 0
	for host := byte(1); host < 60; host++ {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, host}), 1000)
		b := netip.AddrPortFrom(a.Addr(), 1001)
		was := r.expect("SYN", segment(a, wire.SYN, nil).Frame(), no)
		undo := r.drain(0, true)
		if r.expect("the next connection's SYN", segment(b, wire.SYN, nil).Frame(), no) != was {
			moved++
		}
		if got := r.expect("the live one", segment(a, wire.ACK, nil).Frame(), no); got != was {
			t.Fatalf("client %v: live connection moved from %v to %v", a, was, got)
		}
		undo()
	}
	if moved == 0 {
		t.Error("the change moved no client's next connection: nothing was tested")
	}
}

// TestUDPToItself: a datagram from the VIP to itself is dropped, or a server
// that echoes would answer itself for ever.
func TestUDPToItself(t *testing.T) {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 53, proto: wire.ProtoUDP, scheme: bpf.SchemeCheetah, servers: servers(5, bpf.FwdIPIP)})
	r.add(rigVIP{addr: vip6, proto: wire.ProtoUDP, scheme: bpf.SchemeStateless, servers: servers(5, bpf.FwdGUE)})
	r.commit()
	for _, vip := range []netip.Addr{vip4, vip6} {
		a := netip.AddrPortFrom(vip, 53)
		r.drops("from "+vip.String()+" to itself", wire.UDP{Src: a, Dst: a, Payload: []byte("x")}.Frame(), bpf.DropMalformedIP)
	}
}

// TestHashPolicy: the same connection, or with affinity the same client, always
// comes to the same server.
func TestHashPolicy(t *testing.T) {
	for _, flags := range []uint8{0, uint8(bpf.VIPAffinity)} {
		r := newRig(t)
		r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah,
			policy: bpf.PolicyHash, flags: flags, servers: servers(5, bpf.FwdIPIP)})
		r.commit()
		seen := map[netip.Addr]bool{}
		for port := uint16(100); port < 200; port++ {
			c := netip.AddrPortFrom(client4.Addr(), port)
			f := segment(c, wire.SYN, wire.SYNOptions(1460, 1)).Frame()
			to := r.expect("SYN", f, bpf.ForwardNew)
			if again := r.expect("SYN again", f, bpf.ForwardNew); again != to {
				t.Fatalf("a repeated SYN went from %v to %v", to, again)
			}
			seen[to] = true
		}
		if want := 5 - 4*int(flags>>2); len(seen) != want {
			t.Errorf("flags %d: %d servers, want %d", flags, len(seen), want)
		}
	}
}

// TestCountsEnds: FIN and RST with a known server are counted, once below
// zero never.
func TestCountsEnds(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	ts := wire.Timestamp(7, echo(12, 1, 3, client4, 80, 10))
	if err := r.o.Conns.Put(uint32(4), int32(2)); err != nil {
		t.Fatal(err)
	}
	for i, flags := range []uint8{wire.FIN | wire.ACK, wire.RST, wire.RST | wire.ACK, wire.FIN | wire.ACK} {
		r.expect("end", segment(client4, flags, ts).Frame(), bpf.ReasonCount)
		if got, want := r.conns(4), max(1-int32(i), 0); got != want {
			t.Errorf("after %d ends %d open, want %d", i+1, got, want)
		}
	}
}

// TestAskRST: an RST without timestamp is handed to the daemon, whole, within
// the bound; of a connection without timestamps it follows the flow table.
func TestAskRST(t *testing.T) {
	r := standardOf(t, bpf.PolicyRR, true)
	rd := r.asks()
	asked, limited := 0, 0
	for i := range 30 {
		c := netip.AddrPortFrom(client4.Addr(), uint16(5000+i))
		frame := segment(c, wire.RST, nil).Frame()
		switch reason, action, _ := r.why(frame); {
		case reason == bpf.AskRST && action == xdpDrop:
			rec, err := rd.Read()
			if err != nil {
				t.Fatal(err)
			}
			raw := rec.RawSample
			if !bytes.Equal(raw[8:8+40], frame[14:54]) || raw[0] != 1 || raw[4] != 40 || raw[6] != 4 {
				t.Fatalf("record % x", raw[:48])
			}
			asked++
		case reason == bpf.DropAskLimit && action == xdpDrop:
			limited++
		default:
			t.Fatalf("reason %d action %d", reason, action)
		}
	}
	// Five a second and CPU; the clock stands still.
	if asked < 5 || asked > 5*16 || limited == 0 {
		t.Errorf("%d asked, %d over the limit", asked, limited)
	}
	c := netip.MustParseAddrPort("198.51.100.9:6000")
	was := r.expect("SYN", segment(c, wire.SYN, wire.MSS(1460)).Frame(), bpf.ForwardNoTimestamp)
	if to := r.expect("RST", segment(c, wire.RST, nil).Frame(), bpf.ForwardNoTimestamp); to != was {
		t.Errorf("RST of a connection without timestamps went to %v, not %v", to, was)
	}
}

// TestNoServer: an empty pool drops what needs a server.
func TestNoServer(t *testing.T) {
	r := newRig(t)
	r.add(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah})
	r.commit()
	r.drops("SYN", segment(client4, wire.SYN, wire.SYNOptions(1460, 1)).Frame(), bpf.DropNoServer)
	r.drops("SYN without timestamp", segment(client4, wire.SYN, nil).Frame(), bpf.DropNoServer)
	r.drops("cookie", known(client4, 0, nil), bpf.DropNoServer)
}
