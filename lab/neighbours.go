package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netspace"
)

// fewNeighbours is how many machines on one Ethernet may learn each other's
// addresses by themselves. All namespaces of a kernel share a table of 1,024
// neighbours (gc_thresh3) for each family, and servers of scheme beamer know
// all others. Permanent entries do not count there.
const fewNeighbours = 20

// introduce tells each machine on the router's Ethernet the addresses of all
// others, for good, where they are too many to learn them.
func (l *Lab) introduce() error {
	machines := append(l.fronts(), l.servers()...)
	if len(machines) <= fewNeighbours || l.faild() {
		return nil
	}
	var known []netlink.Neigh
	learn := func(machine, four, six string) error {
		return netspace.In(l.namespace(machine), func() error {
			device, err := netlink.LinkByName(uplink)
			if err != nil {
				return err
			}
			for _, address := range []string{four, six} {
				known = append(known, netlink.Neigh{State: netlink.NUD_PERMANENT, IP: net.ParseIP(address), HardwareAddr: device.Attrs().HardwareAddr})
			}
			return nil
		})
	}
	for n, m := range l.fronts() {
		if err := learn(m, lbAddress4(n+1), lbAddress6(n+1)); err != nil {
			return fmt.Errorf("hardware address of %s: %w", m, err)
		}
	}
	for n, m := range l.servers() {
		if err := learn(m, serverAddress4(n+1), serverAddress6(n+1)); err != nil {
			return fmt.Errorf("hardware address of %s: %w", m, err)
		}
	}
	for i, m := range machines {
		err := netspace.In(l.namespace(m), func() error { return addNeighbours(known, 2*i) })
		if err != nil {
			return fmt.Errorf("tell %s of the others: %w", m, err)
		}
	}
	return nil
}

// addNeighbours adds all but the two of the machine itself, which begin at own.
func addNeighbours(known []netlink.Neigh, own int) error {
	device, err := netlink.LinkByName(uplink)
	if err != nil {
		return err
	}
	for i, n := range known {
		if i == own || i == own+1 {
			continue
		}
		n.LinkIndex = device.Attrs().Index
		if err := netlink.NeighSet(&n); err != nil {
			return fmt.Errorf("neighbour %v: %w", n.IP, err)
		}
	}
	return nil
}
