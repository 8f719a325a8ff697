package host

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	choices "github.com/fairlead/fairlead/vip"
)

// tended is a rig whose agent watches until the test ends.
func tended(t *testing.T) *rig {
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.agent.Run(ctx) }()
	// Before the rig's own cleaning up, which closes the agent.
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// Whatever of its programs and pins somebody takes away, the agent puts back, and
// connections go on.
func TestTakenAwayIsPutBack(t *testing.T) {
	t.Parallel()
	r := tended(t)
	r.listen(hosttest.VIP4)
	r.during(func() {
		c := r.dial(hosttest.VIP4)
		r.echo(c, 1000)
		before := kerneltest.Attached(r.pin)
		if len(before) != 3 {
			t.Fatalf("links %v, want xdp, tcx and sockops", before)
		}
		for name := range before {
			l, err := link.LoadPinnedLink(filepath.Join(r.pin, kernel.DirLinks, name), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Detach(); err != nil {
				t.Fatalf("detach %s: %v", name, err)
			}
			l.Close()
		}
		eventually(t, "all programs are attached again", func() bool {
			now := kerneltest.Attached(r.pin)
			for name, id := range before {
				if now[name] == 0 || now[name] == id {
					return false
				}
			}
			return true
		})
		r.echo(c, 1000)
		r.echo(r.dial(hosttest.VIP4), 1000)
		now := kerneltest.Attached(r.pin)
		pins := func() (n int) {
			_ = filepath.Walk(r.pin, func(string, os.FileInfo, error) error { n++; return nil })
			return n
		}
		all := pins()
		if err := os.RemoveAll(r.pin); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all is pinned again", func() bool { return pins() == all })
		for name, id := range kerneltest.Attached(r.pin) {
			if now[name] != id {
				t.Errorf("link %s was attached anew for the sake of its pin", name)
			}
		}
		r.echo(c, 1000)
	})
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("unload under a living agent: %v", err)
	}
	if w := r.agent.Status().Warnings; len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
}

// Somebody else's XDP program is let be, and said.
func TestForeignXDPIsTold(t *testing.T) {
	t.Parallel()
	r := tended(t)
	name := filepath.Join(r.pin, kernel.DirLinks, linkName("xdp", hosttest.ServerInterface))
	ours, err := link.LoadPinnedLink(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	var theirs link.Link
	r.agent.mu.Lock() // it looks when this is done
	err = r.Server.Do(func() error {
		dev, err := netlink.LinkByName(hosttest.ServerInterface)
		if err == nil {
			err = ours.Detach()
		}
		if err == nil {
			theirs, err = link.AttachXDP(link.XDPOptions{Program: pass, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode})
		}
		return err
	})
	r.agent.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warning", func() bool {
		s := r.agent.Status()
		return s.Interfaces[0].Mode == kernel.Off && len(s.Warnings) == 1 && strings.Contains(s.Warnings[0], "(others)") && strings.Contains(s.Warnings[0], "xdp off")
	})
	theirs.Close()
	eventually(t, "ours is back", func() bool {
		s := r.agent.Status()
		return s.Interfaces[0].Mode == "native" && len(s.Warnings) == 0
	})
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
}

// A VIP that the agent had put on the loopback comes back; one that somebody else
// had is missed.
func TestVIPComesBack(t *testing.T) {
	t.Parallel()
	r := tended(t)
	r.listen(hosttest.VIP4)
	// As if VIP6 had stood there before the agent came.
	if err := r.agent.set.HostAdded.Delete(hosttest.VIP6.As16()); err != nil {
		t.Fatal(err)
	}
	var lo netlink.Link
	has := func(vip netip.Addr) (yes bool) {
		err := r.Server.Do(func() error {
			list, err := netlink.AddrList(lo, netlink.FAMILY_ALL)
			for _, l := range list {
				yes = yes || l.IP.Equal(vip.AsSlice())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return yes
	}
	err := r.Server.Do(func() (err error) {
		if lo, err = netlink.LinkByName(loopback); err != nil {
			return err
		}
		for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
			if err := netlink.AddrDel(lo, vipAddress(vip)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "VIP4 is back and VIP6 is missed", func() bool {
		w := r.agent.Status().Warnings
		return has(hosttest.VIP4) && len(w) == 1 && strings.Contains(w[0], "VIP "+hosttest.VIP6.String()+" is not on the loopback any more")
	})
	if has(hosttest.VIP6) {
		t.Error("an address that somebody else took away was put back")
	}
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
	err = r.Server.Do(func() error {
		a := vipAddress(hosttest.VIP6)
		a.Flags |= unix.IFA_F_NODAD
		return netlink.AddrAdd(lo, a)
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no warning", func() bool { return len(r.agent.Status().Warnings) == 0 })
}

// A VIP that cannot be put back is not said to be.
func TestVIPThatCannotComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	var said bytes.Buffer
	r.agent.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := r.Server.Sysctl("net.ipv6.conf.lo.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.agent.tend(true)
	}
	if got := said.String(); strings.Contains(got, "is put back") || strings.Count(got, "add VIP "+hosttest.VIP6.String()) != 1 {
		t.Errorf("said %s; want once that the VIP cannot be added", got)
	}
}

// An agent that cannot look, having no descriptor left, takes nothing to be gone.
func TestLookingFails(t *testing.T) {
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	undo := kerneltest.OneDescriptor(t) // for the namespace to come back to
	r.agent.tend(true)
	undo()
	s := r.agent.Status()
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "too many open files") || s.Interfaces[0].Mode != "native" || s.Interfaces[0].Egress != egressTCX {
		t.Errorf("%+v, warnings %q", s.Interfaces, s.Warnings)
	}
}
