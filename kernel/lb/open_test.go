package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/wire"
)

func (c Counters) reason(name string) uint64 {
	for _, r := range c.Reasons {
		if r.Name == name {
			return r.Packets
		}
	}
	return 0
}

func (w *wired) counters(l *LB) Counters {
	w.t.Helper()
	c, err := l.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *wired) apply(l *LB, servers ...int) {
	w.t.Helper()
	w.t.Logf("apply %v", servers)
	if _, err := l.Apply(assignment(1, servers...), nil); err != nil {
		w.t.Fatal(err)
	}
}

// From nothing to a packet that comes out encapsulated to a server whose MAC
// nobody typed.
func TestOpenApplyForward(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	w.apply(l, 11, 12)
	seen := map[netip.Addr]bool{}
	for port := range uint16(8) {
		to, _ := w.forwarded(1000 + port)
		seen[to] = true
	}
	if len(seen) != 2 {
		t.Errorf("round robin over two servers reached %v", seen)
	}
	c := w.counters(l)
	if n := c.reason("forward_new"); n < 8 {
		t.Errorf("forward_new %d, want 8 or more", n)
	}
	if len(c.VIPs) != 1 || len(c.VIPs[0].Servers) != 2 || c.VIPs[0].Packets < 8 || c.VIPs[0].NewConnections < 8 {
		t.Errorf("counters %+v", c.VIPs)
	}
	s := l.Status()
	t.Logf("%+v", s)
	if s.Interfaces[0].Mode != "native" || s.HZ == 0 {
		t.Errorf("status %+v", s)
	}
}

// Packets go on while no process holds anything, and the next one adopts what
// it finds, counters included.
func TestAdopt(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	d, _ := l.ClockBase()
	w.apply(l, 11, 12)
	w.forwarded(1000)
	l.Close()

	for port := range uint16(10) {
		w.forwarded(2000 + port)
	}
	l = w.open(w.options())
	if !l.Status().Adopted {
		t.Error("not adopted")
	}
	if got, ok := l.ClockBase(); !ok || got != d {
		t.Errorf("clock base %d %v, want %d", got, ok, d)
	}
	if n := w.counters(l).VIPs[0].NewConnections; n < 11 {
		t.Errorf("%d new connections counted, want 11 or more", n)
	}
	// What is pinned of the clock is damaged, and put back; a server line that is, on
	// one CPU, is written anew.
	line, ok := l.Line(1, 0)
	var cpus []bpf.Line
	if err := errors.Join(l.set.putMeta(func(m *metaRecord) { m.ClockD ^= 1 << 20 }), l.set.Maps[mapLines].Lookup(line, &cpus)); err != nil || !ok {
		t.Fatal(err, ok)
	}
	whole := cpus[len(cpus)-1]
	cpus[len(cpus)-1].Addr[0] ^= 1 << 5
	if err := l.set.Maps[mapLines].Put(line, cpus); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = w.open(w.options())
	if got, _ := l.ClockBase(); got == d {
		t.Error("the clock is not damaged")
	}
	if err := l.RestoreClock(d); err != nil {
		t.Fatal(err)
	}
	w.apply(l, 11, 12)
	if err := l.set.Maps[mapLines].Lookup(line, &cpus); err != nil || len(cpus) > 1 && cpus[len(cpus)-1].Addr != whole.Addr {
		t.Errorf("the line on the last CPU has %x, had %x: %v", cpus[len(cpus)-1].Addr, whole.Addr, err)
	}
	l.Close()
	l = w.open(w.options())
	if got, ok := l.ClockBase(); !ok || got != d {
		t.Errorf("clock base %d %v after it was put back, want %d", got, ok, d)
	}
	// Nothing that was known is forgotten before an assignment comes.
	l.syncLines()
	w.forwarded(3000)
	w.apply(l, 11, 12)
	w.forwarded(3001)
	if n := w.counters(l).VIPs[0].NewConnections; n < 13 {
		t.Errorf("%d new connections counted, want 13 or more", n)
	}
}

// stream sends SYNs without pause until stop is called, each from a port of
// its own, and says how many were sent and how often each destination was
// seen.
func (w *wired) stream() (stop func() (sent int, to map[netip.Addr]int)) {
	done, result := make(chan bool), make(chan int)
	to := map[netip.Addr]int{}
	go func() {
		sent := 0
		seen := func() bool {
			return w.receive(20*time.Millisecond, func(f []byte) bool {
				_, o, err := wire.Decapsulate(f[wire.EthernetLen:])
				if err != nil {
					return false
				}
				to[o.Dst]++
				return true
			}) != nil
		}
		for {
			select {
			case <-done:
				for end := time.Now().Add(3 * time.Second); total(to) < sent && time.Now().Before(end); {
					seen()
				}
				result <- sent
				return
			default:
				if _, err := unix.Write(w.send, w.syn(uint16(sent))); err != nil {
					continue // the device's queue is full
				}
				sent++
				seen()
			}
		}
	}()
	return func() (int, map[netip.Addr]int) {
		close(done)
		return <-result, to
	}
}

func total(to map[netip.Addr]int) (n int) {
	for _, c := range to {
		n += c
	}
	return n
}

// A new program takes the old one's place under load without losing a packet.
func TestUpdateProgram(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11, 12)
	w.forwarded(1000)
	before := w.linkProgram()
	stop := w.stream()
	for i := range 5 {
		l.Close()
		o := w.options()
		o.Source4 = netip.MustParsePrefix("10.99.0.0/24") // a constant of the program
		o.GUEChecksum6 = i%2 == 0
		l = w.open(o)
	}
	sent, to := stop()
	if sent < 100 || total(to) != sent {
		t.Errorf("%d of %d packets came back while the program was replaced", total(to), sent)
	}
	if after := w.linkProgram(); after == before {
		t.Error("the link still runs the program of the first process")
	}
	_, f := w.forwarded(5000)
	if src := wire.Parse(f).Src; !netip.MustParsePrefix("10.99.0.0/24").Contains(src) {
		t.Errorf("outer source %v is not of the new program's prefix", src)
	}
}

func (w *wired) linkProgram() ebpf.ProgramID {
	w.t.Helper()
	id, err := kernel.Running(w.pinDir)
	if err != nil || id == 0 {
		w.t.Fatal("no program runs: ", err)
	}
	return id
}

// Other sizes need other maps: the old ones stay in force until the new ones
// are filled, no packet is lost, counters go on.
func TestChangeOfSizes(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	d, _ := l.ClockBase()
	w.apply(l, 11, 12)
	for port := range uint16(10) {
		w.forwarded(1000 + port)
	}
	l.Close()
	stop := w.stream()
	o := w.options()
	o.Limits.ServerLines, o.Limits.TableEntries = 512, 1<<18
	l = w.open(o)
	if !l.Status().Pending {
		t.Error("status does not say that a new set is pending")
	}
	before := w.counters(l).VIPs[0].NewConnections
	w.apply(l, 11, 12, 13)
	sent, to := stop()
	if sent < 10 || total(to) != sent {
		t.Errorf("%d of %d packets came back while the maps were replaced", total(to), sent)
	}
	c := w.counters(l)
	if c.VIPs[0].NewConnections < before || c.VIPs[0].Packets < uint64(10+sent) {
		t.Errorf("counters went back: %d new before, now %+v, %d sent", before, c.VIPs[0], sent)
	}
	if got, ok := l.ClockBase(); !ok || got != d {
		t.Errorf("clock base %d %v, want %d", got, ok, d)
	}
	if s := l.Status(); s.Pending {
		t.Error("still pending")
	}
	if m := l.set.Maps[mapLines].MaxEntries(); m != 512 {
		t.Errorf("%d lines", m)
	}
	l.Close()
	l = w.open(o)
	if s := l.Status(); s.Pending || !s.Adopted {
		t.Errorf("after a restart: %+v", s)
	}
	if n := w.counters(l).VIPs[0].Packets; n < c.VIPs[0].Packets {
		t.Errorf("%d packets after a restart, %d before", n, c.VIPs[0].Packets)
	}
}

// A process that is killed anywhere inside the change of maps leaves packets
// running, and the next process puts the pins right.
func TestKilledInSwap(t *testing.T) {
	for _, killed := range []string{"pinned", "linked", "maps exchanged", "programs exchanged"} {
		t.Run(killed, func(t *testing.T) {
			w := newWired(t)
			l := w.open(w.options())
			w.apply(l, 11)
			w.forwarded(1000)
			l.Close()
			o := w.options()
			o.Limits.ServerLines = 512
			l = w.open(o)
			swapStopsAfter = killed
			defer func() { swapStopsAfter = "" }()
			if _, err := l.Apply(assignment(2, 11, 12), nil); err == nil {
				t.Fatal("the swap was not stopped")
			}
			swapStopsAfter = ""
			l.Close()
			w.forwarded(1001)
			l = w.open(o)
			if s := l.Status(); s.Pending != (killed == "pinned") {
				t.Errorf("pending %v", s.Pending)
			}
			w.forwarded(1002)
			w.apply(l, 11, 12, 13)
			w.forwarded(1003)
			if _, err := os.Stat(filepath.Join(w.pinDir, dirNext)); err == nil {
				t.Error("next is still there")
			}
			s, err := OpenReadOnly(w.pinDir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			uses, err := usesMap(s.Program(progLB), s.Map(mapLines))
			if err != nil || !uses || kernel.ProgramID(s.Program(progLB)) != w.linkProgram() {
				t.Errorf("what is pinned is not what runs: %v %v", uses, err)
			}
		})
	}
}

// A process that is killed while it pins for the first time leaves something
// that the next one makes whole, whatever is missing.
func TestKilledInFirstPinning(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	maps, programs, links := filepath.Join(w.pinDir, kernel.DirMaps), filepath.Join(w.pinDir, kernel.DirPrograms), filepath.Join(w.pinDir, kernel.DirLinks)
	remove := func(paths ...string) {
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		killed string
		remove []string
	}{
		{"some maps", []string{links, programs, filepath.Join(maps, mapMeta), filepath.Join(maps, mapLines)}},
		{"maps, no programs, and meta of an older build", []string{links, programs}},
		{"programs, no meta", []string{links, filepath.Join(maps, mapMeta)}},
		{"one link", []string{filepath.Join(links, linkPin(linkAnswers, "lb0"))}},
	} {
		t.Log(c.killed)
		l := w.open(w.options())
		l.Close()
		remove(c.remove...)
		l = w.open(w.options())
		if l.Status().Pending {
			t.Errorf("%s: pending", c.killed)
		}
		w.apply(l, 11)
		w.forwarded(1000)
		l.Close()
		remove(w.pinDir) // the last pin of a link detaches it
	}
}

// Other sizes come into force also where somebody has removed the programs'
// pins.
func TestExchangeWithNothing(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	l.Close()
	if err := os.RemoveAll(filepath.Join(w.pinDir, kernel.DirPrograms)); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Limits.ServerLines = 512
	l = w.open(o)
	w.apply(l, 11)
	w.forwarded(1000)
	if s, err := OpenReadOnly(w.pinDir); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
}

// A change of maps that fails after packets follow the new set is finished by
// the next Apply, and counts nothing twice.
func TestSwapFinishedLater(t *testing.T) {
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	for port := range uint16(5) {
		w.forwarded(1000 + port)
	}
	l.Close()
	o := w.options()
	o.Limits.ServerLines = 512
	l = w.open(o)
	before := w.counters(l).VIPs[0]
	defer func() { swapStopsAfter = "" }()
	for _, step := range []string{"linked", "maps exchanged", "programs exchanged"} {
		swapStopsAfter = step
		_, err := l.Apply(assignment(2, 11, 12), nil)
		if step == "linked" && !errors.Is(err, controller.ErrInForce) {
			t.Fatalf("stopped after %q: %v is not ErrInForce", step, err)
		}
		if err == nil {
			t.Fatalf("not stopped after %q", step)
		}
		if l.Status().Pending {
			t.Errorf("pending after %q", step)
		}
	}
	swapStopsAfter = ""
	w.apply(l, 11, 12)
	after := w.counters(l).VIPs[0]
	if b, a := before.Servers[0], after.Servers[0]; a.Packets != b.Packets || a.Opened != b.Opened || a.Open != b.Open || b.Open == 0 {
		t.Errorf("server %+v before, %+v after", b, a)
	}
	if _, err := os.Stat(filepath.Join(w.pinDir, dirNext)); err == nil {
		t.Error("next is still there")
	}
	l.Close()
	if l = w.open(o); l.Status().Pending || !l.Status().Adopted {
		t.Errorf("after a restart: %+v", l.Status())
	}
}

// What another layout left pinned keeps packets going until the first
// assignment; its clock lives on, and its counters are found by name.
func TestOtherLayout(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	d, _ := l.ClockBase()
	w.apply(l, 11)
	w.forwarded(1000)
	if err := l.set.putMeta(func(m *metaRecord) { m.Layout = bpf.Layout + 1 }); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := OpenReadOnly(w.pinDir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("layout %d", bpf.Layout+1)) {
		t.Errorf("reading another layout: %v", err)
	}
	l = w.open(w.options())
	w.run(l)
	if !l.Status().Pending {
		t.Error("not pending")
	}
	if n := len(w.counters(l).VIPs); n != 0 {
		t.Errorf("counters of %d VIPs of another layout", n)
	}
	w.forwarded(1001)
	w.apply(l, 11, 12)
	if v := w.counters(l).VIPs[0]; v.Packets < 2 || v.NewConnections < 2 || v.Servers[0].Packets < 2 {
		t.Errorf("counters after the change of layout %+v", v)
	}
	w.apply(l, 0, 12)
	if to, _ := w.forwarded(1002); to != netip.MustParseAddr("10.77.0.12") {
		t.Errorf("a packet went to %v", to)
	}
	if got, ok := l.ClockBase(); !ok || got != d {
		t.Errorf("clock base %d %v, want %d", got, ok, d)
	}
}

// A driver without native XDP gets generic XDP, and status says so.
func TestGenericMode(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
		up("br0")
	})
	o := w.options()
	o.Interfaces = []string{"lb0", "br0"}
	l := w.open(o)
	if s := l.Status().Interfaces; s[0].Mode != "native" || s[1].Mode != "generic" {
		t.Errorf("interfaces %+v", s)
	}
}

// What a process that was killed while pinning left behind is cleared up.
func TestHalfPinned(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.apply(l, 11)
	m, err := l.set.Maps[mapReasons].Clone()
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(w.pinDir, kernel.DirMaps, mapReasons+kernel.PinNew)
	if err := m.Pin(half); err != nil {
		t.Fatal(err)
	}
	m.Close()
	xdp := filepath.Join(w.pinDir, kernel.DirLinks, linkPin("xdp", "lb0"))
	l.Close()
	if err := os.Rename(xdp, xdp+kernel.PinNew); err != nil {
		t.Fatal(err)
	}
	l = w.open(w.options())
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made pin is still there")
	}
	if _, err := os.Stat(xdp); err != nil || !l.Status().Adopted {
		t.Errorf("the link was not adopted: %v", err)
	}
	w.forwarded(1000)
}

// What only shows reads the same as the daemon, beside it and without it.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	a := assignment(1, 11, 12)
	a.VIPs[0].Slots[1].Address = netip.MustParseAddr("fd77::12")
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	w.forwarded(1000)
	for _, running := range []bool{true, false} {
		s, err := OpenReadOnly(w.pinDir)
		if err != nil {
			t.Fatal(err)
		}
		vips, err := s.VIPs()
		if err != nil || len(vips) != 1 {
			t.Fatalf("%+v, %v", vips, err)
		}
		v := vips[0]
		if v.ID != 1 || v.Address != netip.MustParseAddr(wiredVIP) || v.Port != 80 || v.Protocol != wire.ProtoTCP || v.Epochs != 1 || v.Shift != 20 || v.NewSize != 2 {
			t.Errorf("VIP %+v", v)
		}
		if len(v.Servers) != 2 || v.Servers[0] != (LoadedServer{0, netip.MustParseAddr("10.77.0.11"), "ipip", true, 1480, false, false, false}) ||
			v.Servers[1].Slot != 1 || v.Servers[1].Address != netip.MustParseAddr("fd77::12") || v.Servers[1].MTU != 1460 {
			t.Errorf("servers %+v", v.Servers)
		}
		c, err := s.Counters()
		if err != nil || c.VIPs[0].NewConnections == 0 || c.VIPs[0].Servers[0].Open+c.VIPs[0].Servers[1].Open == 0 {
			t.Errorf("counters %+v, %v", c.VIPs, err)
		}
		s.Close()
		if running {
			l.Close()
		}
	}
}
