package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netspace"
)

// Addresses. Every lab has the same: they exist in its namespaces only.
//
//	client    10.77.0.2          fd77::2
//	router    10.77.0.1  .1.1    fd77::1  fd77:1::1
//	lbN       10.77.1.(10+N)     fd77:1::(10+N)
//	serverN   10.77.1.(100+N)    fd77:1::(100+N)
//	tunnels   10.77.(128+N).0/24 fd77:80:N::/64      outer sources of lbN
//
// A lab of switches has these instead of balancers, on the router's Ethernet
// and with one of their own each, on which every server has a card:
//
//	switchN   10.77.1.(10+N)     fd77:1::(10+N)
//	          10.77.(16+N).1     fd77:2:N::1
//	serverM   10.77.(16+N).(100+M)  fd77:2:N::(100+M)
//
//	VIPs      10.77.7.0/24       fd77:7::/64         on every server's lo
const (
	clientAddress4, clientAddress6 = "10.77.0.2", "fd77::2"
	gatewayOfClient4               = "10.77.0.1"
	gatewayOfClient6               = "fd77::1"
	gateway4, gateway6             = "10.77.1.1", "fd77:1::1"
	vipPrefix4, vipPrefix6         = "10.77.7.0/24", "fd77:7::/64"
	clientMTU                      = 1500
	bridgeName                     = "br0"
	uplink                         = "eth0" // a machine's first device, most have no other
)

func vipAddress4(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.77.7.%d", n)) }
func vipAddress6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd77:7::%d", n)) }

func lbAddress4(n int) string       { return fmt.Sprintf("10.77.1.%d", 10+n) }
func lbAddress6(n int) string       { return fmt.Sprintf("fd77:1::%d", 10+n) }
func switchAddress4(n int) string   { return fmt.Sprintf("10.77.%d.1", 16+n) }
func switchAddress6(n int) string   { return fmt.Sprintf("fd77:2:%d::1", n) }
func behindSwitch4(s, n int) string { return fmt.Sprintf("10.77.%d.%d", 16+s, 100+n) }
func behindSwitch6(s, n int) string { return fmt.Sprintf("fd77:2:%d::%d", s, 100+n) }

func serverAddress4(n int) string { return fmt.Sprintf("10.77.1.%d", 100+n) }
func serverAddress6(n int) string { return fmt.Sprintf("fd77:1::%d", 100+n) }
func tunnelSource4(n int) string  { return fmt.Sprintf("10.77.%d.0/24", 128+n) }
func tunnelSource6(n int) string  { return fmt.Sprintf("fd77:80:%d::/64", n) }

// serverAddresses are a server's own, on its first card.
func (l *Lab) serverAddresses(n int) []netip.Addr {
	if l.faild() {
		return []netip.Addr{netip.MustParseAddr(behindSwitch4(1, n)), netip.MustParseAddr(behindSwitch6(1, n))}
	}
	return []netip.Addr{netip.MustParseAddr(serverAddress4(n)), netip.MustParseAddr(serverAddress6(n))}
}

var serverSysctls = [][2]string{
	// All namespaces of a kernel share the SYN cookies' secret: a server
	// would accept connections that another answered.
	{"net.ipv4.tcp_syncookies", "0"},
	// A flood of SYNs must not keep clients and health checks out: room for
	// it, and one repetition of the answer (3 s) instead of five (a minute).
	{"net.ipv4.tcp_max_syn_backlog", "262144"},
	{"net.core.somaxconn", "65535"},
	{"net.ipv4.tcp_synack_retries", "1"},
	// A closed connection whose client is gone for good (a balancer that
	// checked and lost its power) lives on for seconds, not minutes.
	{"net.ipv4.tcp_orphan_retries", "3"},
	// The VIP stands on every server; only the balancers take frames for it.
	{"net.ipv4.conf.all.arp_ignore", "1"},
	{"net.ipv4.conf.all.arp_announce", "2"},
}

var clientSysctls = [][2]string{
	{"net.ipv4.ip_local_port_range", "10000 65000"},
	{"net.ipv4.tcp_syn_retries", "5"},
}

// build makes namespaces, devices, addresses and routes.
func (l *Lab) build() error {
	for _, m := range l.Machines() {
		if err := netspace.Create(l.namespace(m)); err != nil {
			return err
		}
	}
	if err := netspace.In(l.namespace("router"), l.buildRouter); err != nil {
		return fmt.Errorf("build router: %w", err)
	}
	build := l.buildBalancers
	if l.faild() {
		build = l.buildSwitches
	}
	if err := build(); err != nil {
		return err
	}
	if l.L2 {
		return l.buildNearClient()
	}
	if err := l.attach(cable{hub: "router", port: "client", machine: "client", device: uplink, mtu: clientMTU}); err != nil {
		return err
	}
	return l.configure("client", l.buildClient, card{uplink, clientAddress4, clientAddress6, gatewayOfClient4, gatewayOfClient6})
}

// buildBalancers attaches balancers and servers to the router.
func (l *Lab) buildBalancers() error {
	for _, m := range append(l.fronts(), l.servers()...) {
		if err := l.attach(l.cables(m)[0]); err != nil {
			return err
		}
	}
	for n, m := range l.fronts() {
		if err := l.configure(m, nil, card{uplink, lbAddress4(n + 1), lbAddress6(n + 1), gateway4, gateway6}); err != nil {
			return err
		}
	}
	for n, m := range l.servers() {
		if err := l.configure(m, func() error { return l.buildServer(n) }, card{uplink, serverAddress4(n + 1), serverAddress6(n + 1), gateway4, gateway6}); err != nil {
			return err
		}
	}
	return l.introduce()
}

// buildRouter makes the bridge; it runs in the router's namespace.
func (l *Lab) buildRouter() error {
	if err := netspace.Sysctls(netspace.MachineSysctls, netspace.Router); err != nil {
		return err
	}
	if err := netspace.LoopbackUp(); err != nil {
		return err
	}
	if err := l.addBridge(gateway4, gateway6); err != nil {
		return err
	}
	return discardFloods()
}

// addBridge makes the Ethernet of a router or switch, which has these
// addresses there; it runs in its namespace.
func (l *Lab) addBridge(address4, address6 string) error {
	noSnooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &noSnooping}
	bridge.Name, bridge.MTU = bridgeName, l.MTU
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	if err := netspace.AddAddress(bridge, address4+"/24", address6+"/64"); err != nil {
		return err
	}
	return netlink.LinkSetUp(bridge)
}

// buildServer puts the VIPs on lo of server n+1, and makes its packets known (deaths.go).
func (l *Lab) buildServer(n int) error {
	ttl := strconv.Itoa(firstTTL + n)
	if err := netspace.Sysctls(serverSysctls, [][2]string{{"net.ipv4.ip_default_ttl", ttl}, {"net.ipv6.conf." + uplink + ".hop_limit", ttl}}); err != nil {
		return err
	}
	if l.offloads() { // which takes the kernel's leave
		if err := netspace.Sysctl("net.ipv4.tcp_syncookies", "1"); err != nil {
			return err
		}
	}
	if l.Mixed && n/2%2 == 1 {
		// No random offset for each connection.
		if err := netspace.Sysctl("net.ipv4.tcp_timestamps", "2"); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range l.vipAddresses() {
		if err := netspace.AddAddress(lo, netip.PrefixFrom(a, a.BitLen()).String()); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) buildClient() error {
	if err := netspace.Sysctls(clientSysctls); err != nil {
		return err
	}
	if l.NoTimestamps {
		return netspace.Sysctl("net.ipv4.tcp_timestamps", "0")
	}
	return nil
}

// setRoutes makes the router spread the VIPs over the given balancers, or
// switches, with the given seed of its ECMP hash. In the plain lab all goes to server1.
func (l *Lab) setRoutes(lbs []int, seed uint32) error {
	hops4, hops6 := []string{serverAddress4(1)}, []string{serverAddress6(1)}
	if !l.Plain {
		hops4, hops6 = nil, nil
		for _, n := range lbs {
			hops4, hops6 = append(hops4, lbAddress4(n)), append(hops6, lbAddress6(n))
		}
	}
	return l.routeBy(hops4, hops6, seed)
}

// routeBy makes the router spread the VIPs over next hops.
func (l *Lab) routeBy(hops4, hops6 []string, seed uint32) error {
	return netspace.In(l.namespace("router"), func() error {
		if err := netspace.Sysctl("net.ipv4.fib_multipath_hash_seed", strconv.FormatUint(uint64(seed), 10)); err != nil {
			return err
		}
		bridge, err := netlink.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		for prefix, hops := range map[string][]string{vipPrefix4: hops4, vipPrefix6: hops6} {
			_, to, err := net.ParseCIDR(prefix)
			if err != nil {
				return err
			}
			route := &netlink.Route{Dst: to}
			for _, h := range hops {
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: bridge.Attrs().Index, Gw: net.ParseIP(h)})
			}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("route %s over %v: %w", prefix, hops, err)
			}
		}
		return nil
	})
}
