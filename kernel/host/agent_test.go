package host

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// A killed or replaced agent changes nothing for connections.
func TestRestartAdopts(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		r.during(func() {
			c := r.dial(hosttest.VIP4)
			r.echo(c, 1000)
			d, _ := r.agent.ClockBase()
			r.agent.Close()
			r.echo(c, 1000) // nobody there
			r.now = func() uint32 { return 12345 }
			r.open()
			if !r.agent.Status().Adopted {
				t.Error("nothing was adopted")
			}
			if got, _ := r.agent.ClockBase(); got != d {
				t.Errorf("clock base %#x, want %#x as pinned", got, d)
			}
			r.echo(c, 1000)
			if l := r.live(1); l.Epochs[0] != 1 || l.NoCookie != 0 {
				t.Errorf("live: %+v, want 1 under epoch 0", l)
			}
			c.Close()
			eventually(t, "no connection is live", func() bool { return r.live(1).Epochs[0] == 0 })
		})
	})
}

// The classic attachment, for kernels without tcx.
func TestClassicEgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, "1", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	err := r.Server.Do(func() error { return Unload(r.pin) })
	if err == nil {
		t.Error("unload while the agent runs must be refused")
	}
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	err = r.Server.Do(func() (err error) {
		r.agent, err = Open(Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}, classic: true}, r.agent.log)
		return err
	})
	if err == nil {
		err = r.agent.SetClock(r.now)
	}
	if err == nil {
		err = r.agent.Apply(r.as)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 100000) })
}

// An agent that cannot start leaves nothing behind, and says what to do.
func TestFailedOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	pin := r.pin + "-failed"
	err := r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: pin, Interfaces: []string{"nosuch"}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(pin); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", pin, err)
	}
	// The folder of a living agent is refused, and left as it is.
	err = r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error: %v", err)
	}
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
	// An interface that has other plans.
	err = r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: pin, Interfaces: []string{hosttest.ServerInterface}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "xdp off") {
		t.Errorf("error: %v", err)
	}
}

// What a process left that was killed while it pinned, and interfaces that are
// no longer named, are cleared away at the next start.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	err := r.Server.Do(func() error {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		if _, err := r.agent.attachIn(lo); err != nil {
			return err
		}
		_, err = r.agent.attachOut(lo)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"maps/host_vips", "programs/host_in"} {
		var p kernel.Pinner
		path := filepath.Join(r.pin, name)
		if m, err := ebpf.LoadPinnedMap(path, nil); err == nil {
			defer m.Close()
			p, err = m.Clone()
			if err != nil {
				t.Fatal(err)
			}
		} else if q, err := ebpf.LoadPinnedProgram(path, nil); err == nil {
			defer q.Close()
			p, err = q.Clone()
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Pin(path + kernel.PinNew); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.Close()
	// Attached, and pinned under the name that is not yet the right one.
	xdp := filepath.Join(r.pin, kernel.DirLinks, "xdp-"+hosttest.ServerInterface)
	if err := os.Rename(xdp, xdp+kernel.PinNew); err != nil {
		t.Fatal(err)
	}
	r.open()
	left, err := filepath.Glob(r.pin + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if name := filepath.Base(path); strings.HasSuffix(name, kernel.PinNew) || strings.HasSuffix(name, "-lo") {
			t.Errorf("%s is left", path)
		}
	}
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
}

// A server whose address moves has two slots for a while: tunnels to both
// addresses are its own, and connections of both live.
func TestTwoAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t, "1", assignment(choices.IPIP, hosttest.Server4, hosttest.Server4, 12))
	r.listen(hosttest.VIP4)
	tunnel := func(dst netip.Addr) {
		t.Helper()
		src := hosttest.Client4
		if dst.Is6() {
			src = hosttest.Client6
		}
		if err := r.Tunnel(hosttest.VIP4, wire.Outer{Tunnel: wire.IPIP, Src: src, Dst: dst}); err != nil {
			t.Fatal(err)
		}
	}
	r.during(func() {
		tunnel(hosttest.Server4)
		old := r.dial(hosttest.VIP4)
		r.echo(old, 1000)
		v := &r.as.VIPs[0]
		moved := controller.Slot{Number: 5, Server: "s", Address: hosttest.Server6, State: controller.Joining}
		v.Slots = append(slices.Clone(v.Slots), moved)
		v.Slots[1].Number = 5
		if err := r.agent.Apply(r.as); err != nil {
			t.Fatal(err)
		}
		r.echo(old, 1000)
		tunnel(hosttest.Server6)
		r.echo(old, 1000)
		c := r.dial(hosttest.VIP4)
		r.echo(c, 1000)
	})
}

// What is new is said to begin when it did, also where the flip came late.
func TestLateFlip(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	r.listen(hosttest.VIP4)
	next := rotated(r.as, 1, 0, 1)
	a := r.agent
	a.mu.Lock()
	at := kernel.MonotonicMS() - 1000
	own, err := tables.Host(next, a.o.Server)
	if err != nil {
		t.Fatal(err)
	}
	planned, err := a.fill(own, at)
	if err != nil {
		t.Fatal(err)
	}
	flipped := a.flip()
	err = a.finish(next, own, planned, at, flipped)
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	used, err := readTable(a.set.HostVips, a.control)
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range used.Entries {
		if v.Scheme == uint8(bpf.SchemeCheetah) && v.StampSince != flipped {
			t.Errorf("%v: stamps under the new epoch since %d, want %d", key, v.StampSince, flipped)
		}
	}
	r.as = next
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
}

// VIPs come to the loopback and go from it with the assignment; one that was
// there before stays.
func TestVIPsOnLoopback(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	has := func(vip netip.Addr) (yes bool) {
		r.Server.Do(func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(vip, 0).String())
			if yes = err == nil; yes {
				l.Close()
			} else if !isUnavailable(err) {
				t.Error(err)
			}
			return nil
		})
		return yes
	}
	if !has(hosttest.VIP4) || !has(hosttest.VIP6) {
		t.Fatal("the VIPs are not on the loopback")
	}
	fewer := *r.as
	fewer.Version++
	fewer.VIPs = fewer.VIPs[:1]
	if err := r.agent.Apply(&fewer); err != nil {
		t.Fatal(err)
	}
	if !has(hosttest.VIP4) || has(hosttest.VIP6) {
		t.Error("the VIP that went is still there, or the other is not")
	}
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	if has(hosttest.VIP4) {
		t.Error("the VIP is still there after unload")
	}
	r.open()
}

func isUnavailable(err error) bool {
	var e *net.OpError
	if op, ok := err.(*net.OpError); ok {
		e = op
	}
	return e != nil && fmt.Sprint(e.Err) == fmt.Sprintf("bind: %v", syscall.EADDRNOTAVAIL)
}
