package hosttest

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Send puts frames on the interface's wire as they are.
func (n *Namespace) Send(iface string, frames ...[]byte) error {
	return n.Do(func() error {
		dev, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, frame := range frames {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Frame puts a packet into a frame from this namespace's interface to the
// other's.
func (n *Namespace) Frame(iface string, to *Namespace, peer string, packet []byte) ([]byte, error) {
	var frame []byte
	mac := func(name string) func() error {
		return func() error {
			dev, err := net.InterfaceByName(name)
			if err == nil {
				frame = append(frame, dev.HardwareAddr...)
			}
			return err
		}
	}
	if err := to.Do(mac(peer)); err != nil {
		return nil, err
	}
	if err := n.Do(mac(iface)); err != nil {
		return nil, err
	}
	kind := uint16(wire.EtherTypeIPv4)
	if packet[0]>>4 == 6 {
		kind = wire.EtherTypeIPv6
	}
	return append(binary.BigEndian.AppendUint16(frame, kind), packet...), nil
}

// Neighbour makes addr a neighbour on the interface, for ever, at a MAC that
// nobody has.
func (n *Namespace) Neighbour(iface string, addr netip.Addr) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: addr.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 77}})
	})
}
