package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/ethtool"
	"github.com/fairlead/fairlead/kernel/router"
)

// router: what `fairlead router` needs of the machine, and what it would make
// of the kernel's routes.
func (r *report) router(f *topology.Fabric, node int) {
	n := &f.Nodes[node]
	i, err := router.Inspect(router.FollowOptions{Fabric: f, Node: node, Interfaces: n.Interfaces})
	if err != nil {
		r.fail("router "+n.Name, err.Error(), "")
		return
	}
	r.routerRules(i)
	r.routerForwards(i)
	r.routerDevices(f, node, i)
	r.routerHops(i)
	for _, text := range i.Warnings {
		r.warn("router "+n.Name, text, "") // which says the remedy, too
	}
}

func (r *report) routerRules(i *router.Inspection) {
	if i.Rules == "" {
		r.ok("rules", "the kernel's three default ones")
		return
	}
	what, remedy, _ := strings.Cut(i.Rules, ": ")
	r.fail("rules", what+" is not one of the default rules", remedy)
}

// routerForwards: time exceeded, too large and all else that is left to the
// kernel needs a kernel that forwards.
func (r *report) routerForwards(i *router.Inspection) {
	four, six := families(i.Tables.Routes)
	r.forwards(four && !i.IPv4, six && !i.IPv6, "this machine forwards no packets of a family that it has routes for; the router does as the kernel does")
}

// forwards: the kernel does so for every family that packets come of; four and
// six lack it, which is wrong.
func (r *report) forwards(four, six bool, wrong string) {
	var set []string
	if four {
		set = append(set, "net.ipv4.ip_forward=1")
	}
	if six {
		set = append(set, "net.ipv6.conf.all.forwarding=1")
	}
	if len(set) > 0 {
		r.fail("forwarding", wrong, "sysctl -w "+strings.Join(set, " "))
		return
	}
	r.ok("forwarding", "on")
}

// families that have routes by which packets are forwarded.
func families(routes []router.Route) (four, six bool) {
	for _, one := range routes {
		if one.Kind == router.Forward {
			four = four || one.Prefix.Addr().Is4()
			six = six || one.Prefix.Addr().Is6() && !one.Prefix.Addr().IsLinkLocalUnicast()
		}
	}
	return four, six
}

// routerDevices: those that packets come in by, and those that the file names.
func (r *report) routerDevices(f *topology.Fabric, node int, i *router.Inspection) {
	there := map[string]bool{}
	for _, name := range i.Names {
		there[name] = true
	}
	looked := map[string]bool{}
	for _, d := range i.Tables.Devices {
		if name := i.Names[d.Ifindex]; !looked[name] {
			looked[name] = true
			r.routerDevice(name)
		}
	}
	for l := range f.Links {
		for _, end := range f.Links[l].Ends {
			if end.Node == node && end.Device != "" && !there[end.Device] {
				r.fail("interface "+end.Device, "does not exist, and fabric.yaml has link "+f.LinkName(l)+" there", "correct the link's devices in fabric.yaml, or make the device")
			}
		}
	}
}

// routerDevice: what comes in by a veth must have its checksums finished.
func (r *report) routerDevice(name string) {
	check := "interface " + name
	link, err := netlink.LinkByName(name)
	if err != nil {
		return // it vanished meanwhile
	}
	if link.Type() == "veth" {
		if ethtool.On(name, ethtool.TXChecksum) {
			r.fail(check, "a veth with tx checksum offload: what its senders leave to it, and XDP sends on, has wrong checksums", "ethtool -K "+name+" tx off, and the same at its other end")
			return
		}
	}
	r.ok(check, fmt.Sprintf("%s, mtu %d", link.Type(), link.Attrs().MTU))
}

// routerHops: next hops to choose among, whose devices take what XDP sends.
func (r *report) routerHops(i *router.Inspection) {
	lost, unusable := map[string]bool{}, []string(nil)
	for _, h := range i.Tables.Hops {
		name := i.Names[h.Ifindex]
		if !h.Redirect {
			lost[name] = true
		}
		if h.Problem != "" && h.Port >= 0 {
			unusable = append(unusable, fmt.Sprintf("%v dev %s (%s)", h.ID.Gateway, name, h.Problem))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		r.warn("interface "+name, "takes no frames from XDP programs now, so the router leaves its packets to the kernel, which knows no selectors",
			"a veth: ethtool -K PEER gro on at its other end, or an XDP program there; a card: start the router, whose program on "+name+" switches it on with most drivers, or use another card")
	}
	switch {
	case i.Several == 0:
		r.warn("next hops", "no route has several: packets have nothing to choose", "have the routing daemon install equal-cost routes (BIRD: merge paths on; FRR: maximum-paths), or ip route add PREFIX nexthop via A nexthop via B")
	case len(unusable) > 0:
		r.warn("next hops", "some cannot be used now: "+strings.Join(unusable, ", "), "see to the links, or take them out of the routes")
	default:
		r.ok("next hops", fmt.Sprintf("%d routes have several", i.Several))
	}
}
