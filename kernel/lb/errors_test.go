package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/kernel"
)

// What cannot be opened says where and what to do, and leaves nothing behind.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	for want, change := range map[string]func(*Options){
		"interface nosuch0: there is none": func(o *Options) { o.Interfaces = []string{"lb0", "nosuch0"} },
		"no interface to attach to":        func(o *Options) { o.Interfaces = nil },
		"is not on a bpffs":                func(o *Options) { o.PinDir = t.TempDir() },
		"limits.server_lines 300000: out":  func(o *Options) { o.Limits.ServerLines = 300000 },
		"limits.flows 3: out of range":     func(o *Options) { o.Limits.Flows = 3 },
		`balancer name "a/b"`:              func(o *Options) { o.PinDir, o.Name = "", "a/b" },
		"wrong address family":             func(o *Options) { o.Source6 = netip.MustParsePrefix("10.0.0.0/8") },
	} {
		o := w.options()
		change(&o)
		_, err := w.tryOpen(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
	if _, err := os.Stat(w.pinDir); err == nil {
		t.Error("a failed start left its pin folder")
	}
}

// Another XDP program on the second interface: the first is let go of again.
func TestOpenUndoes(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "lb1peer"}))
		up("lb1")
		pass := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}))
		l := must(link.AttachXDP(link.XDPOptions{Program: pass, Interface: must(netlink.LinkByName("lb1")).Attrs().Index}))
		t.Cleanup(func() { l.Close(); pass.Close() })
	})
	o := w.options()
	o.Interfaces = []string{"lb0", "lb1"}
	_, err := w.tryOpen(o)
	if err == nil || !strings.Contains(err.Error(), "interface lb1: attach XDP") || !strings.Contains(err.Error(), "another XDP program") {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(w.pinDir); err == nil {
		t.Error("a failed start left its pin folder")
	}
	eventually(t, "lb0 is free again", func() bool {
		mode := ""
		inNS(t, w.lb, func() { mode = kernel.XDPMode(must(netlink.LinkByName("lb0"))) })
		return mode == "off"
	})
}

// One process at a time.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if _, err := w.tryOpen(w.options()); err == nil || !strings.Contains(err.Error(), "in use by another fairlead") {
		t.Errorf("a second owner: %v", err)
	}
	if err := Unload(w.pinDir); err == nil || !strings.Contains(err.Error(), "in use by another fairlead") {
		t.Errorf("unload beside an owner: %v", err)
	}
	l.Close()
	if err := Unload(w.pinDir); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(w.pinDir); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("after unload: %v", err)
	}
	inNS(t, w.lb, func() {
		if m := kernel.XDPMode(must(netlink.LinkByName("lb0"))); m != "off" {
			t.Errorf("after unload XDP is %s", m)
		}
	})
}

// An interface that leaves the configuration is let go of.
func TestInterfaceLeaves(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1.7"}, PeerName: "lb1peer"}))
		up("lb1.7")
	})
	o := w.options()
	o.Interfaces = []string{"lb0", "lb1.7"}
	l := w.open(o)
	w.apply(l, 11)
	if s := l.Status().Interfaces; len(s) != 2 || s[1].Mode != "native" || s[1].Egress != "tcx" {
		t.Errorf("interfaces %+v", s)
	}
	l.Close()
	w.open(w.options())
	inNS(t, w.lb, func() {
		if m := kernel.XDPMode(must(netlink.LinkByName("lb1.7"))); m != "off" {
			t.Errorf("lb1.7 still runs XDP, %s", m)
		}
	})
	w.forwarded(1000)
}

// The interface is deleted and made again while no process runs: its pinned
// link names nothing, and the next process attaches anew.
func TestInterfaceReplaced(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "lb1peer"}))
	})
	o := w.options()
	o.Interfaces = []string{"lb0", "lb1"}
	l := w.open(o)
	l.Close()
	inNS(t, w.lb, func() {
		check(netlink.LinkDel(must(netlink.LinkByName("lb1"))))
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "lb1peer"}))
	})
	l = w.open(o)
	if s := l.Status().Interfaces; s[1].Mode != "native" {
		t.Errorf("interfaces %+v", s)
	}
}

// Without privileges there is one line with the remedy. The test runs itself
// as nobody.
func TestUnprivileged(t *testing.T) {
	if os.Getenv("FAIRLEAD_TEST_UNPRIVILEGED") != "" {
		_, err := Open(Options{Name: "fl-dp-nobody", Interfaces: []string{"lo"}, Limits: config.DefaultLimits()}, testLog(t))
		fmt.Printf("ERROR %v\n", err)
		return
	}
	binary := filepath.Join(os.TempDir(), fmt.Sprintf("fl-dp-test-%d", os.Getpid()))
	copied, err := os.ReadFile(must(os.Executable()))
	check(err)
	check(os.WriteFile(binary, copied, 0o755))
	t.Cleanup(func() { os.Remove(binary) })
	c := exec.Command(binary, "-test.run=^TestUnprivileged$", "-test.v")
	c.Dir, c.Env = "/", append(os.Environ(), "FAIRLEAD_TEST_UNPRIVILEGED=1")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ERROR ") || !strings.Contains(string(out), "run as root") {
		t.Errorf("%v: %s", err, out)
	}
	t.Log(string(out))
}
