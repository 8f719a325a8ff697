package lb

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// steered are options and an assignment of a balancer that steers.
func (w *wired) steered(by string, servers ...int) (Options, *controller.Assignment) {
	o := w.options()
	o.Steer = true
	o.Source4, o.Source6 = netip.MustParsePrefix("10.88.0.1/32"), netip.MustParsePrefix("fd88::1/128")
	a := assignment(1, servers...)
	a.VIPs[0].Forwarding, a.VIPs[0].Steer = "gue", by
	return o, a
}

// outer is the outer header of a new connection's first packet.
func (w *wired) outer(port uint16) wire.Outer {
	w.t.Helper()
	_, f := w.forwarded(port)
	_, o, err := wire.Decapsulate(f[wire.EthernetLen:])
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *wired) mustApply(l *LB, a *controller.Assignment) {
	w.t.Helper()
	if _, err := l.Apply(a, nil); err != nil {
		w.t.Fatal(err)
	}
}

// rowOf has one port in every entry.
func rowOf(port uint16) (row steer.Row) {
	for i := range row {
		row[i] = steer.Entry{Port: port}
	}
	return row
}

var server11 = netip.MustParseAddr("10.77.0.11")

// A steered server's tunnels carry what its row says, also while no daemon runs
// and in the next one, until that knows better.
func TestSteer(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	o, a := w.steered(vip.SteerConnection, 11)
	l := w.open(o)
	w.mustApply(l, a)
	if got := w.outer(1000).SrcPort; got < 49152 {
		t.Errorf("source port %d before anything was chosen, want the hash's: 49152 or more", got)
	}
	key := SteerKey{server11, vip.SteerConnection}
	set := func(port uint16) {
		t.Helper()
		if err := l.SetSteers(map[SteerKey]steer.Row{key: rowOf(port)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(port, steered uint16) {
		t.Helper()
		if got := w.outer(port); got.SrcPort != steered || got.Src != netip.MustParseAddr("10.88.0.1") {
			t.Errorf("outer %v port %d, want %d", got.Src, got.SrcPort, steered)
		}
	}
	set(2001)
	for port := range uint16(8) {
		want(1100+port, 2001)
	}
	set(2002)
	want(1200, 2002)
	l.Close()
	want(1201, 2002)

	l = w.open(o)
	want(1300, 2002)
	w.mustApply(l, a)
	want(1301, 2002)
	rows, err := l.SteerRowsInForce()
	if err != nil || len(rows) != 1 || rows[key] != rowOf(2002) {
		t.Errorf("rows in force %v, %v", rows, err)
	}
	set(2003)
	want(1302, 2003)

	// Another server on the slot begins by the hash, with its own row after.
	_, b := w.steered(vip.SteerConnection, 12)
	b.Version = 2
	w.mustApply(l, b)
	if got := w.outer(1400).SrcPort; got < 49152 {
		t.Errorf("a new server has the row of the one before: port %d", got)
	}
	// The first one is back: what was chosen for it is still known.
	a.Version = 3
	w.mustApply(l, a)
	want(1401, 2003)

	// Off in the VIP, and on again.
	a.Version, a.VIPs[0].Steer = 4, ""
	w.mustApply(l, a)
	if got := w.outer(1500).SrcPort; got < 49152 {
		t.Errorf("steered by a VIP that does not: port %d", got)
	}
	a.Version, a.VIPs[0].Steer = 5, vip.SteerConnection
	w.mustApply(l, a)
	want(1501, 2003)
	a.Version, a.VIPs[0].Steer = 6, vip.SteerServer // whose row nobody has set
	w.mustApply(l, a)
	want(1502, 2003)
}

// Steering is switched on and off with a restart of the daemon: everything else
// that is pinned goes on.
func TestSteerSwitched(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	o, a := w.steered(vip.SteerServer, 11)
	key := SteerKey{server11, vip.SteerServer}
	off := o
	off.Steer = false
	for i, o := range []Options{off, o, off, o} {
		l := w.open(o)
		if got := l.Status().Adopted; got != (i > 0) {
			t.Errorf("open %d: adopted %v", i, got)
		}
		if err := l.SetSteers(map[SteerKey]steer.Row{key: rowOf(2001)}); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			w.outer(uint16(1000 + i)) // by what the daemon before left
		}
		a.Version++
		w.mustApply(l, a)
		if got := w.outer(uint16(1100 + i)).SrcPort; (got == 2001) != o.Steer {
			t.Errorf("open %d, steer %v: source port %d", i, o.Steer, got)
		}
		if n := w.counters(l).VIPs[0].NewConnections; n < uint64(i) {
			t.Errorf("open %d: %d connections counted", i, n)
		}
		l.Close()
	}
}

func TestSteerNeedsOneSource(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	o, _ := w.steered(vip.SteerServer, 11)
	o.Source4 = netip.MustParsePrefix("10.88.0.0/16")
	if _, err := w.tryOpen(o); err == nil || !strings.Contains(err.Error(), "source 10.88.0.0/16: steered tunnels need one source address") {
		t.Errorf("opened with %v: %v", o.Source4, err)
	}
}

// A health check goes the way of connections, over both families.
func TestSteeredHealthCheck(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"10.77.0.11", "fd77::11"} {
		t.Run(server, func(t *testing.T) {
			w := newWired(t)
			o, a := w.steered(vip.SteerConnection, 11)
			address := netip.MustParseAddr(server)
			a.VIPs[0].Slots[0].Address = address
			l := w.open(o)
			w.run(l)
			w.mustApply(l, a)
			mark := 0xFA100000 | w.steerChecks(l)
			eventually(t, "a check by the hash", func() bool { return w.connect(mark, "gue", server) != nil })
			row := rowOf(2001)
			for i := range row {
				row[i].Label = 0xabcde
			}
			if err := l.SetSteers(map[SteerKey]steer.Row{{address, vip.SteerConnection}: row}); err != nil {
				t.Fatal(err)
			}
			f := w.connect(mark, "gue", server)
			if f == nil {
				t.Fatal("the check's SYN did not come through the tunnel")
			}
			_, outer, err := wire.Decapsulate(f[wire.EthernetLen:])
			if err != nil || outer.SrcPort != 2001 {
				t.Errorf("outer %+v, %v: want source port 2001", outer, err)
			}
			if label := binary.BigEndian.Uint32(f[wire.EthernetLen:]) & 0xfffff; address.Is6() && label != 0xabcde {
				t.Errorf("flow label %#x, want 0xabcde", label)
			}
		})
	}
}
