package router

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/wire"
)

// The wires of these tests:
//
//	namespace of the net          namespace of the router
//	in  ◀────────veth────────▶    in0    (frames are sent here)
//	out0, out1 ◀─veth────────▶    out0, out1
type wires struct {
	t           *testing.T
	router, net string
	pinDir      string
	in          int            // packet socket on the net's `in`
	out         [2]int         // on its out0 and out1
	index       map[string]int // of the router's devices
	mac         map[string]wire.MAC
	sent        uint64
}

func newWires(t *testing.T) *wires {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads programs: run it as root")
	}
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	w := &wires{t: t, router: "fl-rt-" + name + "-r", net: "fl-rt-" + name + "-n", index: map[string]int{}, mac: map[string]wire.MAC{},
		pinDir: filepath.Join(kernel.Root, "fairlead", "fl-rt-"+name)}
	w.must(kernel.Ensure(w.pinDir))
	w.must(Unload(w.pinDir)) // of a run that was killed
	for _, ns := range []string{w.router, w.net} {
		w.must(netspace.Delete(ns))
		w.must(netspace.Create(ns))
		t.Cleanup(func() { w.must(netspace.Delete(ns)) })
	}
	t.Cleanup(func() { w.must(Unload(w.pinDir)) })
	w.must(netspace.In(w.router, func() error { return netspace.Sysctl("net.ipv6.conf.default.disable_ipv6", "1") }))
	w.must(netspace.In(w.net, func() error { return netspace.Sysctl("net.ipv6.conf.default.disable_ipv6", "1") }))
	w.in = w.plug("in0", "in")
	for i, d := range []string{"out0", "out1"} {
		w.out[i] = w.plug(d, d)
	}
	return w
}

func (w *wires) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// plug joins a device of the router and one of the net, and gives a packet
// socket on the latter.
func (w *wires) plug(device, peer string) (socket int) {
	w.t.Helper()
	w.must(netspace.In(w.net, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: peer}, PeerName: "peer-" + device})
	}))
	w.must(netspace.In(w.net, func() error {
		to, err := netnsHandle(w.router)
		if err != nil {
			return err
		}
		defer unix.Close(to)
		l, err := netlink.LinkByName("peer-" + device)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(l, device+"r"); err != nil {
			return err
		}
		if err := netlink.LinkSetNsFd(l, to); err != nil {
			return err
		}
		end, err := netlink.LinkByName(peer)
		if err != nil {
			return err
		}
		if err := errors.Join(netspace.AttachPass(end), netlink.LinkSetUp(end)); err != nil {
			return err
		}
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { unix.Close(socket) })
		return errors.Join(unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: end.Attrs().Index}),
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}))
	}))
	w.must(netspace.In(w.router, func() error {
		l, err := netlink.LinkByName(device + "r")
		if err != nil {
			return err
		}
		w.must(netlink.LinkSetName(l, device))
		w.index[device], w.mac[device] = l.Attrs().Index, wire.MAC(l.Attrs().HardwareAddr)
		return netlink.LinkSetUp(l)
	}))
	return socket
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func netnsHandle(name string) (int, error) {
	return unix.Open(filepath.Join("/run/netns", name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// tables send 203.0.113.0/24 out by these of the two hops.
func (w *wires) tables(usable ...bool) Tables {
	t := Tables{Ports: []int{0, 1}, Devices: []Device{{Ifindex: w.index["in0"], Name: "in0", MAC: w.mac["in0"], IPv4: true}}}
	var g Group
	for i, d := range []string{"out0", "out1"} {
		h := Hop{ID: HopID{w.index[d], netip.AddrFrom4([4]byte{10, 9, byte(i), 1})}, Ifindex: w.index[d], Source: w.mac[d],
			MAC: wire.MAC{2, 2, 0, 0, 0, byte(i)}, MTU: 1500, Port: i, Usable: usable[i], Redirect: true}
		t.Hops, g = append(t.Hops, h), append(g, Member{h.ID, 1})
	}
	t.Groups = []Group{g}
	t.Routes = []Route{{netip.MustParsePrefix("203.0.113.0/24"), Forward, 0}}
	return t
}

func (w *wires) options() Options {
	return Options{Name: "leaf1", PinDir: w.pinDir, Selector: rigSelector(w.t, pathsel.Config{Key: [16]byte{9}})}
}

// open is Open in the router's namespace, closed when the test ends.
func (w *wires) open(o Options) *Plane {
	w.t.Helper()
	p, err := w.tryOpen(o)
	w.must(err)
	w.t.Cleanup(func() { p.Close() })
	return p
}

func (w *wires) tryOpen(o Options) (p *Plane, err error) {
	_ = netspace.In(w.router, func() error { p, err = Open(o, slog.New(slog.DiscardHandler)); return nil })
	return p, err
}

func (w *wires) apply(p *Plane, t Tables) error {
	return netspace.In(w.router, func() error { return p.Apply(t) })
}

// tend looks until nothing is missing.
func (w *wires) tend(p *Plane) {
	w.t.Helper()
	well := netspace.WaitFor(10*time.Second, func() bool {
		w.must(netspace.In(w.router, func() error { p.Tend(); return nil }))
		return p.Status().Astray == "" && !kernel.Missing(filepath.Join(w.pinDir, kernel.DirLinks, linkPin(w.index["in0"])))
	})
	if !well {
		w.t.Fatalf("not put back: %+v", p.Status())
	}
}

// send sends a packet with a number of its own.
func (w *wires) send() {
	w.t.Helper()
	w.sent++
	src := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(1024+w.sent%60000))
	frame := wire.UDP{Src: src, Dst: server4, Link: wire.Link{Dst: w.mac["in0"]}, Payload: binary.BigEndian.AppendUint64(nil, w.sent)}.Frame()
	if _, err := unix.Write(w.in, frame); err != nil {
		w.t.Error(err)
	}
}

// receive reads what comes out by either way until it has n packets, or, where
// some are missing, half a second has gone by without one.
func (w *wires) receive(n int) (by [2]int) {
	b := make([]byte, 2048)
	for last := time.Now(); by[0]+by[1] < n && time.Since(last) < 500*time.Millisecond; {
		for i, s := range w.out {
			k, from, err := unix.Recvfrom(s, b, unix.MSG_DONTWAIT)
			if ll, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING || k < 50 {
				continue
			}
			if b[5] == byte(i) && b[0] == 2 && b[22] == 63 {
				by[i]++
				last = time.Now()
			}
		}
	}
	return by
}

// passes sends packets and counts those that come out.
func (w *wires) passes(n int) [2]int {
	for range n {
		w.send()
	}
	return w.receive(n)
}

// TestLife: attached, closed, adopted, unloaded.
func TestLife(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	if s := p.Status(); s.Adopted || s.Running {
		t.Errorf("fresh: %+v", s)
	}
	w.must(w.apply(p, w.tables(true, true)))
	if by := w.passes(64); by[0]+by[1] != 64 || by[0] == 0 || by[1] == 0 {
		t.Fatalf("of 64 packets %v came out", by)
	}
	var s PlaneStatus
	w.must(netspace.In(w.router, func() error { s = p.Status(); return nil }))
	if len(s.Devices) != 1 || s.Devices[0].Name != "in0" || s.Devices[0].Mode != "native" || !s.Running {
		t.Errorf("status %+v", s)
	}
	if _, err := w.tryOpen(w.options()); err == nil || !strings.Contains(err.Error(), "in use by another") {
		t.Errorf("a second one: %v", err)
	}
	p.Close()
	if _, err := p.Counters(); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Fatalf("closed: of 64 packets %v came out", by)
	}
	// Another selector: the program is replaced, its maps go on.
	o := w.options()
	o.Selector = rigSelector(t, pathsel.Config{Key: [16]byte{8}, Permutation: pathsel.RC5})
	p = w.open(o)
	if s := p.Status(); !s.Adopted || s.Running {
		t.Errorf("adopted: %+v", s)
	}
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Fatalf("adopted, before Apply: of 64 packets %v came out", by)
	}
	w.must(w.apply(p, w.tables(true, false)))
	if by := w.passes(64); by != [2]int{64, 0} {
		t.Fatalf("one hop down: of 64 packets %v came out", by)
	}
	c, err := p.Counters()
	w.must(err)
	if c.Ways.Total() != 4*64 || c.Ways.Single != 64 || c.Bytes == 0 {
		t.Errorf("counters %+v of 256 packets", c.Ways)
	}
	p.Close()
	w.must(Unload(w.pinDir))
	if _, err := os.Stat(w.pinDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of pins: %v", err)
	}
	if by := w.passes(8); by != [2]int{} {
		t.Errorf("unloaded: of 8 packets %v came out", by)
	}
}

// TestOtherForm: maps of another layout go on until new ones are filled.
func TestOtherForm(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	w.must(w.apply(p, w.tables(true, true)))
	w.must(p.set.Maps[mapMeta].Put(uint32(0), uint32(bpf.RouterLayout+1)))
	before := p.set.dir
	p.Close()
	// What a process that was killed left in the other folder is no obstacle.
	other := filepath.Join(w.pinDir, setDirs[1])
	if before == other {
		other = filepath.Join(w.pinDir, setDirs[0])
	}
	w.must(os.MkdirAll(filepath.Join(other, kernel.DirMaps), 0o700))
	p = w.open(w.options())
	if p.Status().Adopted {
		t.Error("adopted what has another layout")
	}
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Fatalf("before Apply: of 64 packets %v came out", by)
	}
	w.must(w.apply(p, w.tables(false, true)))
	if by := w.passes(64); by != [2]int{0, 64} {
		t.Fatalf("after: of 64 packets %v came out", by)
	}
	if _, err := os.Stat(before); !errors.Is(err, os.ErrNotExist) || p.set.dir != other {
		t.Errorf("set before at %s: %v; now %s", before, err, p.set.dir)
	}
}

// TestNothingLost: while tables change under it, and the program is replaced,
// every packet comes out.
func TestNothingLost(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	w.must(w.apply(p, w.tables(true, true)))
	stop, done, sent, came := make(chan bool), make(chan bool), 0, 0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default: // few at a time, for which there is room everywhere
				by := w.passes(32)
				sent, came = sent+32, came+by[0]+by[1]
			}
		}
	}()
	for i := range 200 {
		tables := w.tables(i%3 > 0, i%3 < 2)
		tables.Hops[i%2].MAC[4] = byte(i)
		tables.Groups[0][i%2].Weight = 1 + i%5
		w.must(w.apply(p, tables))
		if i%50 == 49 {
			p.Close()
			p = w.open(w.options())
		}
	}
	w.must(w.apply(p, w.tables(true, true)))
	close(stop)
	<-done
	if came != sent {
		t.Errorf("of %d packets %d came out", sent, came)
	}
	c, err := p.Counters()
	w.must(err)
	if c.Ways.Total() != uint64(sent) {
		t.Errorf("%d packets are counted, of %d", c.Ways.Total(), sent)
	}
	t.Logf("%d packets", sent)
}

// TestDetachedOutside: a link that somebody takes away is back with the next
// Apply.
func TestDetachedOutside(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	tables := w.tables(true, true)
	w.must(w.apply(p, tables))
	w.detach("in0")
	if by := w.passes(8); by != [2]int{} {
		t.Fatalf("detached: of 8 packets %v came out", by)
	}
	w.must(w.apply(p, tables))
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Errorf("of 64 packets %v came out", by)
	}
}

// TestTend: whatever somebody takes away is back without new tables.
func TestTend(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	w.must(w.apply(p, w.tables(true, true)))
	w.detach("in0")
	w.must(os.RemoveAll(w.pinDir))
	w.tend(p)
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Errorf("of 64 packets %v came out", by)
	}
	p.Close()
	if p = w.open(w.options()); !p.Status().Adopted {
		t.Error("nothing to adopt after pins were removed")
	}
	if by := w.passes(16); by[0]+by[1] != 16 {
		t.Errorf("the next process: of 16 packets %v came out", by)
	}
}

// TestPinsRemoved: pins that somebody removes are back with the next Apply, and
// the process after finds them.
func TestPinsRemoved(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	tables := w.tables(true, true)
	w.must(w.apply(p, tables))
	for _, remove := range []string{kernel.DirLinks, filepath.Base(p.set.dir), filepath.Join(filepath.Base(p.set.dir), kernel.DirMaps, bpf.RouterMapHops)} {
		w.must(os.RemoveAll(filepath.Join(w.pinDir, remove)))
		w.must(w.apply(p, tables))
		if by := w.passes(16); by[0]+by[1] != 16 {
			t.Errorf("%s removed: of 16 packets %v came out", remove, by)
		}
		p.Close()
		if by := w.passes(16); by[0]+by[1] != 16 {
			t.Errorf("%s removed, and closed: of 16 packets %v came out", remove, by)
		}
		if p = w.open(w.options()); !p.Status().Adopted {
			t.Errorf("%s removed: nothing to adopt", remove)
		}
		w.must(w.apply(p, tables))
	}
}

// TestReplaceFails: a device whose program cannot be replaced is the kernel's,
// not that of a program that nobody keeps up, and is tried again.
func TestReplaceFails(t *testing.T) {
	w := newWires(t)
	p := w.open(w.options())
	tables := w.tables(true, true)
	w.must(w.apply(p, tables))
	p.Close()
	p = w.open(w.options())
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	w.must(err)
	defer other.Close()
	program := p.set.program()
	p.set.Programs[bpf.RouterProgRouter] = other // no link takes it
	var failed *AttachError
	if err := w.apply(p, tables); !errors.As(err, &failed) || !strings.Contains(err.Error(), "in0") {
		t.Errorf("error %v", err)
	}
	p.set.Programs[bpf.RouterProgRouter] = program
	if by := w.passes(8); by != [2]int{} {
		t.Errorf("of 8 packets %v came out by the program before", by)
	}
	w.must(w.apply(p, tables))
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Errorf("of 64 packets %v came out", by)
	}
}

// TestAttachError: a device that another program holds is named, all others
// are in force; once it is free, the next Apply takes it.
func TestAttachError(t *testing.T) {
	w := newWires(t)
	device := func(name string) Device {
		return Device{Ifindex: w.index[name], Name: name, MAC: w.mac[name], IPv4: true}
	}
	set := func(fd int) error {
		return netspace.In(w.router, func() error {
			l, err := netlink.LinkByName("out1")
			if err == nil && fd < 0 {
				err = netlink.LinkSetXdpFd(l, fd)
			} else if err == nil {
				err = netspace.AttachPass(l)
			}
			return err
		})
	}
	w.must(set(0))
	p := w.open(w.options())
	tables := w.tables(true, true)
	tables.Devices = append(tables.Devices, device("out1"), device("out0"))
	err := w.apply(p, tables)
	var failed *AttachError
	if !errors.As(err, &failed) || len(failed.Devices) != 1 || failed.Devices[0] != "out1" || !strings.Contains(err.Error(), "ip link set dev out1 xdp off") {
		t.Fatalf("error %v", err)
	}
	if by := w.passes(64); by[0]+by[1] != 64 {
		t.Fatalf("of 64 packets %v came out", by)
	}
	w.must(set(-1))
	w.must(w.apply(p, tables))
	// A device that is gone, and one that nothing is routed from any more.
	w.must(netspace.In(w.router, func() error {
		l, err := net.InterfaceByName("out0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.Index, Name: "out0"}})
	}))
	tables.Devices = tables.Devices[:1]
	w.must(w.apply(p, tables))
	pins, err := os.ReadDir(filepath.Join(w.pinDir, kernel.DirLinks))
	if err != nil || len(pins) != 1 {
		t.Errorf("pins of links %v, %v", pins, err)
	}
}
