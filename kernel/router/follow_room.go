package router

import (
	"fmt"
	"net/netip"
)

// What tables may hold at most. Maps have twice the room: a change puts the
// new beside the old before that goes.
const (
	mostDevices = 4096
	mostRoutes  = 1 << 20 // of both families
	mostGroups  = 4096    // of several next hops
	mostHops    = 8192    // neighbours on connected networks among them
)

// sizes are of tables.
type sizes struct{ devices, routes, groups, hops int }

var most = sizes{mostDevices, mostRoutes, mostGroups, mostHops}

// room is what there is room for, and what there was none for: that is left to
// the kernel, so that the rest goes on following it.
type room struct {
	most           sizes
	groups         int // of several next hops, so far
	lostNeighbours int
	lostRoutes     int
}

// limitDevices keeps the first devices, by their indices.
func (t *translation) limitDevices() {
	if n := len(t.out.Devices); n > t.most.devices {
		t.out.Devices = t.out.Devices[:t.most.devices]
		t.warnings = append(t.warnings, fmt.Sprintf("packets that come in by %d of %d devices and VLANs are left to the kernel, which knows no selectors: name at most %d with --interface or as the router's interfaces in fabric.yaml", n-t.most.devices, n, t.most.devices))
	}
}

// tooManyRoutes: all packets are left to the kernel then, as a route that was
// left out would have them go by a shorter one.
func (t *translation) tooManyRoutes() bool {
	n := len(t.routes)
	if n <= t.most.routes {
		return false
	}
	t.warnings = append(t.warnings, fmt.Sprintf("the kernel has %d routes, and the router has room for %d, so all packets are left to the kernel, which knows no selectors: summarize routes", n, t.most.routes))
	return true
}

// fits: there is room for a route by these next hops.
func (t *translation) fits(c *chosen) bool {
	if _, known := t.groups[string(t.keyOf(c.ways))]; known {
		return true
	}
	fresh := 0
	for _, w := range c.ways {
		if _, known := t.hops[HopID{w.device, w.gateway}]; !known {
			fresh++
		}
	}
	return len(t.out.Hops)+fresh <= t.most.hops && (len(c.ways) < 2 || t.room.groups < t.most.groups)
}

// leave notes a route that there is no room for, and says whether one that
// leaves its packets to the kernel must stand in its place: those of a neighbour
// go by its network's.
func (t *translation) leave(c *chosen) (stands bool) {
	if c.neighbour {
		t.lostNeighbours++
		return false
	}
	t.lostRoutes++
	return true
}

// sayRoom warns of what was left.
func (t *translation) sayRoom() {
	if t.lostRoutes > 0 {
		t.warnings = append(t.warnings, fmt.Sprintf("the packets of %d routes are left to the kernel, which knows no selectors: the router has room for %d next hops and for %d different groups of them; have fewer", t.lostRoutes, t.most.hops, t.most.groups))
	}
	if t.lostNeighbours > 0 {
		t.warnings = append(t.warnings, fmt.Sprintf("packets to %d neighbours on connected networks are left to the kernel, which is slower: the router has room for %d next hops and neighbours and %d routes; have smaller networks, or routers in front of them", t.lostNeighbours, t.most.hops, t.most.routes))
	}
}

// neighbourRoute is that of one neighbour.
func neighbourRoute(id HopID, network *chosen) chosen {
	return chosen{prefix: netip.PrefixFrom(id.Gateway, id.Gateway.BitLen()), kind: Forward, table: network.table, mtu: network.mtu,
		works: true, neighbour: true, ways: []way{{device: id.Device, gateway: id.Gateway, weight: 1}}}
}
