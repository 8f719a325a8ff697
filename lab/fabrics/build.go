package fabrics

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/netspace"
)

// routerSysctls: traceroute asks for many answers in a short time, too.
var routerSysctls = append(slices.Clone(netspace.Router),
	[2]string{"net.ipv4.icmp_ratelimit", "0"}, [2]string{"net.ipv6.icmp.ratelimit", "0"})

// build makes namespaces, devices and addresses.
func (f *Fabric) build() error {
	for i := range f.topology.Nodes {
		if err := f.buildNode(i); err != nil {
			return fmt.Errorf("build %s: %w", f.topology.Nodes[i].Name, err)
		}
	}
	if err := f.buildWires(); err != nil {
		return fmt.Errorf("build wires: %w", err)
	}
	for i := range f.topology.Links {
		if err := f.plug(i); err != nil {
			return fmt.Errorf("link %s: %w", f.topology.LinkName(i), err)
		}
	}
	return nil
}

func (f *Fabric) buildNode(node int) error {
	n := &f.topology.Nodes[node]
	if err := netspace.Create(f.namespace(node)); err != nil {
		return err
	}
	return netspace.In(f.namespace(node), func() error {
		if err := netspace.Sysctls(netspace.MachineSysctls, netspace.Multihomed); err != nil {
			return err
		}
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		if n.Host {
			err := netspace.Sysctls([][2]string{
				{"net.ipv4.ip_default_ttl", strconv.Itoa(int(n.TTL))},
				{"net.ipv6.conf.default.hop_limit", strconv.Itoa(int(n.TTL))},
				{"net.ipv6.conf.all.hop_limit", strconv.Itoa(int(n.TTL))},
			})
			if err != nil {
				return err
			}
			if err := netspace.ChooseCongestionControl(); err != nil {
				return err
			}
		} else {
			if err := netspace.Sysctls(routerSysctls); err != nil {
				return err
			}
			// Routers with equal seeds would all decide alike; what a fabric is
			// built of says which they are, its name does not.
			h := fnv.New32a()
			fmt.Fprintf(h, "%x %d", f.topology.Selector.Key, node)
			if err := netspace.Sysctl("net.ipv4.fib_multipath_hash_seed", fmt.Sprint(h.Sum32()|1)); err != nil {
				return err
			}
		}
		return loopbackAddresses(&f.topology, node)
	})
}

// loopbackAddresses puts a node's addresses on lo, but for those that stand on
// links.
func loopbackAddresses(t *topology.Fabric, node int) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range t.Nodes[node].Addresses {
		if bound(t, node, a) {
			continue
		}
		if err := netspace.AddAddress(lo, netip.PrefixFrom(a, a.BitLen()).String()); err != nil {
			return err
		}
	}
	return nil
}

// plug lays a link: a veth between its nodes, or between each and the wires.
func (f *Fabric) plug(link int) error {
	ends := f.topology.Links[link].Ends
	if !f.wired[link] {
		if err := f.veth(f.namespace(ends[0].Node), ends[0].Device, f.namespace(ends[1].Node), ends[1].Device); err != nil {
			return err
		}
	} else if err := f.layWire(link); err != nil {
		return err
	}
	for side := range ends {
		err := netspace.In(f.namespace(ends[side].Node), func() error { return f.configureEnd(link, side) })
		if err != nil {
			return fmt.Errorf("configure %s of %s: %w", ends[side].Device, f.topology.Nodes[ends[side].Node].Name, err)
		}
	}
	return nil
}

// veth makes one between two namespaces.
func (f *Fabric) veth(namespaceA, deviceA, namespaceB, deviceB string) error {
	b, err := netns.GetFromName(namespaceB)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", namespaceB, err)
	}
	defer b.Close()
	return netspace.In(namespaceA, func() error {
		v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: deviceB, PeerNamespace: netlink.NsFd(int(b))}
		v.Name, v.MTU, v.PeerMTU = deviceA, f.MTU, uint32(f.MTU)
		v.HardwareAddr, v.PeerHardwareAddr = netspace.HardwareAddress(), netspace.HardwareAddress()
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("add veth %s: %w", deviceA, err)
		}
		return nil
	})
}

// configureEnd brings up a link's end.
func (f *Fabric) configureEnd(link, side int) error {
	own := f.topology.Links[link].Ends[side]
	device, err := netlink.LinkByName(own.Device)
	if err != nil {
		return err
	}
	if err := netspace.SetOffloads(own.Device); err != nil {
		return err
	}
	// Where `fairlead router` stands it has a program of its own.
	if n := f.topology.Nodes[own.Node]; n.Host || n.Plain {
		if err := netspace.AttachPass(device); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return err
	}
	return f.addressEnd(link, side, device)
}

// addressEnd gives a link's end its addresses.
func (f *Fabric) addressEnd(link, side int, device netlink.Link) error {
	own4, own6 := f.addresses(link, side)
	peer4, peer6 := f.addresses(link, 1-side)
	for _, a := range [][2]netip.Addr{{own4, peer4}, {own6, peer6}} {
		if err := pointToPoint(device, a[0], a[1]); err != nil {
			return err
		}
	}
	return nil
}

// pointToPoint gives a device an address and says which one is at the other
// end; no other is on that link.
func pointToPoint(device netlink.Link, own, peer netip.Addr) error {
	a := &netlink.Addr{IPNet: whole(own), Peer: whole(peer)}
	if own.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	// A device that was down may have it, without the way to the other end.
	if err := netlink.AddrDel(device, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("delete address %s: %w", own, err)
	}
	if err := netlink.AddrAdd(device, a); err != nil {
		return fmt.Errorf("add address %s: %w", own, err)
	}
	return nil
}

// whole is the prefix of one address.
func whole(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
