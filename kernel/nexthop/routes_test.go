package nexthop

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
)

// addRoute has packets to a prefix go as r says, by the way to the client.
func addRoute(t testing.TB, w *Watcher, prefix string, r netlink.Route) {
	t.Helper()
	_, r.Dst, _ = net.ParseCIDR(prefix)
	if r.Type == 0 {
		r.LinkIndex = w.Get(hosttest.Client4).Ifindex
	}
	if err := w.handle.RouteReplace(&r); err != nil {
		t.Fatal(err)
	}
}

// Routes that are looked up many at a time are those that are found one by one.
func TestRoutes(t *testing.T) {
	w := watching(t, newRig(t))
	gateway4, gateway6 := net.IP(hosttest.Client4.AsSlice()), net.IP(hosttest.Client6.AsSlice())
	addRoute(t, w, "10.1.0.0/16", netlink.Route{Gw: gateway4})
	addRoute(t, w, "10.1.7.0/24", netlink.Route{Gw: gateway4, MTU: 1300})
	addRoute(t, w, "10.1.8.0/24", netlink.Route{Type: unix.RTN_BLACKHOLE})
	addRoute(t, w, "10.1.9.0/24", netlink.Route{Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: gateway6}})
	addRoute(t, w, "2001:db8:1::/48", netlink.Route{Gw: gateway6})
	random := rand.New(rand.NewPCG(1, 2))
	list := []netip.Addr{hosttest.Client4, hosttest.Client6, hosttest.Server4, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("203.0.113.1")}
	for range 2 * manyRoutes { // more than one socket is asked for
		list = append(list, netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(5 + random.IntN(6)), byte(random.IntN(256))}))
	}
	for range 50 {
		a := netip.MustParseAddr("2001:db8::1").As16()
		a[5], a[14] = byte(random.IntN(3)), byte(random.IntN(256))
		list = append(list, netip.AddrFrom16(a))
	}
	kinds := map[string]int{}
	for i, is := range w.routes.lookUp(list) {
		routes, err := w.handle.RouteGet(list[i].AsSlice())
		var no unix.Errno
		if err != nil {
			if !errors.As(err, &no) || !errors.Is(is.err, no) {
				t.Errorf("%v: %v instead of %v", list[i], is.err, err)
			}
			kinds[no.Error()]++
			continue
		}
		r := routes[0]
		want := route{kind: uint8(r.Type), link: r.LinkIndex, mtu: r.MTU}
		want.gateway, _ = netip.AddrFromSlice(r.Gw)
		if v, ok := r.Via.(*netlink.Via); ok {
			want.gateway, _ = netip.AddrFromSlice(v.Addr)
			kinds["by another family"]++
		}
		if is.err != nil || is.route != want {
			t.Errorf("%v: %+v instead of %+v", list[i], is, want)
		}
		if r.MTU == 1300 {
			kinds["MTU"]++
		}
		if r.Type == unix.RTN_LOCAL {
			kinds["own"]++
		}
	}
	if len(kinds) < 4 {
		t.Errorf("too tame: %v", kinds)
	}
}

// A route of whose change nobody said anything is seen when its turn comes; that of a
// neighbour is, whoever's turn it is.
func TestTurn(t *testing.T) {
	was := inTurn
	defer func() { inTurn = was }()
	inTurn = 2
	w := watching(t, newRig(t))
	servers := map[netip.Addr]bool{hosttest.Client4: true}
	for i := range byte(7) {
		servers[netip.AddrFrom4([4]byte{10, 1, 0, i})] = true
	}
	gateway := net.IP(hosttest.Client4.AsSlice())
	addRoute(t, w, "10.1.0.0/16", netlink.Route{Gw: gateway})
	w.Watch(servers, 0)
	w.refresh()
	addRoute(t, w, "10.1.0.0/16", netlink.Route{Gw: gateway, MTU: 1300})
	seen := func() (n int) {
		for _, h := range w.List() {
			if h.MTU == 1300 {
				n++
			}
		}
		return n
	}
	if w.again(); seen() != 0 {
		t.Fatalf("%d ways are new though no route was looked up", seen())
	}
	for turn := 1; turn <= 4; turn++ {
		if w.turn(); seen() > 2*turn {
			t.Errorf("%d ways are new after %d turns of two", seen(), turn)
		}
	}
	if seen() != 7 {
		t.Errorf("%d of 7 ways are new when each had its turn", seen())
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 9, 9}
	if err := w.handle.NeighSet(&netlink.Neigh{LinkIndex: w.Get(hosttest.Client4).Ifindex, IP: gateway, HardwareAddr: mac, State: netlink.NUD_PERMANENT}); err != nil {
		t.Fatal(err)
	}
	if !w.again() || w.again() {
		t.Error("a new neighbour is no change, or one for ever")
	}
	for _, h := range w.List() {
		if h.MAC != [6]byte(mac) {
			t.Errorf("%v: its neighbour is not followed: %+v", h.Server, h)
		}
	}
}
