package lab

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A lab of scheme faild:
//
//	                       ┌ switch1 ─ Ethernet ┬ server1 … serverN
//	client ──── router ────┤                    │    (a card for each switch)
//	            ECMP over  └ switch2 ─ Ethernet ┘
//	            switches
//
// A switch routes the VIPs' packets to its virtual nexthops; the servers'
// answers go back through any switch.

var switchSysctls = [][2]string{
	{"net.ipv4.ip_forward", "1"},
	{"net.ipv6.conf.all.forwarding", "1"},
}

// multihomedSysctls: a server's answers leave by any of its cards that works.
var multihomedSysctls = append(slices.Clone(netspace.Multihomed),
	[2]string{"net.ipv4.fib_multipath_hash_policy", "1"}, [2]string{"net.ipv6.fib_multipath_hash_policy", "1"})

// faild tells a lab of switches from one of balancers: a VIP of scheme faild
// has only the former, and any other only the latter.
func (l *Lab) faild() bool {
	return slices.ContainsFunc(l.VIPs, func(v VIP) bool { return v.row().Switched })
}

// buildSwitches attaches switches to the router and servers to the switches.
func (l *Lab) buildSwitches() error {
	for n, m := range l.fronts() {
		if err := netspace.In(l.namespace(m), func() error {
			if err := netspace.Sysctls(netspace.MachineSysctls, switchSysctls); err != nil {
				return err
			}
			return l.addBridge(switchAddress4(n+1), switchAddress6(n+1))
		}); err != nil {
			return fmt.Errorf("build %s: %w", m, err)
		}
		if err := l.attach(cable{hub: "router", port: m, machine: m, device: uplink, mtu: l.MTU}); err != nil {
			return err
		}
		if err := l.configure(m, nil, card{uplink, lbAddress4(n + 1), lbAddress6(n + 1), gateway4, gateway6}); err != nil {
			return err
		}
	}
	for n, m := range l.servers() {
		if err := netspace.In(l.namespace(m), func() error { return netspace.Sysctls(netspace.MachineSysctls, multihomedSysctls) }); err != nil {
			return fmt.Errorf("build %s: %w", m, err)
		}
		for _, c := range l.cables(m) {
			if err := l.attach(c); err != nil {
				return err
			}
		}
		if err := l.configure(m, func() error { return l.buildServer(n) }, l.cards(n+1)...); err != nil {
			return err
		}
	}
	return nil
}

// cards are those of server n, one for each switch.
func (l *Lab) cards(n int) (cards []card) {
	for s := range l.fronts() {
		cards = append(cards, card{device(s), behindSwitch4(s+1, n), behindSwitch6(s+1, n), switchAddress4(s + 1), switchAddress6(s + 1)})
	}
	return cards
}

// leave does on every server what a routing daemon does there when a switch
// is gone: no answer leaves by its card any more. The kernel alone does so for
// IPv4; a socket of IPv6 goes on with the nexthop that it had.
func (l *Lab) leave(gone int) error {
	for n, m := range l.servers() {
		cards := slices.Delete(l.cards(n+1), gone-1, gone)
		if err := netspace.In(l.namespace(m), func() error { return setDefaults(cards) }); err != nil {
			return fmt.Errorf("take %s's routes off %s: %w", m, l.front(gone), err)
		}
	}
	return nil
}

// withoutNexthop names the first server that is up and has no nexthop of the
// switch, or is not up.
func withoutNexthop(s *fairleadv1.GetStatusResponse) string {
	if s.Switch.Error != "" {
		return "anybody: " + s.Switch.Error
	}
	active := map[string]bool{}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			active[slot.Server] = active[slot.Server] || slot.State == fairleadv1.SlotState_SLOT_STATE_ACTIVE
		}
	}
	for _, h := range s.Switch.Hosts {
		if active[h.Server] && (h.State != fairleadv1.Serving_SERVING_UP || h.Nexthops == 0) {
			return fmt.Sprintf("%s (%v, %d nexthops, %s)", h.Server, h.State, h.Nexthops, h.Detail)
		}
	}
	return ""
}

// hostsAre tells whether a switch takes the machines for up, or for not up.
func (l *Lab) hostsAre(hosts []*fairleadv1.SwitchHost, machines []string, up bool) bool {
	return !slices.ContainsFunc(hosts, func(h *fairleadv1.SwitchHost) bool {
		return slices.Contains(machines, l.machineName(h.Server)) && (h.State == fairleadv1.Serving_SERVING_UP) != up
	})
}

// announced tells whether a switch announces every VIP: what a BGP speaker
// beside it would pass on.
func (l *Lab) announced(machine string) (bool, error) {
	vips := slices.DeleteFunc(slices.Clone(l.VIPs), VIP.bare)
	count := 0
	err := netspace.In(l.namespace(machine), func() error {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: announceTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list announced routes: %w", err)
		}
		for _, v := range vips {
			if slices.ContainsFunc(routes, func(r netlink.Route) bool {
				return r.Dst != nil && r.Dst.IP.Equal(v.Address.AsSlice())
			}) {
				count++
			}
		}
		return nil
	})
	return count == len(vips), err
}

// What the lab calls the kernel's own ECMP groups where it compares with them.
const (
	plainECMP     = "ecmp"
	resilientECMP = "resilient"
)

// announceTable is where a switch puts the routes that a BGP speaker shall
// announce (the configuration's default).
const announceTable = 177

// awaitAnnounced waits until a switch announces the VIPs, or none of them.
func (l *Lab) awaitAnnounced(ctx context.Context, machine string, want bool) error {
	var last error
	done := netspace.WaitFor(readyWait, func() bool {
		is, err := l.announced(machine)
		last = err
		return ctx.Err() != nil || err == nil && is == want
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !done {
		return fmt.Errorf("%s does not have its routes in table %d as wanted (announced: %v) after %v: %v", machine, announceTable, want, readyWait, last)
	}
	return nil
}

// switchSteps are the changes of a churn that only switches know. One that
// drains leaves the joined one to carry the traffic.
func (c *churn) switchSteps(drained int) []step {
	name := c.lab.front(drained)
	return []step{
		{name: "drain switch", text: name + " drains; the router drops it as its routes go", after: "join switch", gap: 1,
			do: func(ctx context.Context) error { return c.drainSwitch(ctx, drained, true) }},
		{name: "undrain switch", text: name + " is announced again", after: "drain switch", gap: 2,
			do: func(ctx context.Context) error { return c.drainSwitch(ctx, drained, false) }},
	}
}

// drainSwitch withdraws a switch's routes, or announces them again, and does
// what the router's BGP would do then.
func (c *churn) drainSwitch(ctx context.Context, n int, drain bool) error {
	name := c.lab.front(n)
	asking, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	if _, err := c.lab.api(name).DrainSwitch(asking, connect.NewRequest(&fairleadv1.DrainSwitchRequest{Undrain: !drain})); err != nil {
		return fmt.Errorf("ask %s: %w", name, err)
	}
	if err := c.lab.awaitAnnounced(ctx, name, !drain); err != nil {
		return err
	}
	if drain {
		c.ecmp = slices.DeleteFunc(c.ecmp, func(o int) bool { return o == n })
	} else {
		c.ecmp = append(c.ecmp, n)
	}
	return c.reshuffle()
}
