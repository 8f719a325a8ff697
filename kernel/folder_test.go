package kernel

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netns"
)

// loopback is every network namespace's own.
const loopback = 1

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// rig is a folder of pins and a network namespace of its own.
type rig struct {
	*testing.T
	dir string
}

func newRig(t *testing.T) *rig {
	if os.Geteuid() != 0 {
		t.Fatal("this test loads BPF programs: run it as root")
	}
	check(rlimit.RemoveMemlock())
	runtime.LockOSThread() // the thread ends with the test, as it is in another namespace
	space := must(netns.New())
	t.Cleanup(func() { space.Close() })
	r := &rig{t, Dir("fl-kernel-" + strings.ToLower(t.Name()))}
	check(Unload(r.dir)) // of a run that was killed
	t.Cleanup(func() { check(Unload(r.dir)) })
	return r
}

// program returns XDP_PASS.
func (r *rig) program() *ebpf.Program {
	p := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}))
	r.Cleanup(func() { p.Close() })
	return p
}

func (r *rig) claim() *Folder { return must(Claim(r.dir, slog.New(slog.DiscardHandler))) }

// place is p on the loopback.
func place(p, before *ebpf.Program) Place {
	return Place{Pin: "xdp-lo", At: loopback, Program: p, Before: before, Attach: func(patience time.Duration) (link.Link, error) {
		return AttachXDP(p, loopback, "lo", patience, slog.New(slog.DiscardHandler))
	}}
}

// runs says which program is pinned as running.
func (r *rig) runs(want *ebpf.Program) {
	r.Helper()
	id := ebpf.ProgramID(0)
	if want != nil {
		id = ProgramID(want)
	}
	if got := must(Running(r.dir)); got != id {
		r.Errorf("program %d runs, want %d", got, id)
	}
}

func (r *rig) detach() {
	l := must(link.LoadPinnedLink(filepath.Join(r.dir, DirLinks, "xdp-lo"), nil))
	defer l.Close()
	check(l.Detach())
}

// A program is attached, outlives its daemon, is switched over by the next, and is
// put back whatever somebody takes away.
func TestHold(t *testing.T) {
	r := newRig(t)
	one, two := r.program(), r.program()
	f := r.claim()
	if _, err := Claim(r.dir, slog.Default()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("claimed twice: %v", err)
	}
	check(f.Hold(place(one, nil)))
	check(f.Settle(f.Holds))
	f.Close()
	r.runs(one)
	// Killed between pinning and renaming.
	path := filepath.Join(r.dir, DirLinks, "xdp-lo")
	check(os.Rename(path, path+PinNew))
	f = r.claim()
	defer func() { f.Close() }()
	if f.Fresh {
		t.Error("a folder with a program that runs counts as fresh")
	}
	check(f.Hold(place(two, one)))
	check(f.Settle(f.Holds))
	r.runs(two)
	r.detach()
	if !f.Detached() || f.There("xdp-lo", loopback) {
		t.Error("it is not missed")
	}
	check(f.Hold(place(two, nil)))
	if f.Detached() || !f.There("xdp-lo", loopback) {
		t.Error("it is not back")
	}
	s := &Set{map[string]*ebpf.Map{}, map[string]*ebpf.Program{"two": two}}
	check(os.RemoveAll(r.dir))
	check(errors.Join(f.Keep(s, r.dir), f.Hold(place(two, nil))))
	r.runs(two)
	if !s.Pinned(r.dir) {
		t.Error("the program is not pinned again")
	}
}

// A start that fails changes nothing: the program before runs again, and where there
// was none there is none.
func TestAbandon(t *testing.T) {
	r := newRig(t)
	one, two := r.program(), r.program()
	f := r.claim()
	check(f.Hold(place(one, nil)))
	f.Abandon()
	f.Close()
	if !Missing(r.dir) {
		t.Error("a failed first start left its folder")
	}
	if at := XDPAt(loopback); at != "" {
		t.Errorf("%s is still there", at)
	}
	f = r.claim()
	check(f.Hold(place(one, nil)))
	check(f.Settle(f.Holds))
	f.Close()
	f = r.claim()
	check(f.Hold(place(two, one)))
	r.runs(two)
	f.Abandon()
	f.Close()
	r.runs(one)
}

// What is nobody's any more is detached, and Unload leaves nothing.
func TestSettle(t *testing.T) {
	r := newRig(t)
	f := r.claim()
	check(f.Hold(place(r.program(), nil)))
	check(f.Settle(f.Holds))
	f.Close()
	f = r.claim()
	check(f.Settle(func(string) bool { return false }))
	r.runs(nil)
	if at := XDPAt(loopback); at != "" {
		t.Errorf("%s is still there", at)
	}
	check(f.Hold(place(r.program(), nil)))
	if err := Unload(r.dir); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("unloaded beside an owner: %v", err)
	}
	f.Close()
	asked := false
	check(Unload(r.dir, func() error { asked = true; return nil }))
	if !asked || !Missing(r.dir) || XDPAt(loopback) != "" {
		t.Error("something is left")
	}
	check(Unload(r.dir, func() error { return errors.New("nothing is there to undo") }))
	if err := Unload(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not on a bpffs") {
		t.Errorf("a folder elsewhere: %v", err)
	}
}
