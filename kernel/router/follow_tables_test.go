package router

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

const upFlags = unix.IFF_UP | unix.IFF_LOWER_UP

// ports is a picture with veths eth1 to eth4 (2 to 5), VLAN device v7 (6) on
// eth1, a bridge (7) and the loopback (1).
func ports() *picture {
	p := &picture{links: map[int]link{
		1: {index: 1, name: "lo", flags: upFlags | unix.IFF_LOOPBACK},
		6: {index: 6, name: "v7", kind: "vlan", ether: true, parent: 2, vlan: 7, flags: upFlags, mtu: 1496, mac: [6]byte{2, 6}},
		7: {index: 7, name: "br0", kind: "bridge", ether: true, flags: upFlags, mtu: 1500},
	}, forwards4: map[int]bool{2: true}, forwards6: true, neighbours: map[HopID]neighbour{}, nexthops: map[uint32]nexthop{},
		features: features{redirects: map[int]bool{}}}
	for i := 2; i < 6; i++ {
		p.redirects[i] = true
		p.links[i] = link{index: i, name: fmt.Sprint("eth", i-1), kind: "veth", ether: true, flags: upFlags, mtu: 1500, mac: [6]byte{2, byte(i)}}
	}
	return p
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// over is a next hop of weight 1; an empty gateway is none.
func over(device int, gateway string) way {
	w := way{device: device, weight: 1}
	if gateway != "" {
		w.gateway = addr(gateway)
	}
	return w
}

func unicast(p string, ways ...way) route {
	return route{prefix: prefix(p), table: unix.RT_TABLE_MAIN, kind: unix.RTN_UNICAST, ways: ways}
}

// fabricOf has one router whose links go out by devices with port numbers.
func fabricOf(radix int, ends ...topology.End) *topology.Fabric {
	f := &topology.Fabric{Selector: pathsel.Config{Radix: radix}, Nodes: []topology.Node{{Name: "r"}, {Name: "s"}}}
	for _, e := range ends {
		f.Links = append(f.Links, topology.Link{Ends: [2]topology.End{e, {Node: 1, Port: -1}}})
	}
	return f
}

func translated(p *picture) (Tables, []string) {
	t, warnings, _ := p.translate(newNumbering(fabricOf(4), 0, nil), nil, nil)
	return t, warnings
}

func kindOf(t *testing.T, tables *Tables, p string) Route {
	t.Helper()
	i := slices.IndexFunc(tables.Routes, func(r Route) bool { return r.Prefix == prefix(p) })
	if i < 0 {
		t.Fatalf("no route %s in %+v", p, tables.Routes)
	}
	return tables.Routes[i]
}

// What the program cannot do as the kernel does is left to it, prefix by
// prefix.
func TestKinds(t *testing.T) {
	p := ports()
	encap, dead := over(2, "10.9.0.2"), over(2, "10.9.0.2")
	encap.beyond, dead.dead = true, true
	p.nexthops = map[uint32]nexthop{1: {way: over(2, "10.9.0.2")}, 2: {blackhole: true}, 3: {members: []nexthopMember{{1, 5}, {4, 2}}}, 4: {way: over(3, "10.9.0.6")}, 5: {members: []nexthopMember{{1, 1}, {9, 1}}}}
	var many []way
	for i := range MaxMembers + 1 {
		many = append(many, over(2, fmt.Sprint("10.9.1.", i)))
	}
	special := func(p string, kind uint8, table uint32) route {
		return route{prefix: prefix(p), table: table, kind: kind}
	}
	byID := func(p string, id uint32) route {
		r := unicast(p)
		r.nexthop = id
		return r
	}
	narrow := unicast("10.1.8.0/24", over(2, "10.9.0.2"))
	narrow.beyond = true
	for _, one := range []struct {
		route route
		kind  RouteKind
	}{
		{unicast("10.1.0.0/24", over(2, "10.9.0.2")), Forward},
		{unicast("10.1.1.0/24", over(2, "10.9.0.2"), over(3, "10.9.0.6")), Forward},
		{unicast("10.1.2.0/24", over(2, "")), Connected},
		{unicast("10.1.3.1/32", over(2, "")), Forward},
		{unicast("10.1.4.0/24", over(7, "10.9.0.2")), Beyond},
		{unicast("10.1.5.0/24", over(2, "10.9.0.2"), over(7, "10.9.0.6")), Beyond},
		{unicast("10.1.6.0/24", encap), Beyond},
		{unicast("10.1.7.0/24", over(9, "10.9.0.2")), Beyond},
		{narrow, Beyond},
		{unicast("10.1.9.0/24", many...), Beyond},
		{unicast("10.1.10.0/24", dead), Forward},
		{unicast("10.1.11.0/24", over(2, "fd00::1")), Forward}, // an IPv6 router
		{byID("10.2.0.0/24", 1), Forward}, {byID("10.2.1.0/24", 2), Unreachable}, {byID("10.2.2.0/24", 3), Forward},
		{byID("10.2.3.0/24", 5), Beyond}, {byID("10.2.4.0/24", 99), Beyond},
		{special("10.3.0.0/24", unix.RTN_BLACKHOLE, unix.RT_TABLE_MAIN), Unreachable},
		{special("10.3.1.0/24", unix.RTN_PROHIBIT, unix.RT_TABLE_MAIN), Unreachable},
		{special("10.3.2.0/24", unix.RTN_NAT, unix.RT_TABLE_MAIN), Beyond},
		{special("10.3.3.1/32", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL), Local},
		{special("10.3.3.255/32", unix.RTN_BROADCAST, unix.RT_TABLE_LOCAL), Local},
		{special("10.4.0.0/16", unix.RTN_LOCAL, unix.RT_TABLE_LOCAL), Local},
		{unicast("10.4.1.0/24", over(2, "10.9.0.2")), Local}, // behind the one before
		{unicast("fd01::/64", over(2, "fe80::1"), over(3, "fe80::1")), Forward},
	} {
		p.routes4 = append(p.routes4, one.route)
		tables, _ := translated(p)
		if got := kindOf(t, &tables, one.route.prefix.String()).Kind; got != one.kind {
			t.Errorf("%v: kind %d, want %d", one.route.prefix, got, one.kind)
		}
	}
	tables, warnings := translated(p)
	if g := tables.Groups[kindOf(t, &tables, "10.2.2.0/24").Group]; len(g) != 2 || g[0].Weight != 5 || g[1].Weight != 2 {
		t.Errorf("nexthop group: %+v", g)
	}
	if got := strings.Join(warnings, "\n"); !strings.Contains(got, "10.1.9.0/24 has 65 next hops") {
		t.Errorf("warnings: %s", got)
	}
}

// Of several routes to a prefix, the lowest metric of those that work holds,
// and the machine's own addresses before all.
func TestSeveralRoutesToOnePrefix(t *testing.T) {
	p := ports()
	metric := func(m uint32, w way) route {
		r := unicast("10.1.0.0/24", w)
		r.metric = m
		return r
	}
	member := func() HopID {
		tables, _ := translated(p)
		return tables.Groups[kindOf(t, &tables, "10.1.0.0/24").Group][0].Hop
	}
	p.routes4 = []route{metric(20, over(3, "10.9.0.6")), metric(10, over(2, "10.9.0.2"))}
	if got := member(); got.Device != 2 {
		t.Errorf("by device %d, not by the lowest metric's", got.Device)
	}
	down := p.links[2]
	down.flags = unix.IFF_UP
	p.links[2] = down
	if got := member(); got.Device != 3 {
		t.Errorf("by device %d, though the lowest metric's has no carrier", got.Device)
	}
	p.routes4 = append(p.routes4, route{prefix: prefix("10.1.0.0/24"), table: unix.RT_TABLE_LOCAL, kind: unix.RTN_LOCAL})
	tables, _ := translated(p)
	if got := kindOf(t, &tables, "10.1.0.0/24").Kind; got != Local {
		t.Errorf("kind %d, want local", got)
	}
}

// Hops: VLANs leave by their parent, MTUs of routes count, who does not answer
// is out, and equal sets are one group.
func TestHops(t *testing.T) {
	p := ports()
	small := unicast("10.1.1.0/24", over(3, "10.9.0.6"))
	small.mtu = 1400
	p.routes4 = []route{unicast("10.1.0.0/24", over(6, "10.9.0.2"), over(3, "10.9.0.6")), small, unicast("10.1.2.0/24", over(3, "10.9.0.6"), over(6, "10.9.0.2"))}
	vlan := HopID{6, addr("10.9.0.2")}
	p.neighbours[vlan] = neighbour{id: vlan, mac: [6]byte{2, 9}, state: unix.NUD_STALE}
	tables, _, _ := p.translate(newNumbering(fabricOf(4), 0, nil), nil, map[HopID]bool{{3, addr("10.9.0.6")}: true})
	if a, b := kindOf(t, &tables, "10.1.0.0/24"), kindOf(t, &tables, "10.1.2.0/24"); a.Group != b.Group || len(tables.Groups) != 2 {
		t.Errorf("groups %+v", tables.Groups)
	}
	for _, h := range tables.Hops {
		switch h.ID.Device {
		case 6:
			if h.Ifindex != 2 || h.VLAN != 7 || h.Source != [6]byte{2, 6} || h.MAC != [6]byte{2, 9} || h.MTU != 1496 || !h.Usable {
				t.Errorf("VLAN hop %+v", h)
			}
		case 3:
			if h.MTU != 1400 || h.Usable || !strings.Contains(h.Problem, "does not answer") || h.MAC != [6]byte{} {
				t.Errorf("silent hop %+v", h)
			}
		}
	}
	if !slices.Equal(tables.Ports, []int{0, 1}) {
		t.Errorf("ports %v", tables.Ports)
	}
	if d := tables.Devices; len(d) != 5 || d[1].VLAN != 7 || d[1].Ifindex != 2 || !d[0].IPv4 || d[2].IPv4 || !d[2].IPv6 {
		t.Errorf("devices %+v", d)
	}
}

// A card that takes tags off shows the program no VLANs: what comes by it is
// the kernel's until it is told not to.
func TestTagsTakenOff(t *testing.T) {
	p := ports()
	p.strips = map[int]bool{2: true}
	tables, warnings := translated(p)
	for _, d := range tables.Devices {
		if d.Ifindex == 2 && d.VLAN == 0 {
			t.Errorf("packets without a tag are forwarded: %+v", d)
		}
	}
	if len(tables.Devices) != 4 || len(warnings) != 1 || !strings.Contains(warnings[0], "ethtool -K eth1 rxvlan off") {
		t.Errorf("devices %+v, warnings %q", tables.Devices, warnings)
	}
}

// A neighbour on a connected network is a route; one elsewhere, or without a
// MAC address, is none.
func TestNeighbours(t *testing.T) {
	p := ports()
	p.routes4 = []route{unicast("10.1.0.0/24", over(2, "")), unicast("10.2.0.0/24", over(3, "10.9.0.6"))}
	for _, n := range []neighbour{
		{id: HopID{2, addr("10.1.0.5")}, mac: [6]byte{2, 5}, state: unix.NUD_REACHABLE},
		{id: HopID{2, addr("10.1.0.6")}, mac: [6]byte{2, 6}, state: unix.NUD_FAILED},
		{id: HopID{3, addr("10.1.0.7")}, mac: [6]byte{2, 7}, state: unix.NUD_REACHABLE},
		{id: HopID{2, addr("10.2.0.8")}, mac: [6]byte{2, 8}, state: unix.NUD_REACHABLE},
		{id: HopID{2, addr("10.1.0.9")}, state: unix.NUD_NOARP},
	} {
		p.neighbours[n.id] = n
	}
	tables, _ := translated(p)
	var hosts []string
	for _, r := range tables.Routes {
		if r.Prefix.IsSingleIP() {
			hosts = append(hosts, r.Prefix.String())
		}
	}
	if !slices.Equal(hosts, []string{"10.1.0.5/32"}) {
		t.Errorf("neighbours %v", hosts)
	}
}

// With a rule of its own the kernel routes alone.
func TestRules(t *testing.T) {
	p := ports()
	p.routes4 = []route{unicast("10.1.0.0/24", over(2, "10.9.0.2"))}
	p.rules = []rule{{family: unix.AF_INET, table: unix.RT_TABLE_MAIN, priority: 32766}}
	if tables, warnings := translated(p); len(tables.Routes) != 1 || len(warnings) != 0 {
		t.Errorf("default rule: %d routes, %q", len(tables.Routes), warnings)
	}
	p.rules = append(p.rules, rule{family: unix.AF_INET6, table: 42, priority: 100})
	tables, warnings := translated(p)
	if len(tables.Routes) != 0 || len(tables.Devices) == 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "ip -6 rule 100") {
		t.Errorf("own rule: %d routes, %q", len(tables.Routes), warnings)
	}
}
