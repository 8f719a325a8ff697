package lb

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// The rig of these tests:
//
//	namespace of the balancer                namespace of the net
//	lb0 10.77.0.2/24, fd77::2/64 ◀─ veth ─▶ net0 10.77.0.1/24, fd77::1/64
//	                                             servers 10.77.0.11 to .19, fd77::11 to ::19
//
// Frames are sent on net0 to the balancer and captured there when they come
// back; a program that passes everything sits on net0, without which veth
// drops what XDP_TX returns.
type wired struct {
	t       *testing.T
	lb, net netns.NsHandle
	pinDir  string
	lbMAC   wire.MAC
	netMAC  wire.MAC
	send    int // packet socket on net0
	// receiver is the packet socket that receive reads: net0's, or that of
	// the device given to capture last.
	receiver int
}

const (
	wiredVIP    = "192.0.2.1"
	wiredClient = "198.51.100.7"
)

// inNS runs f in a namespace, on a thread that is thrown away after.
func inNS(t testing.TB, ns netns.NsHandle, f func()) {
	t.Helper()
	done := make(chan any)
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				done <- r
			}
		}()
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			panic(err)
		}
		f()
	}()
	if r := <-done; r != nil {
		t.Fatal(r)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newNS(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads programs: run it as root")
	}
	var ns netns.NsHandle
	var err error
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread goes with the goroutine
		ns, err = netns.New()
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func newWired(t *testing.T) *wired {
	w := &wired{t: t, lb: newNS(t), net: newNS(t)}
	w.pinDir = filepath.Join(kernel.Root, "fairlead", "fl-dp-"+strings.NewReplacer("/", "-", ".", "-").Replace(t.Name()))
	check(kernel.Ensure(w.pinDir))
	check(Unload(w.pinDir)) // of a run that was killed
	t.Cleanup(func() {
		if err := Unload(w.pinDir); err != nil {
			t.Error(err)
		}
	})
	inNS(t, w.lb, func() {
		quiet()
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb0"}, PeerName: "net0", PeerNamespace: netlink.NsFd(w.net)}))
		w.lbMAC = up("lb0", "10.77.0.2/24", "fd77::2/64")
		check(netlink.LinkSetUp(must(netlink.LinkByName("lo"))))
	})
	inNS(t, w.net, func() {
		quiet()
		addrs := []string{"10.77.0.1/24", "fd77::1/64"}
		for i := 11; i < 20; i++ {
			addrs = append(addrs, fmt.Sprintf("10.77.0.%d/24", i), fmt.Sprintf("fd77::%d/64", i))
		}
		w.netMAC = up("net0", addrs...)
		w.send = w.capture("net0")
	})
	return w
}

// capture makes a device take frames from XDP_TX and XDP_REDIRECT on the other
// side, and receive from it. To be called in the device's namespace.
func (w *wired) capture(dev string) (socket int) {
	index := must(net.InterfaceByName(dev)).Index
	pass := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}))
	l := must(link.AttachXDP(link.XDPOptions{Program: pass, Interface: index, Flags: link.XDPDriverMode}))
	socket = must(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))))
	check(unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index}))
	check(unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000}))
	w.t.Cleanup(func() { l.Close(); pass.Close(); unix.Close(socket) })
	w.receiver = socket
	return socket
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// quiet keeps the kernel from sending what no test asked for, and addresses
// usable at once.
func quiet() {
	for _, w := range []string{"all", "default"} {
		check(os.WriteFile("/proc/sys/net/ipv6/conf/"+w+"/accept_dad", []byte("0"), 0))
		check(os.WriteFile("/proc/sys/net/ipv6/conf/"+w+"/router_solicitations", []byte("0"), 0))
	}
}

// up brings a device up with addresses and returns its MAC.
func up(name string, addrs ...string) wire.MAC {
	l := must(netlink.LinkByName(name))
	for _, a := range addrs {
		addr := must(netlink.ParseAddr(a))
		addr.Flags = unix.IFA_F_NODAD
		check(netlink.AddrAdd(l, addr))
	}
	check(netlink.LinkSetUp(l))
	return wire.MAC(l.Attrs().HardwareAddr)
}

func (w *wired) options() Options {
	return Options{Name: "test", PinDir: w.pinDir, Interfaces: []string{"lb0"},
		Source4: netip.MustParsePrefix("10.88.0.0/16"), Source6: netip.MustParsePrefix("fd88::/64"),
		Limits: config.Limits{ServerLines: 256, TableEntries: 1 << 17, Flows: 1024, Seats: 1024, RateSources: 256, AskRate: 100}}
}

// open opens the balancer in its namespace; it is closed when the test ends.
func (w *wired) open(o Options) *LB {
	w.t.Helper()
	l, err := w.tryOpen(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

func (w *wired) tryOpen(o Options) (l *LB, err error) {
	inNS(w.t, w.lb, func() { l, err = Open(o, testLog(w.t)) })
	return l, err
}

// run runs the balancer's watchers until the test ends or stop is called.
func (w *wired) run(l *LB) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(testWriter{t}, nil)) }

// assignment is one TCP VIP with servers 10.77.0.N in slots 0, 1, ….
func assignment(version uint64, servers ...int) *controller.Assignment {
	v := controller.VIP{
		ID:       1,
		Settings: vip.Settings{Name: "web", Address: netip.MustParseAddr(wiredVIP), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "rr", Affinity: "connection", Forwarding: "ipip", CookieBits: 12, Fragments: "drop", ICMPEcho: true},
	}
	for i, n := range servers {
		if n == 0 {
			continue // the slot is free
		}
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: fmt.Sprintf("s%d", n),
			Address: netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}), Weight: 1, State: controller.Active})
	}
	return &controller.Assignment{Version: version, Keys: []controller.Key{{Epoch: 0, Secret: []byte("0123456789abcdef")}},
		HashKey: hash.Key{1, 2}, VIPs: []controller.VIP{v}}
}

// syn is a client's first packet to the VIP.
func (w *wired) syn(port uint16) []byte {
	return wire.TCP{Link: wire.Link{Src: w.netMAC, Dst: w.lbMAC},
		Src: netip.AddrPortFrom(netip.MustParseAddr(wiredClient), port), Dst: netip.AddrPortFrom(netip.MustParseAddr(wiredVIP), 80),
		Flags: wire.SYN, Options: wire.SYNOptions(1460, 1000)}.Frame()
}

// transmit puts a frame on the wire to the balancer.
func (w *wired) transmit(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.send, frame); err != nil {
		w.t.Fatal(err)
	}
}

// receive waits for a frame that want accepts, at most limit.
func (w *wired) receive(limit time.Duration, want func(frame []byte) bool) []byte {
	b := make([]byte, 65536)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(w.receiver, b, 0)
		if err != nil {
			continue // the time limit of one read
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if want(b[:n]) {
			return append([]byte(nil), b[:n]...)
		}
	}
	return nil
}

// forwarded sends a SYN until it comes back through a tunnel, and returns the
// outer destination.
func (w *wired) forwarded(port uint16) (netip.Addr, []byte) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		w.transmit(w.syn(port))
		var to netip.Addr
		f := w.receive(200*time.Millisecond, func(f []byte) bool {
			inner, o, err := wire.Decapsulate(f[wire.EthernetLen:])
			if err != nil {
				return false
			}
			p := wire.ParsePacket(inner)
			to = o.Dst
			return p.Err == nil && p.SrcPort == port
		})
		if f != nil {
			return to, f
		}
	}
	w.t.Fatal("the SYN was not forwarded")
	return netip.Addr{}, nil
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 10 s: %s", what)
}
