package fabrics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// way is a next hop: the link, and which of its ends the node has.
type way struct{ link, side int }

// hostTable is the routing table of the host's link 0 for the address that
// stands on it; the others follow.
const hostTable = 1000

// Reroute makes all nodes' routes what they should be without the links that
// are cut: what a routing protocol does some time after a link was lost.
func (f *Fabric) Reroute() error {
	routes := f.routes()
	for i, n := range f.topology.Nodes {
		err := netspace.In(f.namespace(i), func() error {
			if n.Host {
				return f.routeHost(i)
			}
			return f.routeRouter(i, routes[i])
		})
		if err != nil {
			return fmt.Errorf("routes of %s: %w", n.Name, err)
		}
	}
	return nil
}

// routes are the equal next hops of every router to every node's addresses. They
// are found here and not by fabric/paths, so that tests of paths, probes and
// doctor hold what fabric/paths says against something else.
func (f *Fabric) routes() []map[netip.Prefix][]way {
	t := &f.topology
	routes := make([]map[netip.Prefix][]way, len(t.Nodes))
	for i := range routes {
		routes[i] = map[netip.Prefix][]way{}
	}
	for i, n := range t.Nodes {
		for _, a := range n.Addresses {
			to := netip.PrefixFrom(a, a.BitLen())
			for node, ways := range f.waysTo(i, a) {
				if len(ways) > 0 && node != i {
					routes[node][to] = ways
				}
			}
		}
	}
	return routes
}

// waysTo are every router's next hops on shortest ways to a node's address.
func (f *Fabric) waysTo(to int, a netip.Addr) [][]way {
	t := &f.topology
	last := behind(t, to, a)
	const far = 1 << 30
	distance := make([]int, len(t.Nodes))
	for i := range distance {
		distance[i] = far
	}
	distance[to] = 0
	ways := make([][]way, len(t.Nodes))
	// Bellman and Ford: fabrics of namespaces are small.
	for changed := true; changed; {
		changed = false
		for i, l := range t.Links {
			for side := range l.Ends {
				from, next := l.Ends[side].Node, l.Ends[1-side].Node
				if !f.usable(i) || t.Nodes[from].Host || t.Nodes[next].Host && next != to || next == to && !slices.Contains(last, i) {
					continue
				}
				switch d := distance[next] + max(l.Cost, 1); {
				case d < distance[from]:
					distance[from], ways[from], changed = d, []way{{i, side}}, true
				case d == distance[from] && d < far && !slices.Contains(ways[from], way{i, side}):
					ways[from], changed = append(ways[from], way{i, side}), true
				}
			}
		}
	}
	for i := range ways {
		slices.SortFunc(ways[i], func(a, b way) int { return cmp.Or(a.link-b.link, a.side-b.side) })
	}
	return ways
}

// usable tells whether a link carries packets.
func (f *Fabric) usable(link int) bool { return !f.cut[link] && !f.topology.Links[link].Down }

// routeRouter installs a router's routes and removes what it had before; it
// runs in its namespace.
func (f *Fabric) routeRouter(node int, routes map[netip.Prefix][]way) error {
	for to := range f.routed[node] {
		if _, ok := routes[to]; ok {
			continue
		}
		err := netlink.RouteDel(&netlink.Route{Dst: whole(to.Addr())})
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete route to %s: %w", to, err)
		}
	}
	for to, ways := range routes {
		hops, err := f.nexthops(ways, to.Addr().Is6())
		if err != nil {
			return err
		}
		if len(hops) == 1 && hops[0].Gw.Equal(to.Addr().AsSlice()) {
			continue // it stands on that link: the kernel knows
		}
		source := firstOf(f.topology.Nodes[node].Addresses, to.Addr().Is6())
		if f.Nexthops && to.Addr().Is4() {
			err = f.groups.route(node, to.Addr(), hops, source)
		} else {
			err = replaceRoute(&netlink.Route{Dst: whole(to.Addr()), Src: source}, hops)
		}
		if err != nil {
			return fmt.Errorf("route to %s: %w", to, err)
		}
	}
	f.routed[node] = maps.Clone(routes)
	return nil
}

// nexthops are ways as the kernel has them; they run in the node's namespace.
func (f *Fabric) nexthops(ways []way, six bool) (hops []*netlink.NexthopInfo, err error) {
	for _, w := range ways {
		device, err := netlink.LinkByName(f.devices[w.link][w.side])
		if err != nil {
			return nil, err
		}
		gateway, gateway6 := f.addresses(w.link, 1-w.side)
		if six {
			gateway = gateway6
		}
		hops = append(hops, &netlink.NexthopInfo{LinkIndex: device.Attrs().Index, Gw: gateway.AsSlice()})
	}
	return hops, nil
}

// carrierWait is how long a link that was plugged in may take to have a
// carrier; before, IPv6 has no way to the gateway behind it.
const carrierWait = 10 * time.Second

// replaceRoute installs a route over hops.
func replaceRoute(r *netlink.Route, hops []*netlink.NexthopInfo) error {
	if len(hops) == 1 {
		r.LinkIndex, r.Gw = hops[0].LinkIndex, hops[0].Gw
	} else {
		r.MultiPath = hops
	}
	var err error
	netspace.WaitFor(carrierWait, func() bool {
		err = netlink.RouteReplace(r)
		return !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH)
	})
	return err
}

// firstOf is the first address of a family, nil if there is none.
func firstOf(addresses []netip.Addr, six bool) net.IP {
	for _, a := range addresses {
		if a.Is6() == six {
			return a.AsSlice()
		}
	}
	return nil
}

// routeHost makes a host's default routes lead over all its links, and
// packets from an address that stands on a link over that one. It runs in the host's
// namespace.
func (f *Fabric) routeHost(node int) error {
	var ways []way
	for i, l := range f.topology.Links {
		for side, e := range l.Ends {
			if e.Node == node && f.usable(i) {
				ways = append(ways, way{i, side})
			}
		}
	}
	for _, six := range []bool{false, true} {
		if err := f.setDefault(node, ways, six); err != nil {
			return err
		}
	}
	for i, w := range ways {
		a := f.topology.Links[w.link].Ends[w.side].Address
		if !slices.Contains(f.topology.Nodes[node].Addresses, a) {
			continue
		}
		if err := f.byItsOwnLink(a, w, hostTable+i); err != nil {
			return fmt.Errorf("routes from %s: %w", a, err)
		}
	}
	return nil
}

func (f *Fabric) setDefault(node int, ways []way, six bool) error {
	to := everywhere(six)
	if len(ways) == 0 {
		err := netlink.RouteDel(&netlink.Route{Dst: to})
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete default route: %w", err)
		}
		return nil
	}
	hops, err := f.nexthops(ways, six)
	if err != nil {
		return err
	}
	free := slices.DeleteFunc(slices.Clone(f.topology.Nodes[node].Addresses), func(a netip.Addr) bool { return bound(&f.topology, node, a) })
	if err := replaceRoute(&netlink.Route{Dst: to, Src: firstOf(free, six)}, hops); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	return nil
}

func everywhere(six bool) *net.IPNet {
	if six {
		return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
}

// byItsOwnLink sends packets from an address by the link on which it stands.
func (f *Fabric) byItsOwnLink(a netip.Addr, w way, table int) error {
	hops, err := f.nexthops([]way{w}, a.Is6())
	if err != nil {
		return err
	}
	if err := replaceRoute(&netlink.Route{Dst: everywhere(a.Is6()), Table: table}, hops); err != nil {
		return err
	}
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = whole(a), table, table
	rule.Family = unix.AF_INET
	if a.Is6() {
		rule.Family = unix.AF_INET6
	}
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
