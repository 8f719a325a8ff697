package doctor

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// balanced is how many nexthops a server should have at least: with n a
// server that drains leaves the others between 0 and 1/n more than the mean.
const balanced = 8

// switches: what a switch of scheme faild needs of the machine.
func (r *report) switches(cfg *config.Config, s *config.Switch) {
	a, err := controller.First(cfg)
	if err != nil {
		r.fail("faild", err.Error(), "correct the file (fairlead check)")
		return
	}
	d, ok, err := tables.Switch(a)
	if err != nil {
		r.fail("faild", err.Error(), "correct the file (fairlead check)")
		return
	}
	if !ok {
		r.warn("faild", "the file has no VIP of scheme faild: this switch has nothing to do", "add one, or take the switch out of the file")
		return
	}
	i, err := swtch.Inspect(s.Bridge, s.Ports, d.Servers, d.Seed)
	if err != nil {
		r.fail("bridge "+s.Bridge, err.Error(), "run as root")
		return
	}
	r.nexthops(&d)
	r.hashing(i, s)
	four, six := swtch.Families(d.VIPs)
	r.forwards(four && !i.Forwards4, six && !i.Forwards6, "this machine forwards no packets of a family that VIPs have")
	if i.Unfit != nil {
		what, remedy, _ := strings.Cut(i.Unfit.Error(), ": ")
		r.fail("bridge "+s.Bridge, what, remedy)
		return
	}
	r.ok("bridge "+s.Bridge, fmt.Sprintf("up, %d ports, mtu %d", len(i.PortMTUs), i.MTU))
	r.ports(i, s)
	r.flooding(i, s)
	r.roomOf(i, s)
	r.servedHere(d.VIPs)
}

// nexthops: enough for the servers, and few enough for other programs.
func (r *report) nexthops(d *tables.SwitchPlan) {
	n, servers := d.Table.Len(), 0
	for _, s := range d.Servers {
		if s.Weight > 0 {
			servers++
		}
	}
	const name = "nexthops"
	switch {
	case n < servers:
		r.fail(name, fmt.Sprintf("buckets: %d nexthops for %d servers: some would get nothing", n, servers),
			fmt.Sprintf("set buckets to %d or more (at most %d) before the first start; it is fixed for the VIPs' life", min(balanced*servers, vip.MaxNexthops), vip.MaxNexthops))
	case n < balanced*servers && n < vip.MaxNexthops:
		r.warn(name, fmt.Sprintf("buckets: %d nexthops for %d servers: when one drains, some others get up to %d %% more than their share", n, servers, 100*servers/n),
			fmt.Sprintf("set buckets to %d or more before the first start; it is fixed for the VIPs' life", min(balanced*servers, vip.MaxNexthops)))
	case n > swtch.ListedNexthops:
		r.warn(name, fmt.Sprintf("buckets: %d nexthops in a group: `ip nexthop` and programs that list all nexthops fail with more than %d (single ones can be shown)", n, swtch.ListedNexthops),
			fmt.Sprintf("set buckets to at most %d where other programs list nexthops", swtch.ListedNexthops))
	default:
		r.ok(name, fmt.Sprintf("%d for %d servers", n, servers))
	}
}

// hashing: all switches must hash alike, or a packet that another switch gets
// goes to another server.
func (r *report) hashing(i *swtch.Inspection, s *config.Switch) {
	const name = "hash"
	if len(i.Missing) > 0 {
		r.fail(name, "this kernel has no "+strings.Join(i.Missing, ", ")+": switches would not hash alike", "use Linux 6.11 or newer, with IPv6 not switched off at boot")
	}
	var is, set []string
	for _, w := range i.Wrong {
		is = append(is, fmt.Sprintf("%s is %s", w.Name, w.Is))
		set = append(set, fmt.Sprintf("%s=%s", w.Name, w.Value))
	}
	if len(is) > 0 {
		r.fail(name, "not as all switches of this deployment must have it: "+strings.Join(is, ", "),
			"sysctl -w "+strings.Join(set, " ")+" (fairlead switch sets these when it starts and keeps them; if another program sets them, stop it)")
	}
	if len(i.Missing)+len(i.Wrong) == 0 {
		r.ok(name, "policy, fields and seed are the deployment's")
	}
}

// ports: each server's is known, so that its frames go there alone.
func (r *report) ports(i *swtch.Inspection, s *config.Switch) {
	var configured, unknown []string
	for _, server := range slices.Sorted(maps.Keys(i.Ports)) {
		if i.Ports[server] != "" {
			continue
		}
		if port, ok := s.Ports[server]; ok {
			configured = append(configured, fmt.Sprintf("%s (of %s)", port, server))
		} else {
			unknown = append(unknown, server)
		}
	}
	if len(configured) > 0 {
		r.fail("ports", "not in bridge "+s.Bridge+": "+strings.Join(configured, ", "), "ip link set PORT master "+s.Bridge+", or correct switches[].ports")
	}
	if len(unknown) > 0 {
		r.warn("ports", "where these servers are is not known: "+strings.Join(unknown, ", ")+"; until they are heard of, their frames go to all ports",
			"name their ports under switches[].ports, or give "+s.Bridge+" an address in the servers' network, so that they can be asked")
	}
	if len(i.Cut) > 0 {
		var ports []string
		for _, server := range i.Cut {
			ports = append(ports, fmt.Sprintf("%s (of %s)", i.Ports[server], server))
		}
		r.warn("ports", "down, or without a carrier: "+strings.Join(ports, ", ")+"; these servers count as down, whatever their agents say",
			"ip link set PORT up, or see to the cable and the server's end")
	}
	if len(configured)+len(unknown)+len(i.Cut) == 0 {
		r.ok("ports", fmt.Sprintf("of all %d servers are known", len(i.Ports)))
	}
	if len(i.Alike) > 0 {
		r.warn("servers' MAC addresses", "begin as those that name servers do: "+strings.Join(i.Alike, ", "),
			"give these cards other addresses (ip link set DEV address 02:…): 9a:, 9e: and 96: are the scheme's")
	}
}

// flooding: what of the servers' ports keeps frames from servers, or gives
// them to all.
func (r *report) flooding(i *swtch.Inspection, s *config.Switch) {
	var isolated, silent, flooded []string
	unknown := false
	seen := map[string]bool{}
	for _, server := range slices.Sorted(maps.Keys(i.Ports)) {
		port := i.Ports[server]
		if unknown = unknown || port == ""; port == "" || seen[port] {
			continue
		}
		seen[port] = true
		link, err := netlink.LinkByName(port)
		if err != nil {
			continue
		}
		info, err := netlink.LinkGetProtinfo(link)
		if err != nil {
			continue
		}
		if info.Isolated {
			isolated = append(isolated, port)
		}
		if info.Flood {
			flooded = append(flooded, port)
		} else {
			silent = append(silent, port)
		}
	}
	if len(isolated) > 0 {
		r.fail("isolated ports", "servers cannot pass packets on to each other: "+strings.Join(isolated, ", "), "bridge link set dev PORT isolated off")
	}
	switch {
	case unknown && len(silent) > 0:
		r.fail("flooding", "frames of servers whose port is not known are not flooded to "+strings.Join(silent, ", ")+", so they may reach nobody", "name all ports under switches[].ports, or bridge link set dev PORT flood on")
	case len(flooded) > 0:
		r.ok("flooding", fmt.Sprintf("unknown unicast goes to %d ports; frames of VIPs have entries and do not. To keep it from servers altogether: bridge link set dev PORT flood off, with entries for the servers' own addresses; and mcast_flood off where no server needs multicast", len(flooded)))
	default:
		r.ok("flooding", "off on the servers' ports")
	}
}

// roomOf: packets leave as they come, so a port must have room for what comes.
func (r *report) roomOf(i *swtch.Inspection, s *config.Switch) {
	before := len(r.checks)
	for _, name := range slices.Sorted(maps.Keys(i.PortMTUs)) {
		if mtu := i.PortMTUs[name]; mtu < i.MTU {
			r.fail("mtu", fmt.Sprintf("port %s has %d and bridge %s %d: larger frames are lost there without a word", name, mtu, s.Bridge, i.MTU), fmt.Sprintf("ip link set %s mtu %d", name, i.MTU))
		}
	}
	if i.MTU < fullSize {
		r.warn("mtu", fmt.Sprintf("bridge %s has %d: larger packets are refused towards the client, and the refusal's path is the client's", s.Bridge, i.MTU), fmt.Sprintf("ip link set %s mtu %d, and the ports and servers likewise", s.Bridge, fullSize))
	}
	if len(r.checks) > before {
		return
	}
	r.ok("mtu", fmt.Sprintf("%d on the bridge and its ports", i.MTU))
}

// servedHere: a VIP that is an address of the switch's own is served by it.
func (r *report) servedHere(vips []netip.Addr) {
	for _, vip := range vips {
		routes, err := netlink.RouteGet(net.IP(vip.AsSlice()))
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			r.fail("VIP "+vip.String(), "is this machine's own address: its packets end here", "ip addr del "+vip.String()+" from the device that has it")
		}
	}
}

// faildMAC: frames to a server's own card must not read as frames that name
// servers.
func (r *report) faildMAC(cfg *config.Config, server string, interfaces []string) {
	for i := range cfg.VIPs {
		v := &cfg.VIPs[i]
		if !v.Scheme.Row().Switched || !member(*v, server) {
			continue
		}
		for _, name := range interfaces {
			link, err := netlink.LinkByName(name)
			if err != nil || len(link.Attrs().HardwareAddr) != 6 {
				continue
			}
			if mac := link.Attrs().HardwareAddr; swtch.LooksLikeFaild(wire.MAC(mac)) {
				r.warn("MAC address of "+name, mac.String()+" begins as the addresses of scheme faild do: another server's entry may be the same",
					"ip link set "+name+" address 02:… (96:, 9a: and 9e: are the scheme's)")
			}
		}
		return
	}
}
