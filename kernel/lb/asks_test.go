package lb

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// An RST without a timestamp names no server: every server of the VIP gets a
// copy through its forwarding.
func TestAsk(t *testing.T) {
	t.Parallel()
	for _, forwarding := range vip.ForwardingNames() {
		t.Run(forwarding, func(t *testing.T) {
			w := newWired(t)
			l := w.open(w.options())
			a := assignment(1, 11, 12, 13)
			a.VIPs[0].Forwarding = vip.Forwarding(forwarding)
			a.VIPs[0].Slots[2].Address = netip.MustParseAddr("fd77::13")
			a.VIPs[0].Slots[2].State = controller.Resting // it may be the one
			if _, err := l.Apply(a, nil); err != nil {
				t.Fatal(err)
			}
			w.run(l)
			eventually(t, "the servers are resolved", func() bool {
				for _, h := range l.Status().NextHops {
					if h.State != nexthop.Resolved {
						return false
					}
				}
				return true
			})
			rst := wire.TCP{Link: wire.Link{Src: w.netMAC, Dst: w.lbMAC}, Src: netip.AddrPortFrom(netip.MustParseAddr(wiredClient), 999),
				Dst: netip.AddrPortFrom(netip.MustParseAddr(wiredVIP), 80), Flags: wire.RST, Seq: 77}.Frame()
			asked := map[netip.Addr]bool{}
			copies := 0
			eventually(t, "all servers are asked", func() bool {
				w.transmit(rst)
				w.receive(100*time.Millisecond, func(f []byte) bool {
					inner := f[wire.EthernetLen:]
					if forwarding != "l2" {
						in, o, err := wire.Decapsulate(inner)
						if err != nil || string(o.Tunnel) != forwarding {
							return false
						}
						asked[o.Dst], inner = true, in
					}
					p := wire.ParsePacket(inner)
					if p.Err != nil || p.Flags != wire.RST || p.Seq != 77 || p.SrcPort != 999 {
						return false
					}
					copies++
					return copies%3 == 0
				})
				return copies >= 3 && (forwarding == "l2" || len(asked) == 3)
			})
			if n := w.counters(l).reason("ask_rst"); n == 0 {
				t.Error("no ask_rst was counted")
			}
		})
	}
}

// A health check's connection goes through the forwarding of its server line.
func TestHealthSteering(t *testing.T) {
	t.Parallel()
	type check struct{ forwarding, server string }
	checks := []check{{"l2", "10.77.0.11"}}
	for name := range tunnels() {
		checks = append(checks, check{name, "10.77.0.11"}, check{name, "fd77::11"})
	}
	for _, c := range checks {
		t.Run(c.forwarding+" "+netip.MustParseAddr(c.server).StringExpanded()[:4], func(t *testing.T) {
			w := newWired(t)
			l := w.open(w.options())
			a := assignment(1, 11)
			a.VIPs[0].Forwarding = vip.Forwarding(c.forwarding)
			a.VIPs[0].Slots[0].Address = netip.MustParseAddr(c.server)
			if _, err := l.Apply(a, nil); err != nil {
				t.Fatal(err)
			}
			w.run(l)
			eventually(t, "the server is resolved", func() bool { return l.Status().NextHops[0].State == nexthop.Resolved })
			line := w.steerChecks(l)
			if f := w.connect(0xFA100000|line, c.forwarding, c.server); f == nil {
				t.Error("the marked connection's SYN did not come through the forwarding")
			}
			if f := w.connect(0, "", ""); f != nil {
				t.Errorf("an unmarked connection got out: % x", f)
			}
			// Lines that name nobody: the check must fail, not go astray.
			if f := w.connect(0xFA100000|(line+3), "", ""); f != nil {
				t.Errorf("a check of a free line got out: % x", f)
			}
			// And once more by the line that works, so that its silence was no accident.
			if f := w.connect(0xFA100000|line, c.forwarding, c.server); f == nil {
				t.Error("the line does not work any more")
			}
		})
	}
}

// connect lets the balancer connect to the VIP's stand-in under a mark and
// returns the first SYN to the VIP that leaves; forwarding "" takes any.
func (w *wired) connect(mark uint32, forwarding, server string) (frame []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	port := uint16(0)
	inNS(w.t, w.lb, func() {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				check(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
				check(unix.Bind(int(fd), &unix.SockaddrInet4{Addr: [4]byte{10, 77, 0, 2}}))
				port = uint16(must(unix.Getsockname(int(fd))).(*unix.SockaddrInet4).Port)
			})
		}}
		// Started on this thread, which is in the namespace; the socket stays
		// there when the connecting goes on elsewhere.
		dialled, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		defer stop()
		c, err := d.DialContext(dialled, "tcp4", standIn4.String()+":80")
		if err == nil {
			c.Close()
		}
	})
	return w.receive(300*time.Millisecond, func(f []byte) bool {
		inner := wire.Parse(f).Packet()
		if vip.Forwarding(forwarding).Row().Tunnel {
			in, o, err := wire.Decapsulate(inner)
			if err != nil || string(o.Tunnel) != forwarding || o.Dst.String() != server {
				return false
			}
			prefix := netip.MustParsePrefix("10.88.0.0/16")
			if o.Dst.Is6() {
				prefix = netip.MustParsePrefix("fd88::/64")
			}
			if !prefix.Contains(o.Src) {
				panic(fmt.Sprintf("outer source %v", o.Src))
			}
			inner = in
		}
		p := wire.ParsePacket(inner)
		return p.Err == nil && p.Dst.String() == wiredVIP && p.SrcPort == port && p.DstPort == 80 && p.Flags&wire.SYN != 0
	})
}
