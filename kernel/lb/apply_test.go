package lb

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// Tables change under load without a packet lost or sent elsewhere than one
// of the two assignments says.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11, 12)
	w.forwarded(1)
	stop := w.stream()
	for i := range 40 {
		a := assignment(uint64(i), 11, 12)
		if i%2 == 1 {
			a = assignment(uint64(i), 0, 0, 13, 14)
		}
		// A second VIP comes and goes, so that the first one's place changes.
		if i%3 == 0 {
			other := a.VIPs[0]
			other.ID, other.Name, other.Port = 2, "other", 443
			a.VIPs = append([]controller.VIP{other}, a.VIPs...)
		}
		if _, err := l.Apply(a, nil); err != nil {
			t.Fatal(err)
		}
	}
	sent, to := stop()
	if sent < 40 || total(to) != sent {
		t.Errorf("%d of %d packets came back over 40 changes: %v", total(to), sent, to)
	}
	for a := range to {
		if n := a.As4()[3]; n < 11 || n > 14 {
			t.Errorf("a packet went to %v", a)
		}
	}
}

// A process that dies after it filled the idle half, before the flip, leaves
// the old half in force.
func TestKilledBeforeFlip(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	w.forwarded(1000)
	c, err := l.set.readControl()
	if err != nil {
		t.Fatal(err)
	}
	p, err := tables.Balancer(assignment(2, 0, 12), l.view(nil, c.Active^1))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.writeNewLines(p); err != nil {
		t.Fatal(err)
	}
	if err := l.fill(p, c.Active^1); err != nil {
		t.Fatal(err)
	}
	l.Close()
	for port := range uint16(5) {
		if to, _ := w.forwarded(2000 + port); to != netip.MustParseAddr("10.77.0.11") {
			t.Errorf("after the kill a packet went to %v", to)
		}
	}
	l = w.open(w.options())
	w.apply(l, 0, 12)
	if to, _ := w.forwarded(3000); to != netip.MustParseAddr("10.77.0.12") {
		t.Errorf("after the next change a packet went to %v", to)
	}
}

// Counters follow a server line that moves because its VIP outgrows its
// range and another VIP's lines are behind it, and the VIP's sum keeps what removed servers
// counted. Where nobody's are behind it no line moves.
func TestCountersOutliveLines(t *testing.T) {
	for name, neighbour := range map[string]bool{"alone": false, "in the way": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			countersOutliveLines(t, neighbour)
		})
	}
}

func countersOutliveLines(t *testing.T, neighbour bool) {
	w := newWired(t)
	l := w.open(w.options())
	beside := func(a *controller.Assignment) *controller.Assignment {
		if neighbour {
			v := assignment(1, 12).VIPs[0]
			v.ID, v.Name, v.Port = 2, "other", 81
			a.VIPs = append(a.VIPs, v)
		}
		return a
	}
	if _, err := l.Apply(beside(assignment(1, 11, 12)), nil); err != nil {
		t.Fatal(err)
	}
	for port := range uint16(20) {
		w.forwarded(1000 + port)
	}
	before := w.counters(l).VIPs[0]
	line, _ := l.Line(1, 0)

	grown := assignment(2, 11, 12)
	grown.VIPs[0].Slots = append(grown.VIPs[0].Slots, controller.Slot{Number: 20, Server: "s13",
		Address: netip.MustParseAddr("10.77.0.13"), Weight: 1, State: controller.Joining})
	if _, err := l.Apply(beside(grown), nil); err != nil {
		t.Fatal(err)
	}
	if now, ok := l.Line(1, 0); !ok || (now != line) != neighbour {
		t.Fatalf("for slot 20 the range of 16 lines moved, or did not (line %d, then %d)", line, now)
	}
	after := w.counters(l).VIPs[0]
	for i, s := range before.Servers {
		if a := after.Servers[i]; a.Packets < s.Packets || a.Opened < s.Opened || a.Open < s.Open || a.Address != s.Address {
			t.Errorf("slot %d: %+v before it moved, %+v after", s.Slot, s, a)
		}
	}
	w.forwarded(2000)

	// Slot 0 is removed; then another server takes the number.
	w.apply(l, 0, 12)
	gone := w.counters(l).VIPs[0]
	if len(gone.Servers) != 1 || gone.Packets < after.Packets {
		t.Errorf("after a removal %+v, before %+v", gone, after)
	}
	w.apply(l, 14, 12)
	reused := w.counters(l).VIPs[0]
	if s := reused.Servers[0]; s.Address != netip.MustParseAddr("10.77.0.14") || s.Packets != 0 || s.Open != 0 {
		t.Errorf("the new server starts at %+v", s)
	}
	if reused.Packets < after.Packets {
		t.Errorf("%d packets, %d before", reused.Packets, after.Packets)
	}
	// And once more without the number ever being free.
	for port := range uint16(6) {
		w.forwarded(3000 + port)
	}
	last := w.counters(l).VIPs[0].Packets
	w.apply(l, 15, 12)
	if v := w.counters(l).VIPs[0]; v.Servers[0].Packets != 0 || v.Packets < last {
		t.Errorf("after the number changed hands: %+v", v)
	}
	// The VIP's end ends its counters.
	if _, err := l.Apply(&controller.Assignment{Version: 9}, nil); err != nil {
		t.Fatal(err)
	}
	w.apply(l, 11)
	if v := w.counters(l).VIPs[0]; v.Packets != 0 || v.NewConnections != 0 {
		t.Errorf("a VIP that came back starts at %+v", v)
	}
}

// Servers that are down or not active take nothing new.
func TestDownTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	a := assignment(1, 11, 12, 13, 14)
	a.VIPs[0].Slots[1].State = controller.Draining
	a.VIPs[0].Slots[2].State = controller.Joining
	if _, err := l.Apply(a, func(vip uint32, slot uint16) bool { return vip == 1 && slot == 3 }); err != nil {
		t.Fatal(err)
	}
	for port := range uint16(12) {
		if to, _ := w.forwarded(1000 + port); to != netip.MustParseAddr("10.77.0.11") {
			t.Fatalf("a new connection went to %v", to)
		}
	}
	if n := len(w.counters(l).VIPs[0].Servers); n != 4 {
		t.Errorf("%d servers keep their slot, want 4", n)
	}
}

// The next hop's MAC changes, and packets follow.
func TestNextHopFollowed(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	w.run(l)
	w.forwarded(1000)
	moved := wire.MAC{2, 0xfa, 0x1e, 0, 0, 9}
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		check(netlink.NeighSet(&netlink.Neigh{LinkIndex: dev.Attrs().Index, IP: net.IPv4(10, 77, 0, 11),
			HardwareAddr: moved[:], State: netlink.NUD_PERMANENT}))
	})
	eventually(t, "frames go to the new MAC", func() bool {
		w.transmit(w.syn(2000))
		return w.receive(100*time.Millisecond, func(f []byte) bool { return wire.MAC(f[:6]) == moved }) != nil
	})
}

// A neighbour that stops answering keeps its last MAC: forgetting it would
// break what may still work.
func TestFailedKeepsMAC(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	w.run(l)
	w.forwarded(1000)
	inNS(t, w.net, func() {
		check(netlink.AddrDel(must(netlink.LinkByName("net0")), must(netlink.ParseAddr("10.77.0.11/24"))))
	})
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		check(netlink.NeighSet(&netlink.Neigh{LinkIndex: dev.Attrs().Index, IP: net.IPv4(10, 77, 0, 11), State: netlink.NUD_FAILED}))
	})
	eventually(t, "the hop has failed", func() bool { return l.Status().NextHops[0].State == nexthop.Failed })
	w.forwarded(2000)
}

// Tunnels to a family of which the balancer has no address are refused.
func TestNoSource(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	o := w.options()
	o.Source4, o.Source6 = netip.Prefix{}, netip.Prefix{}
	inNS(t, w.lb, func() {
		check(netlink.AddrDel(must(netlink.LinkByName("lb0")), must(netlink.ParseAddr("fd77::2/64"))))
	})
	l := w.open(o)
	w.apply(l, 11)
	if _, f := w.forwarded(1000); wire.Parse(f).Src != netip.MustParseAddr("10.77.0.2") {
		t.Errorf("outer source %v", wire.Parse(f).Src)
	}
	a := assignment(2, 11)
	a.VIPs[0].Slots[0].Address = netip.MustParseAddr("fd77::11")
	if _, err := l.Apply(a, nil); err == nil || !strings.Contains(err.Error(), "set source (IPv4) or source6 (IPv6)") {
		t.Errorf("error %v", err)
	}
}

// A server on another interface than the packets come in by, to which the
// balancer is not even attached.
func TestOtherInterface(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "net1", PeerNamespace: netlink.NsFd(w.net)}))
		up("lb1", "10.78.0.2/24")
	})
	inNS(t, w.net, func() {
		up("net1", "10.78.0.11/24")
		w.capture("net1")
	})
	l := w.open(w.options())
	a := assignment(1, 11)
	a.VIPs[0].Slots[0].Address = netip.MustParseAddr("10.78.0.11")
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	w.run(l)
	if to, _ := w.forwarded(1000); to != a.VIPs[0].Slots[0].Address {
		t.Errorf("to %v", to)
	}
}

// A server that cannot be resolved is dropped for with a reason; when it
// comes up, packets flow without a change of the assignment.
func TestUnresolvedThenResolved(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 30)
	w.run(l)
	if h := l.Status().NextHops; len(h) != 1 || h[0].State == nexthop.Resolved {
		t.Fatalf("next hops %+v", h)
	}
	eventually(t, "packets are dropped as unresolved", func() bool {
		w.transmit(w.syn(1000))
		return w.counters(l).reason("drop_unresolved") > 0
	})
	inNS(t, w.net, func() {
		check(netlink.AddrAdd(must(netlink.LinkByName("net0")), must(netlink.ParseAddr("10.77.0.30/24"))))
	})
	w.forwarded(2000)
}

// The route to a server moves behind a router, then to a VLAN.
func TestRouteFollowed(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		_, far, _ := net.ParseCIDR("10.79.0.0/24")
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: far, Gw: net.IPv4(10, 77, 0, 1)}))
	})
	a := assignment(1, 11)
	a.VIPs[0].Slots[0].Address = netip.MustParseAddr("10.79.0.5")
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	w.run(l)
	if to, f := w.forwarded(1000); to != a.VIPs[0].Slots[0].Address || wire.MAC(f[:6]) != w.netMAC {
		t.Errorf("to %v by % x", to, f[:6])
	}

	// The server comes to the link itself.
	inNS(t, w.net, func() {
		check(netlink.AddrAdd(must(netlink.LinkByName("net0")), must(netlink.ParseAddr("10.79.0.5/32"))))
	})
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		_, near, _ := net.ParseCIDR("10.79.0.5/32")
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: near, Scope: unix.RT_SCOPE_LINK}))
	})
	eventually(t, "the server itself is the next hop", func() bool {
		h := l.Status().NextHops[0]
		return h.State == nexthop.Resolved && h.OnLink()
	})
	w.forwarded(2000)
	// Its link goes down: nothing is sent into the void without a reason.
	inNS(t, w.lb, func() { check(netlink.LinkSetDown(must(netlink.LinkByName("lb0")))) })
	eventually(t, "the way is gone", func() bool { return l.Status().NextHops[0].State == nexthop.Unreachable })
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		check(netlink.LinkSetUp(dev))
		_, near, _ := net.ParseCIDR("10.79.0.5/32")
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: near, Scope: unix.RT_SCOPE_LINK}))
	})
	w.forwarded(3000)
}

// l2 to a server behind a router is refused, and nothing changes.
func TestL2NeedsTheLink(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		_, far, _ := net.ParseCIDR("10.79.0.0/24")
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: far, Gw: net.IPv4(10, 77, 0, 1)}))
	})
	a := assignment(2, 11)
	a.VIPs[0].Forwarding = "l2"
	a.VIPs[0].Slots[0].Address = netip.MustParseAddr("10.79.0.5")
	_, err := l.Apply(a, nil)
	if err == nil || !strings.Contains(err.Error(), "behind router 10.77.0.1") {
		t.Errorf("error %v", err)
	}
	if to, _ := w.forwarded(1000); to != netip.MustParseAddr("10.77.0.11") {
		t.Errorf("after the refusal a packet went to %v", to)
	}
}

// Plans that cannot be are refused with the place and the remedy.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	for want, spoil := range map[string]func(*controller.Assignment){
		"limits.server_lines 256":     func(a *controller.Assignment) { a.VIPs[0].Slots[0].Number = 300 },
		"limits.table_entries 131072": func(a *controller.Assignment) { a.VIPs = manyVIPs(a.VIPs[0], 5) },
		"stands twice":                func(a *controller.Assignment) { a.VIPs = append(a.VIPs, a.VIPs[0]) },
		"id 4096: the loaded program": func(a *controller.Assignment) { a.VIPs[0].ID = 4096 },
	} {
		a := assignment(2, 12)
		spoil(a)
		if _, err := l.Apply(a, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if to, _ := w.forwarded(1000); to != netip.MustParseAddr("10.77.0.11") {
		t.Errorf("after refusals a packet went to %v", to)
	}
}

func manyVIPs(v controller.VIP, n int) (list []controller.VIP) {
	for i := range n {
		v.ID, v.Port = uint32(1+i), uint16(80+i)
		list = append(list, v)
	}
	return list
}
