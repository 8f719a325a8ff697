package lb

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/wire"
)

// steerChecks has the checks of slot 0 steered, and returns its line.
func (w *wired) steerChecks(l *LB) uint32 {
	w.t.Helper()
	line, ok := l.Line(1, 0)
	if !ok {
		w.t.Fatal("slot 0 has no line")
	}
	if err := l.SteerChecks(map[uint32]netip.Addr{line: netip.MustParseAddr(wiredVIP)}); err != nil {
		w.t.Fatal(err)
	}
	return line
}

// answers is a server of HTTP on a VIP in the net's namespace: its body is longer
// than a check reads.
func (w *wired) answers(vip netip.Addr) (stop func()) {
	var l net.Listener
	inNS(w.t, w.net, func() {
		lo := must(netlink.LinkByName("lo"))
		check(netlink.LinkSetUp(lo))
		err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostNet(vip), Flags: unix.IFA_F_NODAD})
		if !errors.Is(err, unix.EEXIST) {
			check(err)
		}
		l = must(net.Listen("tcp", netip.AddrPortFrom(vip, 8080).String()))
	})
	s := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(out, strings.Repeat("well ", 100_000))
	})}
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	stop = func() { s.Close(); done.Wait() }
	w.t.Cleanup(stop)
	return stop
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// checkedVIP is an assignment of one VIP by l2 at the net's own address, whose
// server the balancer has resolved.
func (w *wired) checkedVIP(l *LB, vip, server string) health.Target {
	w.t.Helper()
	a := assignment(1, 11)
	v := &a.VIPs[0]
	v.Address, v.Forwarding, v.Slots[0].Address = netip.MustParseAddr(vip), "l2", netip.MustParseAddr(server)
	w.mustApply(l, a)
	eventually(w.t, "the server is resolved", func() bool { return l.Status().NextHops[0].State == nexthop.Resolved })
	line, _ := l.Line(1, 0)
	if err := l.SteerChecks(map[uint32]netip.Addr{line: v.Address}); err != nil {
		w.t.Fatal(err)
	}
	return health.Target{Line: line, Address: netip.AddrPortFrom(v.Address, 8080), At: v.Slots[0].Address, Type: "http", Path: "/"}
}

// probe checks once, in the balancer's namespace.
func (w *wired) probe(l *LB, t health.Target) error { return w.probeWithin(3*time.Second, l, t) }

func (w *wired) probeWithin(limit time.Duration, l *LB, t health.Target) (err error) {
	n := health.Network{Steer: func(t health.Target) (netip.Addr, netip.AddrPort, error) {
		from, to, err := l.CheckWay(t.Address.Addr(), t.At)
		return from, netip.AddrPortFrom(to, t.Address.Port()), err
	}}
	inNS(w.t, w.lb, func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err = n.Probe(ctx, t)
	})
	return err
}

// Checks reach the server whatever the balancer's own addresses and routes say of
// the VIP, as where a BGP speaker announces it, and they still tell a dead server.
func TestChecksWhoeverHoldsTheVIP(t *testing.T) {
	t.Parallel()
	for _, family := range []struct{ name, vip, server string }{{"IPv4", "192.0.2.1", "10.77.0.1"}, {"IPv6", "2001:db8::1", "fd77::1"}} {
		t.Run(family.name, func(t *testing.T) {
			w := newWired(t)
			l := w.open(w.options())
			w.run(l)
			vip := netip.MustParseAddr(family.vip)
			target := w.checkedVIP(l, family.vip, family.server)
			stop := w.answers(vip)
			eventually(t, "the net finds the way back", func() bool { return w.probe(l, target) == nil })
			for _, c := range []struct {
				what string
				do   func()
			}{
				{"no route to the VIP", func() {}},
				{"strict reverse path filters", func() {
					for _, dev := range []string{"all", "lb0"} {
						check(os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("1"), 0))
					}
				}},
				{"a blackhole route", func() {
					check(netlink.RouteAdd(&netlink.Route{Dst: hostNet(vip), Type: unix.RTN_BLACKHOLE}))
				}},
				{"the VIP on the loopback, and somebody who listens on all addresses", func() {
					check(netlink.AddrAdd(must(netlink.LinkByName("lo")), &netlink.Addr{IPNet: hostNet(vip), Flags: unix.IFA_F_NODAD}))
					own := must(net.Listen("tcp", ":8080"))
					w.t.Cleanup(func() { own.Close() })
				}},
			} {
				inNS(t, w.lb, c.do)
				if err := w.probe(l, target); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
				tcp := target
				tcp.Type = "tcp"
				if err := w.probe(l, tcp); err != nil {
					t.Errorf("%s: tcp: %v", c.what, err)
				}
			}
			stop()
			if err := w.probe(l, target); err == nil || err.Error() != "connection refused" {
				t.Errorf("a server where nobody listens: %v", err)
			}
			inNS(t, w.net, func() {
				check(netlink.AddrDel(must(netlink.LinkByName("lo")), &netlink.Addr{IPNet: hostNet(vip)}))
			})
			if err := w.probeWithin(300*time.Millisecond, l, target); err == nil || err.Error() != "no answer in time" {
				t.Errorf("a server without the VIP: %v", err)
			}
		})
	}
}

// The balancer's own connections to a VIP are let alone beside its checks, and
// unloading takes the checks' routes away.
func TestChecksLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.run(l)
	target := w.checkedVIP(l, wiredVIP, "10.77.0.1")
	w.answers(target.Address.Addr())
	eventually(t, "a check is answered", func() bool { return w.probe(l, target) == nil })
	routes := func() (n int) {
		inNS(t, w.lb, func() {
			n = len(must(netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)))
		})
		return n
	}
	if n := routes(); n != 1 {
		t.Errorf("%d routes to stand-ins, want 1", n)
	}
	inNS(t, w.lb, func() {
		check(netlink.RouteAdd(&netlink.Route{Dst: hostNet(target.Address.Addr()), Gw: net.IPv4(10, 77, 0, 1)}))
		c := must(net.DialTimeout("tcp", target.Address.String(), 5*time.Second))
		check(c.Close())
	})
	l.Close()
	inNS(t, w.lb, func() { check(Unload(w.pinDir)) })
	if n := routes(); n != 0 {
		t.Errorf("%d routes to stand-ins after unload", n)
	}
}

// An answer that comes when its check is over makes the balancer send nothing: an
// RST by its own route to the VIP would be taken for a client's, about which all
// servers are asked. What comes for others, who are masqueraded by the balancer's
// address, reaches the stack: of other ports, and of the check's own.
func TestLateAnswersAskNobody(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	w.run(l)
	target := w.checkedVIP(l, wiredVIP, "10.77.0.1") // which nobody serves
	inNS(t, w.lb, func() {
		check(netlink.RouteAdd(&netlink.Route{Dst: hostNet(target.Address.Addr()), Gw: net.IPv4(10, 77, 0, 1)}))
	})
	for range 5 {
		var syn *wire.Parsed
		eventually(t, "a check's SYN", func() bool {
			if err := w.probeWithin(50*time.Millisecond, l, target); err == nil || err.Error() != "no answer in time" {
				t.Fatalf("a check that nobody answers: %v", err)
			}
			return w.receive(50*time.Millisecond, func(f []byte) bool {
				syn = wire.Parse(f)
				return syn.Err == nil && syn.Dst == target.Address.Addr() && syn.Flags == wire.SYN
			}) != nil
		})
		// Answered by an RST, or not: of the ports and acknowledgements in this order.
		answers := []struct {
			port uint16
			ack  uint32
			told bool
		}{{syn.SrcPort, syn.Seq + 1, false}, {syn.SrcPort, syn.Seq + 300, false}, {syn.SrcPort, syn.Seq + 1<<17, true}, {syn.SrcPort ^ 1<<9, syn.Seq + 1, true}}
		for _, a := range answers {
			w.transmit(wire.TCP{Link: wire.Link{Src: w.netMAC, Dst: w.lbMAC}, Src: target.Address,
				Dst: netip.AddrPortFrom(syn.Src, a.port), Flags: wire.SYN | wire.ACK, Seq: 1, Ack: a.ack}.Frame())
			// An RST has the number that was acknowledged.
			told := false
			limit := 2 * time.Second
			if !a.told {
				limit = 20 * time.Millisecond
			}
			w.receive(limit, func(f []byte) bool {
				p := wire.Parse(f)
				if p.Err == nil && p.Flags&wire.RST != 0 && p.DstPort == target.Address.Port() {
					told = true
					if p.SrcPort != a.port || p.Seq != a.ack {
						t.Errorf("an RST from port %d of %d", p.SrcPort, p.Seq-syn.Seq)
					}
				}
				return told
			})
			if told != a.told {
				t.Errorf("an answer to port %+d that acknowledges %d: reaches the stack %v, want %v", int(a.port)-int(syn.SrcPort), a.ack-syn.Seq, told, a.told)
			}
		}
	}
}

// A server behind an interface that no VIP's packets come in by is checked, too.
func TestChecksByAnotherArm(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "net1", PeerNamespace: netlink.NsFd(w.net)}))
		up("lb1", "10.78.0.2/24")
	})
	inNS(t, w.net, func() { up("net1", "10.78.0.1/24") })
	l := w.open(w.options())
	w.run(l)
	target := w.checkedVIP(l, wiredVIP, "10.78.0.1")
	w.answers(target.Address.Addr())
	// At once: nothing is to wait for the next look.
	if err := w.probe(l, target); err != nil {
		t.Error(err)
	}
	if s := l.Status(); len(s.Astray) > 0 {
		t.Errorf("astray: %q", s.Astray)
	}
	inNS(t, w.lb, func() { check(netlink.LinkDel(must(netlink.LinkByName("lb1")))) })
	eventually(t, "the device that is gone is forgotten", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waysOut) == 0 && kernel.Missing(filepath.Join(w.pinDir, kernel.DirLinks, linkPin(linkAnswers, "lb1")))
	})
}

// What this machine lacks for a check is not the server's fault.
func TestChecksThatCannotBeSent(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	target := w.checkedVIP(l, wiredVIP, "10.77.0.1")
	w.answers(target.Address.Addr())
	eventually(t, "a check is answered", func() bool { return w.probe(l, target) == nil })
	lo := func(set func(netlink.Link) error) {
		inNS(t, w.lb, func() { check(set(must(netlink.LinkByName("lo")))) })
	}
	lo(netlink.LinkSetDown)
	isLocal := func() bool {
		var local health.Local
		return errors.As(w.probe(l, target), &local)
	}
	if !isLocal() {
		t.Error("the loopback is down, and the server is blamed")
	}
	inNS(t, w.lb, func() {
		check(netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 77, 0, 1)}))
	})
	l.tend()
	if s := l.Status(); !isLocal() || len(s.Astray) != 1 || !strings.Contains(s.Astray[0], "ip link set lo up") {
		t.Errorf("and there is a default route: astray %q", s.Astray)
	}
	lo(netlink.LinkSetUp)
	l.tend()
	if err := w.probe(l, target); err != nil {
		t.Error("it is up again:", err)
	}
}

// A second balancer in a network namespace is refused, until the first is unloaded.
func TestOneBalancerANamespace(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	inNS(t, w.lb, func() {
		check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb1"}, PeerName: "lb1peer"}))
		up("lb1", "10.78.0.2/24", "fd78::2/64")
	})
	o := w.options()
	o.Interfaces, o.PinDir = []string{"lb1"}, o.PinDir+"-second"
	t.Cleanup(func() { check(Unload(o.PinDir)) })
	if _, err := w.tryOpen(o); err == nil || !strings.Contains(err.Error(), "fairlead unload NAME") {
		t.Errorf("a second balancer: %v", err)
	}
	if !kernel.Missing(o.PinDir) {
		t.Error("it left pins")
	}
	l.Close()
	w.open(w.options()).Close() // which is no second one
	inNS(t, w.lb, func() { check(Unload(w.pinDir)) })
	w.open(o)
}
