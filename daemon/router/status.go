package router

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel/router"
)

// status is everything that the router knows, as GetStatus and the metrics
// show it.
func (d *server) status() (*fairleadv1.GetStatusResponse, error) {
	view := d.follower.View()
	counters, err := d.plane.Counters()
	if err != nil {
		return nil, err
	}
	plane := d.plane.Status()
	s := d.Status(fairleadv1.Role_ROLE_ROUTER)
	s.PinDir, s.Adopted = plane.PinDir, plane.Adopted
	for _, i := range plane.Devices {
		s.Interfaces = append(s.Interfaces, &fairleadv1.Interface{Name: i.Name, Index: uint32(i.Ifindex), XdpMode: i.Mode, Mtu: uint32(view.MTUs[i.Ifindex])})
	}
	for _, l := range plane.Limits {
		s.Limits = append(s.Limits, &fairleadv1.Limit{Name: l.Name, Used: l.Used, Limit: l.Limit})
	}
	for _, r := range counters.Passed {
		s.Reasons = append(s.Reasons, &fairleadv1.Reason{Name: r.Name, Packets: r.Packets, Bytes: r.Bytes})
	}
	s.Router = &fairleadv1.Router{
		Selector: describeSelector(d.fabric.Selector, d.node.Plain),
		Hops:     describeHops(&view, counters.Hops), Routes: countRoutes(view.Tables.Routes),
		Groups: uint32(len(view.Tables.Groups)), Changes: view.Changes, ChangedUnixMs: daemon.UnixMS(view.Changed), Error: view.Err,
		Selected: counters.Ways.Selected, Gone: counters.Ways.Gone, Hashed: counters.Ways.Hashed, Single: counters.Ways.Single, Bytes: counters.Bytes,
	}
	for _, p := range view.Tables.Ports {
		s.Router.Ports = append(s.Router.Ports, uint32(p))
	}
	s.Warnings, s.NotReady = d.warnings(&view), append(d.notReady(&view), daemon.Detached(s.Interfaces)...)
	if plane.Astray != "" {
		s.Warnings = append(s.Warnings, plane.Astray)
	}
	return s, nil
}

// notReady says which next hops that packets may select cannot be sent to yet:
// until then the kernel forwards in their place, by its own choice. One of which
// that is so for long keeps no router from work.
func (d *server) notReady(view *router.View) (why []string) {
	if time.Since(d.Started()) > daemon.HopTime {
		return nil
	}
	for _, h := range view.Tables.Hops {
		if text := whyNot(h); h.Port >= 0 && h.Usable && text != "" {
			why = append(why, fmt.Sprintf("next hop %v dev %s: %s", h.ID.Gateway, view.Names[h.ID.Device], text))
		}
	}
	return why
}

// warnings are what an operator should know now.
func (d *server) warnings(view *router.View) (warnings []string) {
	warnings = append(d.Warnings(), view.Warnings...)
	if view.Err != "" {
		warnings = append(warnings, "the kernel's routing is not in force, packets go by what was: "+view.Err)
	}
	if text := d.stale.Load(); text != nil {
		warnings = append(warnings, *text)
	}
	if d.node.Plain {
		return append(warnings, "plain in fabric.yaml: this router goes by the hash alone, whatever packets select")
	}
	ports := map[router.HopID]int{}
	for _, h := range view.Tables.Hops {
		ports[h.ID] = h.Port
	}
	for _, g := range view.Tables.Groups {
		hops := make([]pathsel.Hop, len(g))
		for i, m := range g {
			hops[i] = pathsel.Hop{Port: ports[m.Hop], Weight: m.Weight}
		}
		if err := d.sel.Fits(hops); err != nil && len(g) > 1 {
			warnings = append(warnings, fmt.Sprintf("next hops %s: %v", memberNames(view, g), err))
		}
	}
	return warnings
}

func memberNames(view *router.View, g router.Group) string {
	var names []string
	for _, m := range g {
		names = append(names, fmt.Sprintf("%v dev %s", m.Hop.Gateway, view.Names[m.Hop.Device]))
	}
	return strings.Join(names, ", ")
}

func describeSelector(c pathsel.Config, plain bool) *fairleadv1.RouterSelector {
	if plain {
		return nil
	}
	return &fairleadv1.RouterSelector{Permutation: string(c.Permutation), Radix: uint32(c.Radix),
		Ipv4: string(c.IPv4), Ipv6: string(c.IPv6), Digest: c.Digest()}
}

// describeHops: those with a port number first.
func describeHops(view *router.View, counters []router.HopCounters) (hops []*fairleadv1.RouterHop) {
	counts := make(map[router.HopID]router.HopCounters, len(counters))
	for _, c := range counters {
		counts[c.ID] = c
	}
	for _, h := range view.Tables.Hops {
		n := counts[h.ID]
		hop := &fairleadv1.RouterHop{
			Port: int32(h.Port), Interface: view.Names[h.ID.Device], Gateway: h.ID.Gateway.String(), Vlan: uint32(h.VLAN), Mtu: uint32(h.MTU),
			Selected: n.Ways.Selected, Gone: n.Ways.Gone, Hashed: n.Ways.Hashed, Single: n.Ways.Single, Bytes: n.Bytes,
		}
		if h.MAC != [6]byte{} {
			hop.Mac = net.HardwareAddr(h.MAC[:]).String()
		}
		hop.Why = whyNot(h)
		hop.Usable = hop.Why == ""
		hops = append(hops, hop)
	}
	slices.SortStableFunc(hops, func(a, b *fairleadv1.RouterHop) int {
		return cmp.Or(cmp.Compare(uint32(a.Port), uint32(b.Port)), cmp.Compare(a.Interface, b.Interface))
	})
	return hops
}

// whyNot says why packets do not go to a hop; empty: they do.
func whyNot(h router.Hop) string {
	switch {
	case h.Problem != "":
		return h.Problem
	case h.MAC == [6]byte{}:
		return "its MAC address is not known yet: packets are left to the kernel, which asks for it"
	case !h.Redirect:
		return "its device takes no frames from XDP programs, so packets are left to the kernel, which knows no selectors: see fairlead doctor"
	}
	return ""
}

// routeWords are the kinds of routes in the API.
var routeWords = map[router.RouteKind]string{
	router.Forward: "forward", router.Local: "local", router.Unreachable: "unreachable", router.Connected: "connected", router.Beyond: "beyond",
}

func countRoutes(routes []router.Route) (counts []*fairleadv1.RouterRoutes) {
	by := map[router.RouteKind]*fairleadv1.RouterRoutes{}
	for kind := router.Forward; kind <= router.Beyond; kind++ {
		by[kind] = &fairleadv1.RouterRoutes{Kind: routeWords[kind]}
		counts = append(counts, by[kind])
	}
	for _, r := range routes {
		if r.Prefix.Addr().Is4() {
			by[r.Kind].Ipv4++
		} else {
			by[r.Kind].Ipv6++
		}
	}
	return counts
}

// routesTo are the routes that hold for addresses; without any, all routes.
func routesTo(view *router.View, addresses []netip.Addr) (routes []*fairleadv1.RouterRoute) {
	hops := map[router.HopID]*router.Hop{}
	for i := range view.Tables.Hops {
		h := &view.Tables.Hops[i]
		hops[h.ID] = h
	}
	at := make(map[netip.Prefix]*router.Route, len(view.Tables.Routes))
	for i := range view.Tables.Routes {
		r := &view.Tables.Routes[i]
		at[r.Prefix] = r
		if len(addresses) == 0 {
			routes = append(routes, describeRoute(view, hops, r))
		}
	}
	for _, a := range addresses {
		found := &fairleadv1.RouterRoute{}
		for bits := a.BitLen(); bits >= 0 && found.Prefix == ""; bits-- {
			p, _ := a.Prefix(bits) // never more bits than the address has
			if r := at[p]; r != nil {
				found = describeRoute(view, hops, r)
			}
		}
		routes = append(routes, found)
	}
	return routes
}

func describeRoute(view *router.View, hops map[router.HopID]*router.Hop, r *router.Route) *fairleadv1.RouterRoute {
	out := &fairleadv1.RouterRoute{Prefix: r.Prefix.String(), Kind: routeWords[r.Kind]}
	if r.Kind != router.Forward {
		return out
	}
	for _, m := range view.Tables.Groups[r.Group] {
		h := hops[m.Hop]
		out.Members = append(out.Members, &fairleadv1.RouterMember{
			Port: int32(h.Port), Interface: view.Names[m.Hop.Device], Gateway: m.Hop.Gateway.String(),
			Weight: uint32(m.Weight), Usable: whyNot(*h) == "",
		})
	}
	return out
}
