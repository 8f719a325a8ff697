package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

// The kernel's own ECMP groups beside scheme faild's, and what the kernel
// says of where a flow goes.

// group is one of them, the same at all switches.
type group struct {
	id  uint32
	vip VIP
}

// gateway is a server's address behind a switch.
func (v VIP) gateway(s, server int) netip.Addr {
	if v.Address.Is6() {
		return netip.MustParseAddr(behindSwitch6(s+1, server+1))
	}
	return netip.MustParseAddr(behindSwitch4(s+1, server+1))
}

// addGroups makes the groups of the VIPs that are not Fairlead's.
func (r *runner) addGroups() (groups []group, err error) {
	for i, v := range r.lab.VIPs {
		g, size := group{id: plainGroup + uint32(100*i), vip: v}, 0
		switch v.Scheme {
		case plainECMP:
		case resilientECMP:
			g.id, size = resilientGroup+uint32(100*i), resilientBuckets
		default:
			continue
		}
		groups = append(groups, g)
		for s, front := range r.lab.fronts() {
			var gateways []netip.Addr
			for n := range r.lab.Servers {
				gateways = append(gateways, v.gateway(s, n))
			}
			err := netspace.In(r.lab.namespace(front), func() error {
				return swtch.AddGroup(g.id, netip.PrefixFrom(v.Address, v.Address.BitLen()), bridgeName, gateways, size)
			})
			if err != nil {
				return nil, fmt.Errorf("add group of %s at %s: %w", v.Name, front, err)
			}
		}
	}
	return groups, nil
}

// removeMember takes a server out of the groups, at every switch.
func (r *runner) removeMember(groups []group, server string) error {
	n := slices.Index(r.lab.servers(), server)
	for _, g := range groups {
		for s, front := range r.lab.fronts() {
			err := netspace.In(r.lab.namespace(front), func() error { return swtch.RemoveMember(g.id, g.vip.gateway(s, n)) })
			if err != nil {
				return fmt.Errorf("remove %s from the group of %s at %s: %w", server, g.vip.Name, front, err)
			}
		}
	}
	return nil
}

// places asks each switch where the flows of each VIP go: the server's name by
// switch, VIP and flow. The flows are the seed's, not those of the load.
func (r *runner) places() (places [][][]string, err error) {
	for s, front := range r.lab.fronts() {
		var of [][]string
		err := netspace.In(r.lab.namespace(front), func() error {
			from, err := netlink.LinkByName(uplink)
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName(bridgeName)
			if err != nil {
				return err
			}
			for _, v := range r.lab.VIPs {
				macs, err := neighbours(bridge.Attrs().Index, v.Address.Is6())
				if err != nil {
					return err
				}
				random := sim.Stream(r.o.Seed, "flows")
				var servers []string
				for range r.o.Scale.Connections {
					hop, err := lookUp(v, from.Attrs().Index, uint16(10_000+random.IntN(55_000)))
					if err != nil {
						return fmt.Errorf("look up a flow to %s: %w", v.Name, err)
					}
					servers = append(servers, r.serverOf(v, s, hop, macs))
				}
				of = append(of, servers)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("ask %s where flows go: %w", front, err)
		}
		places = append(places, of)
	}
	return places, nil
}

// serverOf names the server behind a next hop: by its address, or by the
// number in its virtual MAC.
func (r *runner) serverOf(v VIP, s int, hop netip.Addr, macs map[netip.Addr]wire.MAC) string {
	for n, name := range r.lab.servers() {
		if hop == v.gateway(s, n) {
			return name
		}
	}
	if f, ok, err := wire.DecodeFaild(macs[hop]); ok && err == nil {
		if n := int(f.Current); n < r.lab.Servers {
			return r.lab.servers()[n] // numbered in the file's order
		}
	}
	return "nobody at " + hop.String()
}

// neighbours are the link addresses that a device's neighbours have.
func neighbours(device int, six bool) (map[netip.Addr]wire.MAC, error) {
	family := netlink.FAMILY_V4
	if six {
		family = netlink.FAMILY_V6
	}
	list, err := netlink.NeighList(device, family)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	macs := map[netip.Addr]wire.MAC{}
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) == 6 {
			macs[a.Unmap()] = wire.MAC(n.HardwareAddr)
		}
	}
	return macs, nil
}

// lookUp asks the kernel for the next hop of a TCP packet that comes in by a
// device; vishvananda/netlink's request knows no ports.
func lookUp(v VIP, device int, port uint16) (netip.Addr, error) {
	source := netip.MustParseAddr(clientAddress4)
	message := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Dst_len: 32, Src_len: 32}}
	if v.Address.Is6() {
		source = netip.MustParseAddr(clientAddress6)
		message.Family, message.Dst_len, message.Src_len = unix.AF_INET6, 128, 128
	}
	ports := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	q := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	q.AddData(message)
	q.AddData(nl.NewRtAttr(unix.RTA_DST, v.Address.AsSlice()))
	q.AddData(nl.NewRtAttr(unix.RTA_SRC, source.AsSlice()))
	q.AddData(nl.NewRtAttr(unix.RTA_IIF, nl.Uint32Attr(uint32(device))))
	q.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}))
	q.AddData(nl.NewRtAttr(unix.RTA_SPORT, ports(port)))
	q.AddData(nl.NewRtAttr(unix.RTA_DPORT, ports(uint16(v.Port))))
	answers, err := q.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range answers {
		attributes, err := nl.ParseRouteAttr(a[unix.SizeofRtMsg:])
		if err != nil {
			return netip.Addr{}, err
		}
		for _, t := range attributes {
			switch t.Attr.Type {
			case unix.RTA_GATEWAY:
				hop, _ := netip.AddrFromSlice(t.Value)
				return hop, nil
			case unix.RTA_VIA: // family, then the address
				hop, _ := netip.AddrFromSlice(t.Value[2:])
				return hop, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("no next hop for port %d", port)
}

// repoint measures how long all nexthops take to point to other hosts, in a
// namespace where nothing else goes on.
func (r *runner) repoint() error {
	name := r.lab.namespace("repoint")
	if err := netspace.Create(name); err != nil {
		return err
	}
	var p Repoint
	err := netspace.In(name, func() error {
		if err := r.lab.addBridge(gateway4, gateway6); err != nil {
			return err
		}
		for block := range repointBlocks {
			times, err := swtch.MeasureRepoint(bridgeName, repointNexthops, repointRounds)
			if err != nil {
				return err
			}
			slices.Sort(times)
			ms := func(q float64) float64 { return times[int(q*float64(len(times)-1))].Seconds() * 1e3 }
			if block == 0 || ms(0.95) < p.P95Ms {
				p = Repoint{Nexthops: repointNexthops, Rounds: len(times), Blocks: repointBlocks, MedianMs: ms(0.5), P95Ms: ms(0.95), MaxMs: ms(1)}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("measure repointing: %w", err)
	}
	p.Timing = r.timed(fmt.Sprintf("repointing %d nexthops, ms (95th percentile)", p.Nexthops), p.P95Ms, maxRepoint.Seconds()*1e3)
	r.result.Repoints = append(r.result.Repoints, p)
	return nil
}
