package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// cable is a veth between a hub (the router, or a switch), where its end is
// named after the machine, and the machine's device.
type cable struct {
	hub, port       string
	machine, device string
	mtu             int
}

// cables are a machine's. A switch has those of its servers, too.
func (l *Lab) cables(machine string) []cable {
	up := cable{hub: "router", port: machine, machine: machine, device: uplink, mtu: l.MTU}
	if !l.faild() {
		return []cable{up}
	}
	var cables []cable
	switch {
	case slices.Contains(l.fronts(), machine):
		cables = append(cables, up)
		for _, s := range l.servers() {
			cables = append(cables, l.downlink(machine, s))
		}
	case slices.Contains(l.servers(), machine):
		for _, f := range l.fronts() {
			cables = append(cables, l.downlink(f, machine))
		}
	default:
		cables = append(cables, up)
	}
	return cables
}

// downlink is the cable from a switch to a server, which has a card for each
// switch, in their order.
func (l *Lab) downlink(hub, server string) cable {
	return cable{hub: hub, port: server, machine: server, device: device(slices.Index(l.fronts(), hub)), mtu: l.MTU}
}

func device(i int) string { return fmt.Sprint("eth", i) }

// attach plugs a cable in.
func (l *Lab) attach(c cable) error {
	ns, err := netns.GetFromName(l.namespace(c.machine))
	if err != nil {
		return fmt.Errorf("open namespace of %s: %w", c.machine, err)
	}
	defer ns.Close()
	if err := netspace.In(l.namespace(c.machine), func() error { return netspace.Sysctls(netspace.MachineSysctls) }); err != nil {
		return err
	}
	err = netspace.In(l.namespace(c.hub), func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: c.device, PeerNamespace: netlink.NsFd(int(ns))}
		veth.Name, veth.MTU, veth.PeerMTU = c.port, c.mtu, uint32(c.mtu)
		veth.HardwareAddr, veth.PeerHardwareAddr = netspace.HardwareAddress(), netspace.HardwareAddress()
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		if err := netspace.SetOffloads(c.port); err != nil {
			return err
		}
		port, err := netlink.LinkByName(c.port)
		if err != nil {
			return err
		}
		if c.machine == "client" && !l.L2 {
			if err := netspace.AddAddress(port, gatewayOfClient4+"/24", gatewayOfClient6+"/64"); err != nil {
				return err
			}
		} else {
			bridge, err := netlink.LinkByName(bridgeName)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(port, bridge); err != nil {
				return fmt.Errorf("add to bridge: %w", err)
			}
			// A switch floods what it does not know, as switches do, and its
			// hosts' programs drop what is another's.
			if c.hub == "router" {
				if err := onlyOwnFrames(port, veth); err != nil {
					return err
				}
			}
			if err := netspace.AttachPass(port); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", c.machine, c.hub, err)
	}
	return nil
}

// onlyOwnFrames does what a network card's filter does and veth does not: a
// machine gets frames for its own address and for groups, never those that
// the bridge floods because it does not know where their address is. XDP sees
// everything that a card lets through.
func onlyOwnFrames(port netlink.Link, veth *netlink.Veth) error {
	if err := netlink.LinkSetFlood(port, false); err != nil {
		return fmt.Errorf("switch off flooding: %w", err)
	}
	// NOARP is what `bridge fdb` calls static; PERMANENT would be the
	// bridge's own address.
	entry := &netlink.Neigh{
		LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP,
		Flags: netlink.NTF_MASTER, HardwareAddr: veth.PeerHardwareAddr,
	}
	if err := netlink.NeighSet(entry); err != nil {
		return fmt.Errorf("add to the bridge's addresses: %w", err)
	}
	return nil
}

// card is a machine's device with its addresses and the gateways behind it.
type card struct {
	device             string
	address4, address6 string
	gateway4, gateway6 string
}

// configure gives a machine its addresses, and default routes over all its
// cards; more, if not nil, runs afterwards in its namespace.
func (l *Lab) configure(machine string, more func() error, cards ...card) error {
	err := netspace.In(l.namespace(machine), func() error {
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		for _, c := range cards {
			device, err := netlink.LinkByName(c.device)
			if err != nil {
				return err
			}
			if err := netspace.SetOffloads(c.device); err != nil {
				return err
			}
			if err := netspace.AddAddress(device, c.address4+"/24", c.address6+"/64"); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(device); err != nil {
				return err
			}
		}
		if err := netspace.ChooseCongestionControl(); err != nil {
			return err
		}
		if err := setDefaults(cards); err != nil {
			return err
		}
		if more != nil {
			return more()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("configure %s: %w", machine, err)
	}
	return nil
}

// setDefaults makes the default routes of the calling thread's network lead
// over these cards.
func setDefaults(cards []card) error {
	var hops4, hops6 []*netlink.NexthopInfo
	for _, c := range cards {
		device, err := netlink.LinkByName(c.device)
		if err != nil {
			return err
		}
		hops4 = append(hops4, &netlink.NexthopInfo{LinkIndex: device.Attrs().Index, Gw: net.ParseIP(c.gateway4)})
		hops6 = append(hops6, &netlink.NexthopInfo{LinkIndex: device.Attrs().Index, Gw: net.ParseIP(c.gateway6)})
	}
	return errors.Join(setDefault(hops4), setDefault(hops6))
}

// setDefault sets one family's default route. The client's network has an MTU
// of 1500 whatever the servers' has.
func setDefault(hops []*netlink.NexthopInfo) error {
	to := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if hops[0].Gw.To4() == nil {
		to = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	route := &netlink.Route{Dst: to, MTU: clientMTU}
	if len(hops) == 1 {
		route.LinkIndex, route.Gw = hops[0].LinkIndex, hops[0].Gw
	} else {
		route.MultiPath = hops
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("default route via %s: %w", hops[0].Gw, err)
	}
	return nil
}

// setLink plugs a machine's cables in or pulls them out.
func (l *Lab) setLink(machine string, up bool) error {
	var errs []error
	for _, c := range l.cables(machine) {
		errs = append(errs, netspace.In(l.namespace(c.hub), func() error { return netspace.SetLink(c.port, up) }))
	}
	return errors.Join(errs...)
}
