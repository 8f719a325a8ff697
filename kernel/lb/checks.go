package lb

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
)

// Health checks of a VIP go to a stand-in for it, which bpf/lb/health.bpf.c
// replaces: the VIP itself may be an address of this machine or have a
// blackhole route, as where a BGP speaker announces it, and then nothing that
// the stack sends to it leaves. The routes to the stand-ins lead to the loopback,
// where the program is, and are in the table that every rule comes after.

// The stand-ins: the dummy addresses of RFC 7600 and RFC 9780, which nobody has
// and no network carries.
var (
	standIn4 = netip.AddrFrom4([4]byte{192, 0, 0, 8})
	standIn6 = netip.MustParseAddr("100:0:0:1::8")
)

// loopbackIndex is the loopback's in every network namespace.
const loopbackIndex = 1

// checkMTU has the checks' segments, both ways, fit whatever tunnel.
const checkMTU = 1280

// mapCheckLines is by server line the VIP that its checks are for. It is not
// pinned: without a daemon there are no checks.
const mapCheckLines = "check_lines"

// mapCheckPairs is the connections of checks, those that ended last among them. It
// is not pinned either.
const mapCheckPairs = "check_pairs"

// standIn is the address that health checks of a VIP connect to.
func standIn(vip netip.Addr) netip.Addr {
	if vip.Is6() {
		return standIn6
	}
	return standIn4
}

// checkRoute leads to a stand-in by the loopback. IPv4 must not take it for an
// address of this machine, from which nothing may come in. IPv6 lets nothing else
// out there: without the program, whoever listens on all addresses would answer
// for the servers, so CheckWay refuses then.
func checkRoute(six bool) *netlink.Route {
	kind, to := unix.RTN_UNICAST, standIn4
	if six {
		kind, to = unix.RTN_LOCAL, standIn6
	}
	return &netlink.Route{LinkIndex: loopbackIndex, Table: unix.RT_TABLE_LOCAL, Type: kind, Protocol: routeProtocol,
		Scope: unix.RT_SCOPE_LINK, MTU: checkMTU, Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}}
}

// routeProtocol marks routes as Fairlead's; the switch's are of the same.
const routeProtocol = 250

// SteerChecks says which VIP the checks of a server line are for, whose sockets
// have the mark 0xFA100000 | line. Lines that are not among them have none. What
// fails is tried again, and CheckWay refuses until then.
func (l *LB) SteerChecks(vips map[uint32]netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return errClosed
	}
	l.toCheck = vips
	if l.checked == nil {
		l.checked = map[uint32]netip.Addr{}
	}
	var errs []error
	err := kernel.InNamespace(l.ns, func() error {
		l.tendChecks(func(_ string, err error) { errs = append(errs, err) })
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// checkWays is what stands in the way of checks.
type checkWays struct {
	lines error          // of all
	route map[bool]error // of a family's stand-in; true: IPv6
	hears map[int]bool   // the devices where answers are taken
	// from is by family the address for checks of servers of the other one.
	from map[bool]func() (netip.Addr, error)
}

// tendChecks makes what checks need beside the programs on the configured
// interfaces: what check_lines says, the routes to the stand-ins, and a program for
// the answers where checks leave by another interface, as of a balancer with one
// arm to clients and one to servers. The caller is in the balancer's namespace.
func (l *LB) tendChecks(note func(what string, err error)) {
	w := &checkWays{lines: l.steerLines(), route: map[bool]error{}, hears: map[int]bool{}, from: map[bool]func() (netip.Addr, error){}}
	note("check lines", w.lines)
	for _, six := range []bool{false, true} {
		w.route[six] = l.routeChecks(six)
		note("route to "+checkRoute(six).Dst.IP.String(), w.route[six])
		w.from[six] = sync.OnceValues(func() (netip.Addr, error) { return l.addressFor(six) }) // until the next look
	}
	if !l.attached {
		w.lines = errors.New("the programs are not attached yet")
	} else {
		l.findWaysOut()
		for _, i := range l.waysOut {
			note(answersOn(i).pin(), l.hear(answersOn(i)))
		}
		for _, p := range append(placesOn(l.ifaces), placesOut(l.waysOut)...) {
			if p.kind == linkAnswers {
				w.hears[p.device.Index] = l.there(p)
			} else if p.kind == linkChecks && !l.there(p) {
				w.lines = errors.New("the program that sends checks is not attached: see the warnings of fairlead status")
			}
		}
	}
	l.checkWays.Store(w)
}

func placesOut(ifaces []net.Interface) (places []place) {
	for _, i := range ifaces {
		places = append(places, answersOn(i))
	}
	return places
}

// findWaysOut adds the devices by which checks leave now, and drops those that are
// gone. Others stay: answers may be under way, and the way back.
func (l *LB) findWaysOut() {
	known := map[int]bool{0: true}
	for _, i := range l.ifaces {
		known[i.Index] = true
	}
	var found []net.Interface
	add := func(index int) {
		if known[index] {
			return
		}
		known[index] = true
		if dev, err := net.InterfaceByIndex(index); err == nil {
			found = append(found, *dev)
		}
	}
	for _, i := range l.waysOut {
		if dev, err := kernel.Device(i.Name); err == nil && dev == nil {
			_ = l.folder.Drop(answersOn(i).pin()) // the device is gone, and the link with it
		}
		add(i.Index)
	}
	for line := range l.checked {
		if s := l.written[line].server.Addr; s.IsValid() {
			add(l.hops.Get(s).Ifindex)
		}
	}
	l.waysOut = found
}

// hear has answers taken on an interface by which checks leave.
func (l *LB) hear(p place) error {
	known := l.folder.Holds(p.pin())
	if err := l.hold(p, nil); err != nil || known {
		return err
	}
	l.log.Info("health checks leave by this interface, and their answers are taken there", "interface", p.device.Name)
	return nil
}

// steerLines writes what of toCheck is not in check_lines yet.
func (l *LB) steerLines() error {
	for line := range l.checked {
		if _, stays := l.toCheck[line]; !stays {
			if err := l.checkLines.Delete(line); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("map %s: %w", mapCheckLines, err)
			}
			delete(l.checked, line)
		}
	}
	for line, vip := range l.toCheck {
		if l.checked[line] == vip {
			continue
		}
		if err := l.checkLines.Put(line, vip.As16()); err != nil {
			return fmt.Errorf("map %s: %w", mapCheckLines, err)
		}
		l.checked[line] = vip
	}
	return nil
}

// routeChecks makes the route to a stand-in that is in use and missing.
func (l *LB) routeChecks(six bool) error {
	used := false
	for _, vip := range l.toCheck {
		used = used || vip.Is6() == six
	}
	if !used {
		return nil
	}
	if err := l.netlink.RouteAdd(checkRoute(six)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("health checks: route to %s by the loopback: %w; is the loopback up (ip link set lo up), and its IPv6 on?", checkRoute(six).Dst.IP, err)
	}
	return nil
}

// unrouteChecks takes the routes away in the calling thread's namespace.
func unrouteChecks() error {
	var errs []error
	for _, six := range []bool{false, true} {
		r := checkRoute(six)
		r.MTU = 0
		if err := netlink.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, fmt.Errorf("route to %s: %w", r.Dst.IP, err))
		}
	}
	return errors.Join(errs...)
}

// CheckWay is from where to where the socket of a check of a VIP on a server
// connects. From is the address that speaks to the server; where that is of the
// other family, the first that the balancer's interfaces have. Errors say that no
// check can be made, which is not the server's fault.
func (l *LB) CheckWay(vip, server netip.Addr) (from, to netip.Addr, err error) {
	to = standIn(vip)
	w := l.checkWays.Load()
	if w == nil {
		return from, to, errors.New("checks are not steered yet")
	}
	if err := errors.Join(w.lines, w.route[vip.Is6()]); err != nil {
		return from, to, err
	}
	if server.Is6() != vip.Is6() {
		from, err = w.from[vip.Is6()]()
		return from, to, err
	}
	if h := l.hops.Get(server); h.Usable() && !w.hears[h.Ifindex] {
		return from, to, fmt.Errorf("no answer would be taken on interface %s, by which the check would leave: see the warnings of fairlead status", h.Interface)
	}
	from, err = sourceTo(server)
	return from, to, err
}

// sourceTo is the address that this machine speaks to another from. Connecting a socket
// of UDP asks for the route, and sends nothing; net would have it watched for what it
// receives, which costs more than the question.
func sourceTo(server netip.Addr) (from netip.Addr, err error) {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: discard})
	if server.Is6() {
		six := &unix.SockaddrInet6{Port: discard, Addr: server.As16()}
		family, to = unix.AF_INET6, six
	} else {
		to.(*unix.SockaddrInet4).Addr = server.As4()
	}
	s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return from, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	if err := unix.Connect(s, to); err != nil {
		return from, os.NewSyscallError("connect", err)
	}
	is, err := unix.Getsockname(s)
	if err != nil {
		return from, os.NewSyscallError("getsockname", err)
	}
	switch is := is.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(is.Addr), nil
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(is.Addr), nil
	}
	return from, fmt.Errorf("a socket of family %d has an address of %T", family, is)
}

// discard is the port of RFC 863, to which nothing is sent.
const discard = 9

// addressFor is the first address of a family that the interfaces have.
func (l *LB) addressFor(six bool) (netip.Addr, error) {
	ifaces, err := findInterfaces(l.o.Interfaces)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := firstAddress(ifaces, six)
	if err == nil && a.IsUnspecified() {
		err = errors.New("the balancer's interfaces have no address of the VIP's family, to which an answer could come: give them one")
	}
	return a, err
}
