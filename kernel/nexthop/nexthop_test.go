package nexthop

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
)

// The ways are followed by real traffic in the tests of kernel/lb and kernel/host;
// here is what these cannot make.

func newRig(t testing.TB) *hosttest.Rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	rig, err := hosttest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.Close() })
	return rig
}

// watching is a watcher in the rig's server that has resolved the client.
func watching(t testing.TB, rig *hosttest.Rig) *Watcher {
	t.Helper()
	var w *Watcher
	err := rig.Server.Do(func() (err error) {
		w, err = New(slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Watch(map[netip.Addr]bool{hosttest.Client4: true, hosttest.Client6: true}, 5*time.Second)
	for _, a := range []netip.Addr{hosttest.Client4, hosttest.Client6} {
		if h := w.Get(a); h.State != Resolved || !h.OnLink() || h.MTU != 1600 {
			t.Fatalf("the way to %v: %+v", a, h)
		}
	}
	return w
}

// Behind a VLAN device, packets leave by its parent with the tag. (The kernel
// of the machines that run these tests may have no VLAN devices: the device
// is made up, route and neighbour are real.)
func TestVLAN(t *testing.T) {
	w := watching(t, newRig(t))
	real := w.Get(hosttest.Client4)
	up := netlink.LinkAttrs{Index: 77, Name: "eth7", Flags: net.FlagUp, OperState: netlink.OperUp, MTU: 9000}
	look := lookup{w: w, asked: map[asked]bool{}, neighbours: map[int]map[netip.Addr]netlink.Neigh{}, links: map[int]netlink.Link{
		real.Ifindex: &netlink.Vlan{VlanId: 100, LinkAttrs: netlink.LinkAttrs{Index: real.Ifindex, Name: "eth7.100",
			ParentIndex: 77, MTU: 1400, HardwareAddr: net.HardwareAddr(real.Source[:])}},
		77: &netlink.Device{LinkAttrs: up},
	}}
	h := look.hop(Hop{Server: hosttest.Client4}, w.ways[hosttest.Client4].route)
	want := real
	want.Ifindex, want.VLAN, want.MTU, want.Interface = 77, 100, 1400, "eth7.100"
	if h != want {
		t.Errorf("hop %+v, want %+v", h, want)
	}
}

// A neighbour is silent from when the kernel's questions were in vain until it
// is heard of again; not while it is asked, nor when its entry is gone.
func TestSilent(t *testing.T) {
	rig := newRig(t)
	w := watching(t, rig)
	at := w.Get(hosttest.Client4).Ifindex
	say := func(state int) Hop {
		t.Helper()
		set := w.handle.NeighSet
		n := &netlink.Neigh{LinkIndex: at, IP: hosttest.Client4.AsSlice(), State: state}
		if state == netlink.NUD_NONE {
			set = w.handle.NeighDel
		}
		if state == netlink.NUD_REACHABLE {
			n.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 7, 7}
		}
		if err := set(n); err != nil {
			t.Fatal(err)
		}
		w.refresh()
		return w.Get(hosttest.Client4)
	}
	// Nobody is to answer behind the test's back.
	if err := rig.Client.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ClientInterface)
		if err != nil {
			return err
		}
		return netlink.LinkSetARPOff(l)
	}); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		kernel int
		state  State
		silent bool
	}{
		{netlink.NUD_NONE, Failed, false}, // collected: asked anew
		{netlink.NUD_FAILED, Failed, true},
		{netlink.NUD_NONE, Failed, true}, // asked once more
		{netlink.NUD_REACHABLE, Resolved, false},
		{netlink.NUD_NONE, Failed, false},
	} {
		if h := say(step.kernel); h.State != step.state || h.Silent != step.silent || !h.Usable() {
			t.Fatalf("step %d: %+v, want %s, silent %v", i, h, step.state, step.silent)
		}
	}
	// One that never answered.
	nobody := hosttest.Client4.Next().Next()
	w.Watch(map[netip.Addr]bool{nobody: false}, time.Minute) // not waited for
	end := time.Now().Add(time.Minute)
	for ; !w.Get(nobody).Silent && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w.refresh()
	}
	if h := w.Get(nobody); !h.Silent || h.State != Unresolved || h.Usable() {
		t.Fatalf("one that never answered: %+v", h)
	}
}

// What cannot be sent to says why, and what is watched no more is forgotten.
func TestUnreachable(t *testing.T) {
	rig := newRig(t)
	w := watching(t, rig)
	own, far := hosttest.Server4, netip.MustParseAddr("203.0.113.9")
	w.Watch(map[netip.Addr]bool{own: true, far: true}, 0)
	w.refresh()
	for _, a := range []netip.Addr{own, far} {
		if h := w.Get(a); h.State != Unreachable || h.Problem == "" || h.Usable() {
			t.Errorf("the way to %v: %+v", a, h)
		}
	}
	if n := len(w.List()); n != 2 {
		t.Errorf("%d ways are watched, want 2", n)
	}
	if h := w.Get(hosttest.Client4); h.State != Unresolved {
		t.Errorf("one that is not watched: %+v", h)
	}
}
