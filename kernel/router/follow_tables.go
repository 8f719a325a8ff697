package router

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Translation of the kernel's tables into the program's: pure, from one
// picture to one Tables. What the program cannot do as the kernel does is left
// to the kernel, prefix by prefix.

// translation is one in the making.
type translation struct {
	*picture
	// silent are neighbours that did not answer when they were asked last.
	silent map[HopID]bool
	out    Tables
	routes []chosen
	at     map[netip.Prefix]int // index in routes
	groups map[string]int       // index in out.Groups, by keyOf, in any order met
	key    []byte               // keyOf's
	hops   map[HopID]int        // index in out.Hops
	room
	// warnings are what an operator should know, with the remedy.
	warnings []string
}

// chosen is the route that holds for a prefix.
type chosen struct {
	prefix netip.Prefix
	kind   RouteKind
	table  uint32
	metric uint32
	mtu    int
	ways   []way // of kinds Forward and Connected
	works  bool  // a way of it works, as far as devices and routes say
	// neighbour: no route of the kernel's, but of a neighbour on a connected
	// network, which there is a route to as well.
	neighbour bool
}

// translate makes tables of what the kernel has. inputs restricts the devices
// that packets may come in by, by name; nil: all.
func (p *picture) translate(numbers *numbering, inputs map[string]bool, silent map[HopID]bool) (tables Tables, warnings []string, numbered bool) {
	return p.translateWithin(most, numbers, inputs, silent)
}

// translateWithin makes tables that are no larger than that.
func (p *picture) translateWithin(most sizes, numbers *numbering, inputs map[string]bool, silent map[HopID]bool) (tables Tables, warnings []string, numbered bool) {
	t := &translation{picture: p, silent: silent, room: room{most: most}, at: map[netip.Prefix]int{}, groups: map[string]int{}, hops: map[HopID]int{}}
	t.devices(inputs)
	if others := p.otherRules(); len(others) > 0 {
		t.warnings = append(t.warnings, rulesRemedy(others)+"; until then all packets are left to the kernel")
		return t.out, t.warnings, false
	}
	for _, r := range p.routes4 {
		t.choose(r)
	}
	for _, r := range p.routes6 {
		t.choose(r)
	}
	if t.tooManyRoutes() {
		return t.out, t.warnings, false
	}
	t.hideBehindLocal()
	t.neighbourRoutes()
	names, numbered := numbers.assign(t.nextHops())
	t.out.Ports = numbers.ports()
	t.emit(names)
	t.sayRoom()
	t.sayForwarding()
	return t.out, append(t.warnings, numbers.warnings...), numbered
}

// sayForwarding warns where nothing is forwarded because the kernel does not.
func (t *translation) sayForwarding() {
	on4, on6 := false, false
	for _, d := range t.out.Devices {
		on4, on6 = on4 || d.IPv4, on6 || d.IPv6
	}
	off := map[string]bool{}
	for _, r := range t.out.Routes {
		switch four := r.Prefix.Addr().Is4(); {
		case r.Kind != Forward || len(t.out.Groups[r.Group]) < 2:
		case four && !on4:
			off["net.ipv4.ip_forward"] = true
		case !four && !on6:
			off["net.ipv6.conf.all.forwarding"] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(off)) {
		t.warnings = append(t.warnings, fmt.Sprintf("%s is 0, so packets that have several next hops are not forwarded: sysctl -w %[1]s=1", name))
	}
}

// rulesRemedy is what is wrong with rules besides the default ones.
func rulesRemedy(others []string) string {
	return fmt.Sprintf("%s: the router goes by tables local and main alone, as the kernel's three default rules say; delete it, or route there without rules", others[0])
}

// ethernet finds the device that frames of l leave and come by: l itself, or
// a VLAN device's parent. Bridges, bonds and the like are the kernel's.
func (p *picture) ethernet(l link) (physical link, vlan uint16, ok bool) {
	physical = l
	if l.kind == "vlan" {
		if physical, ok = p.links[l.parent]; !ok || l.vlan == 0 {
			return physical, 0, false
		}
		vlan = l.vlan
	}
	ok = physical.ether && (physical.kind == "" || physical.kind == "veth") &&
		physical.flags&unix.IFF_LOOPBACK == 0 && physical.master == 0 && l.master == 0
	return physical, vlan, ok
}

// devices are where packets come in. A VLAN device's parent has the program,
// so that packets without a tag come by it, too.
func (t *translation) devices(inputs map[string]bool) {
	wanted := map[int]bool{}
	for _, l := range t.links {
		if physical, _, ok := t.ethernet(l); ok && (inputs == nil || inputs[l.name]) {
			wanted[physical.index] = true
		}
	}
	for _, l := range t.links {
		physical, vlan, ok := t.ethernet(l)
		if !ok || !wanted[physical.index] {
			continue
		}
		// What comes without a tag may have had one.
		if vlan == 0 && t.strips[l.index] {
			t.warnings = append(t.warnings, fmt.Sprintf("interface %s takes the tags off frames of its VLANs, which XDP then cannot tell from frames without, so what comes in there is left to the kernel, which knows no selectors: ethtool -K %[1]s rxvlan off", l.name))
			continue
		}
		t.out.Devices = append(t.out.Devices, Device{
			Ifindex: physical.index, Name: l.name, VLAN: vlan, MAC: l.mac,
			IPv4: t.forwards4[l.index], IPv6: t.forwards6,
		})
	}
	slices.SortFunc(t.out.Devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), cmp.Compare(a.VLAN, b.VLAN))
	})
	t.limitDevices()
}

// choose takes a route into account: for a prefix, table local goes before
// main, then the lowest metric of a route that works. Where the kernel looks at more
// than the destination, it is asked.
func (t *translation) choose(r route) {
	c := chosen{prefix: r.prefix, table: r.table, metric: r.metric, mtu: r.mtu}
	c.kind, c.ways = t.kindOf(r)
	c.works = c.kind != Forward || slices.ContainsFunc(c.ways, func(w way) bool { return t.carriesWay(w) })
	i, known := t.at[r.prefix]
	if !known {
		t.at[r.prefix] = len(t.routes)
		t.routes = append(t.routes, c)
		return
	}
	is := &t.routes[i]
	switch {
	case is.table != c.table:
		if c.table == unix.RT_TABLE_LOCAL {
			*is = c
		}
	case r.beyond || is.kind == Beyond:
		is.kind, is.ways = Beyond, nil
	case !is.works && c.works, is.works == c.works && c.metric < is.metric:
		*is = c
	}
}

// carriesWay: the kernel and the device say that it works.
func (t *translation) carriesWay(w way) bool {
	l, ok := t.links[w.device]
	if !ok || w.dead || !l.carries() {
		return false
	}
	physical, _, ok := t.ethernet(l)
	return !ok || physical.carries()
}

// kindOf is what is done with a route's packets, and by which next hops.
func (t *translation) kindOf(r route) (RouteKind, []way) {
	switch r.kind {
	case unix.RTN_UNICAST:
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return Local, nil
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return Unreachable, nil
	default:
		return Beyond, nil
	}
	ways, ok := t.waysOf(r)
	switch {
	case !ok || r.beyond || len(ways) == 0:
		return Beyond, nil
	case len(ways) == 1 && ways[0].device == 0:
		return Unreachable, nil // a nexthop that is a blackhole
	}
	host := r.prefix.IsSingleIP()
	for i, w := range ways {
		l, there := t.links[w.device]
		if _, _, ether := t.ethernet(l); !there || !ether || w.beyond {
			return Beyond, nil
		}
		if !w.gateway.IsValid() {
			if !host {
				return Connected, ways
			}
			ways[i].gateway = r.prefix.Addr()
		}
	}
	return Forward, merge(ways)
}

// waysOf spells out nexthop objects.
func (t *translation) waysOf(r route) (ways []way, ok bool) {
	if r.nexthop == 0 {
		return slices.Clone(r.ways), true
	}
	n, ok := t.nexthops[r.nexthop]
	if !ok {
		return nil, false
	}
	if n.blackhole {
		return []way{{}}, true
	}
	if n.members == nil {
		return []way{n.way}, true
	}
	for _, m := range n.members {
		one, ok := t.nexthops[m.id]
		if !ok || one.blackhole || one.members != nil {
			return nil, false
		}
		one.way.weight = m.weight
		ways = append(ways, one.way)
	}
	return ways, true
}

// merge has each next hop once, with the sum of its weights.
func merge(ways []way) (merged []way) {
	for _, w := range ways {
		i := slices.IndexFunc(merged, func(m way) bool { return m.device == w.device && m.gateway == w.gateway })
		if i < 0 {
			merged = append(merged, w)
			continue
		}
		merged[i].weight += w.weight
		merged[i].dead = merged[i].dead && w.dead
	}
	return merged
}

// hideBehindLocal: what lies within a network of table local (127.0.0.0/8, or
// one that somebody put there) is not main's to route.
func (t *translation) hideBehindLocal() {
	var local []netip.Prefix
	for _, c := range t.routes {
		if c.table == unix.RT_TABLE_LOCAL && !c.prefix.IsSingleIP() {
			local = append(local, c.prefix)
		}
	}
	for i := range t.routes {
		c := &t.routes[i]
		for _, p := range local {
			if c.table == unix.RT_TABLE_MAIN && p.Bits() < c.prefix.Bits() && p.Contains(c.prefix.Addr()) {
				c.kind, c.ways = Local, nil
			}
		}
	}
}

// neighbourRoutes gives every neighbour that was heard of on a connected
// network a route of its own.
func (t *translation) neighbourRoutes() {
	ids := make([]HopID, 0, len(t.neighbours))
	for id, n := range t.neighbours {
		if n.valid() && !id.Gateway.IsLinkLocalUnicast() && !id.Gateway.IsMulticast() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b HopID) int {
		return cmp.Or(a.Gateway.Compare(b.Gateway), cmp.Compare(a.Device, b.Device))
	})
	for _, id := range ids {
		c, ok := t.longest(id.Gateway)
		if !ok || c.kind != Connected || len(c.ways) != 1 || c.ways[0].device != id.Device {
			continue
		}
		if len(t.routes) >= t.most.routes {
			t.lostNeighbours++
			continue
		}
		host := neighbourRoute(id, &c)
		t.at[host.prefix] = len(t.routes)
		t.routes = append(t.routes, host)
	}
}

// longest is the route for an address.
func (t *translation) longest(a netip.Addr) (chosen, bool) {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, _ := a.Prefix(bits)
		if i, ok := t.at[p]; ok {
			return t.routes[i], true
		}
	}
	return chosen{}, false
}

// nextHops are those of all routes: true for those of routes that have more
// than one, which a digit can choose among.
func (t *translation) nextHops() map[namedHop]bool {
	hops, seen := map[namedHop]bool{}, map[string]bool{}
	for _, c := range t.routes {
		if c.kind != Forward || len(c.ways) > MaxMembers {
			continue
		}
		// Most of many routes have the next hops of others.
		key := t.keyOf(c.ways)
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		for _, w := range c.ways {
			h := t.name(w)
			hops[h] = hops[h] || len(c.ways) > 1
		}
	}
	return hops
}

func (t *translation) name(w way) namedHop { return namedHop{t.links[w.device].name, w.gateway} }

// emit writes hops, groups and routes.
func (t *translation) emit(ports map[namedHop]int) {
	t.out.Routes = make([]Route, 0, len(t.routes))
	for _, c := range t.routes {
		if c.kind == Forward && len(c.ways) > MaxMembers {
			t.warnings = append(t.warnings, fmt.Sprintf("the route to %v has %d next hops, and at most %d can be chosen among: its packets are left to the kernel, which knows no selectors; use fewer", c.prefix, len(c.ways), MaxMembers))
			c.kind = Beyond
		}
		if c.kind == Forward && !t.fits(&c) {
			if !t.leave(&c) {
				continue
			}
			c.kind = Beyond
		}
		r := Route{Prefix: c.prefix, Kind: c.kind}
		if c.kind == Forward {
			r.Group = t.group(c, ports)
		}
		t.out.Routes = append(t.out.Routes, r)
	}
}

// keyOf is a list of ways as a key of maps, until the next call.
func (t *translation) keyOf(ways []way) []byte {
	t.key = t.key[:0]
	for _, w := range ways {
		a := w.gateway.As16()
		t.key = binary.NativeEndian.AppendUint32(append(t.key, a[:]...), uint32(w.device))
		t.key = binary.NativeEndian.AppendUint32(t.key, uint32(w.weight))
		if w.gateway.Is4() {
			t.key = append(t.key, 4)
		}
		if w.dead {
			t.key = append(t.key, 'd')
		}
	}
	return t.key
}

// group is the index of the group of a route's next hops.
func (t *translation) group(c chosen, ports map[namedHop]int) int {
	if i, ok := t.groups[string(t.keyOf(c.ways))]; ok && c.mtu == 0 {
		return i
	}
	asListed := string(t.key)
	port := func(w way) int {
		if p, ok := ports[t.name(w)]; ok {
			return p
		}
		return -1
	}
	slices.SortFunc(c.ways, func(a, b way) int {
		// Those without a number are -1: as unsigned, they are the last.
		return cmp.Or(cmp.Compare(uint(port(a)), uint(port(b))), t.name(a).compare(t.name(b)))
	})
	var g Group
	for _, w := range c.ways {
		t.hop(w, c.mtu, port(w))
		g = append(g, Member{HopID{w.device, w.gateway}, w.weight})
	}
	i, ok := t.groups[string(t.keyOf(c.ways))]
	if !ok {
		i = len(t.out.Groups)
		t.groups[string(t.key)] = i
		t.out.Groups = append(t.out.Groups, g)
		if len(g) > 1 {
			t.room.groups++
		}
	}
	t.groups[asListed] = i
	return i
}

// hop adds a next hop. A route's own MTU counts for all routes over the hop:
// what is larger is left to the kernel, which knows better.
func (t *translation) hop(w way, mtu, port int) {
	id := HopID{w.device, w.gateway}
	if i, ok := t.hops[id]; ok {
		h := &t.out.Hops[i]
		if mtu != 0 {
			h.MTU = min(h.MTU, mtu)
		}
		// The number it has in routes with several; the kernel's word in any.
		h.Port = max(h.Port, port)
		if w.dead && h.Usable {
			h.Usable, h.Problem = false, deadProblem
		}
		return
	}
	l := t.links[w.device]
	physical, vlan, _ := t.ethernet(l)
	h := Hop{ID: id, Ifindex: physical.index, VLAN: vlan, Source: l.mac, MTU: l.mtu, Port: port,
		Problem: t.problem(w, l), Redirect: t.takesRedirects(physical.index)}
	h.Usable = h.Problem == ""
	if mtu != 0 {
		h.MTU = min(h.MTU, mtu)
	}
	if n := t.neighbours[id]; n.valid() {
		h.MAC = n.mac
	}
	t.hops[id] = len(t.out.Hops)
	t.out.Hops = append(t.out.Hops, h)
}

const deadProblem = "the kernel calls it dead"

// problem says why a next hop over l cannot be used; empty: it can.
func (t *translation) problem(w way, l link) string {
	switch {
	case l.flags&unix.IFF_UP == 0:
		return "its device is down"
	case w.dead:
		return deadProblem
	case !t.carriesWay(w):
		return "its device has no carrier"
	case t.silent[HopID{w.device, w.gateway}]:
		return "it does not answer (ARP, neighbour discovery)"
	}
	return ""
}
