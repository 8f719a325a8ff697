package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Bounds of a capture of RSTs. A load has thousands of connections, each of
// which gets one RST or two if it breaks: more than maxResets are counted as
// missed.
const (
	maxResets  = 100_000
	resetSnap  = 128 // bytes kept of a frame: Ethernet, IPv6 and TCP headers
	resetSlack = time.Second
	// resetBuffer is what the kernel keeps, in bytes, while a busy machine
	// lets this process wait.
	resetBuffer = 8 << 20
)

// reset is a RST that came to the client.
type reset struct {
	at     time.Time
	client netip.AddrPort
	vip    netip.AddrPort
}

// resetCapture keeps the RSTs that arrive on a device. It sees them before
// the client's stack does, and also those that the stack would ignore.
type resetCapture struct {
	socket int

	mu     sync.Mutex
	resets []reset
	missed int
	// owners are who has connections, by packets to them; nil: that is not kept.
	owners map[endpoints]owner
}

// captureResets starts a capture on the calling thread's network; it ends
// with ctx. With owners SYN-ACKs are looked at, too.
func captureResets(ctx context.Context, device string, owners bool) (*resetCapture, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("capture RSTs on %s: %w", device, err)
	}
	c, flags := &resetCapture{}, int32(wire.RST)
	if owners {
		c.owners, flags = map[endpoints]owner{}, flags|wire.SYN
	}
	filter, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "fl_lab_resets", Type: ebpf.SocketFilter, License: "GPL", Instructions: resetFilter(flags)})
	if err != nil {
		return nil, fmt.Errorf("load the filter of RSTs: %w", err)
	}
	defer filter.Close()
	// Protocol 0: nothing arrives before the filter stands.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open capture socket: %w", err)
	}
	all := uint16(unix.ETH_P_ALL)
	err = errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, filter.FD()),
		// The client's own, to servers that it has given up, are many.
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, resetBuffer),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: link.Index}))
	if err != nil {
		unix.Close(socket)
		return nil, fmt.Errorf("capture RSTs on %s: %w", device, err)
	}
	c.socket = socket
	go c.follow(ctx)
	return c, nil
}

// resetFilter passes frames of TCP with one of the flags, over IPv4 and IPv6 without
// extension headers, which the lab's servers never send.
func resetFilter(flags int32) asm.Instructions {
	const tcp = 6
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs reads the packet of R6
		asm.LoadAbs(12, asm.Half),
		asm.JEq.Imm(asm.R0, wire.EtherTypeIPv4, "ipv4"),
		asm.JNE.Imm(asm.R0, wire.EtherTypeIPv6, "none"),
		asm.LoadAbs(wire.EthernetLen+6, asm.Byte), // next header
		asm.JNE.Imm(asm.R0, tcp, "none"),
		asm.LoadAbs(wire.EthernetLen+40+13, asm.Byte), // flags
		asm.Ja.Label("flags"),
		asm.LoadAbs(wire.EthernetLen+9, asm.Byte).WithSymbol("ipv4"), // protocol
		asm.JNE.Imm(asm.R0, tcp, "none"),
		asm.LoadAbs(wire.EthernetLen, asm.Byte), // version and header length in words
		asm.And.Imm(asm.R0, 0xf),
		asm.LSh.Imm(asm.R0, 2),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadInd(asm.R0, asm.R7, wire.EthernetLen+13, asm.Byte), // flags
		asm.And.Imm(asm.R0, flags).WithSymbol("flags"),
		asm.JEq.Imm(asm.R0, 0, "none"),
		asm.Mov.Imm(asm.R0, resetSnap),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("none"),
		asm.Return(),
	}
}

func (c *resetCapture) follow(ctx context.Context) {
	defer unix.Close(c.socket)
	frame, stamp := make([]byte, resetSnap), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	for ctx.Err() == nil {
		n, beside, _, _, err := unix.Recvmsg(c.socket, frame, stamp, 0)
		if err != nil {
			continue // the timeout, or a signal
		}
		p := wire.Parse(frame[:n])
		c.mu.Lock()
		c.own(p, came(stamp[:beside]))
		if p.Flags&wire.RST == 0 {
			c.mu.Unlock()
			continue
		}
		if len(c.resets) < maxResets {
			c.resets = append(c.resets, reset{time.Now(), netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)})
		} else {
			c.missed++
		}
		c.mu.Unlock()
	}
}

// take returns the RSTs that came before a time, once.
func (c *resetCapture) take(before time.Time) (taken []reset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.resets) && c.resets[n].at.Before(before) {
		n++
	}
	taken, c.resets = c.resets[:n:n], c.resets[n:]
	return taken
}

// lost is how many RSTs were not kept: by this process, and by the kernel
// because this process was slow.
func (c *resetCapture) lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stats, err := unix.GetsockoptTpacketStats(c.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		c.missed += int(stats.Drops)
	}
	return c.missed
}

// flow is what the load knows of the last connection of two endpoints.
type flow struct {
	target string
	began  time.Time
	// ended is zero while it lives; whole tells that it had all its bytes,
	// lost that its server had crashed.
	ended       time.Time
	whole, lost bool
}

// endpoints name a connection on the wire.
type endpoints struct{ client, vip netip.AddrPort }

// countResets counts the RSTs for those who got them. A RST waits until its
// connection has ended, which tells whether its server lived, but at the end
// of the load (last). RSTs of other loads' connections are not counted.
func (l *load) countResets(last bool) {
	if l.capture == nil {
		return
	}
	before := time.Now()
	if !last {
		before = before.Add(-resetSlack) // the connection's own news may be late
	}
	waiting := l.waiting
	l.waiting = nil
	for _, r := range append(waiting, l.capture.take(before)...) {
		f := l.flows[endpoints{r.client, r.vip}]
		switch {
		case f != nil && f.ended.IsZero() && !last:
			l.waiting = append(l.waiting, r)
		case f == nil || f.lost:
		case f.whole && r.at.After(f.ended):
			l.tallies[f.target].LateResets++
		default:
			l.tallies[f.target].Resets++
		}
	}
}
