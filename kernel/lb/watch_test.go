package lb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Whatever of its programs, pins and routes somebody takes away, the balancer puts
// back, and forwards on.
func TestTakenAwayIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.run(l)
	target := w.checkedVIP(l, wiredVIP, "10.77.0.1")
	w.answers(target.Address.Addr())
	eventually(t, "a check is answered", func() bool { return w.probe(l, target) == nil })
	before := kerneltest.Attached(w.pinDir)
	if len(before) != 3 {
		t.Fatalf("links %v, want xdp, answers and checks", before)
	}
	for name := range before {
		ours := must(link.LoadPinnedLink(filepath.Join(w.pinDir, kernel.DirLinks, name), nil))
		check(ours.Detach())
		check(ours.Close())
	}
	inNS(t, w.lb, func() { check(unrouteChecks()) })
	eventually(t, "all programs are attached again", func() bool {
		now := kerneltest.Attached(w.pinDir)
		for name, id := range before {
			if now[name] == 0 || now[name] == id {
				return false
			}
		}
		return true
	})
	eventually(t, "a check is answered again", func() bool { return w.probe(l, target) == nil })
	pins := func() (n int) {
		_ = filepath.Walk(w.pinDir, func(string, os.FileInfo, error) error { n++; return nil })
		return n
	}
	all, now := pins(), kerneltest.Attached(w.pinDir)
	check(os.RemoveAll(w.pinDir))
	eventually(t, "all is pinned again", func() bool { return pins() == all })
	for name, id := range kerneltest.Attached(w.pinDir) {
		if now[name] != id {
			t.Errorf("link %s was attached anew for the sake of its pin", name)
		}
	}
	if _, err := w.tryOpen(w.options()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second balancer on the pins that were made again: %v", err)
	}
	w.mustApply(l, assignment(2, 11))
	w.forwarded(1000)
	if s := l.Status(); len(s.Astray) > 0 || s.Interfaces[0].Mode != "native" || s.Interfaces[0].Egress != "tcx" {
		t.Errorf("status %+v, %q", s.Interfaces, s.Astray)
	}
}

// Somebody else's XDP program is let be, and told; and when it goes the
// balancer's takes its place.
func TestForeignXDPIsTold(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.run(l)
	w.mustApply(l, assignment(1, 11))
	others := must(ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}))
	defer others.Close()
	var theirs link.Link
	inNS(t, w.lb, func() {
		l.mu.Lock() // it looks when this is done
		defer l.mu.Unlock()
		ours := must(link.LoadPinnedLink(filepath.Join(w.pinDir, kernel.DirLinks, linkPin(linkXDP, "lb0")), nil))
		defer ours.Close()
		check(ours.Detach())
		theirs = must(link.AttachXDP(link.XDPOptions{Program: others, Interface: must(netlink.LinkByName("lb0")).Attrs().Index, Flags: link.XDPDriverMode}))
	})
	eventually(t, "it is told whose program is there", func() bool {
		s := l.Status()
		return s.Interfaces[0].Mode == "off" && len(s.Astray) == 1 && strings.Contains(s.Astray[0], "(others)") && strings.Contains(s.Astray[0], "xdp off")
	})
	check(theirs.Close())
	eventually(t, "ours is back", func() bool { s := l.Status(); return s.Interfaces[0].Mode == "native" && len(s.Astray) == 0 })
	w.forwarded(1000)
}

// An interface that is deleted is missed, and one that is made in its place gets
// the programs.
func TestInterfaceMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	add := func() {
		inNS(t, w.lb, func() {
			check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "lb1peer"}))
		})
	}
	add()
	o := w.options()
	o.Interfaces = []string{"lb0", "lb1"}
	l := w.open(o)
	w.run(l)
	w.mustApply(l, assignment(1, 11))
	inNS(t, w.lb, func() { check(netlink.LinkDel(must(netlink.LinkByName("lb1")))) })
	eventually(t, "it is missed", func() bool {
		s := l.Status()
		return s.Interfaces[1].Mode == "off" && len(s.Astray) > 0 && strings.Contains(s.Astray[0], "interface lb1 is gone")
	})
	add()
	eventually(t, "it has the programs", func() bool {
		s := l.Status()
		return s.Interfaces[1].Mode == "native" && s.Interfaces[1].Egress == "tcx" && len(s.Astray) == 0
	})
	w.forwarded(1000)
}

// A balancer that cannot look, having no descriptor left, takes nothing to be gone.
func TestLookingFails(t *testing.T) {
	w := newWired(t)
	l := w.open(w.options())
	w.mustApply(l, assignment(1, 11))
	undo := kerneltest.OneDescriptor(t) // for the namespace to come back to
	l.tend()
	undo()
	s := l.Status()
	if len(s.Astray) != 1 || !strings.Contains(s.Astray[0], "too many open files") || s.Interfaces[0].Mode != "native" || s.Interfaces[0].Egress != "tcx" {
		t.Errorf("status %+v, %q", s.Interfaces, s.Astray)
	}
}
