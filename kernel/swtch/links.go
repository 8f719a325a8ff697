package swtch

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// links is the bridge and its ports.
type links struct {
	bridge  uint32
	up      bool
	running bool // a port of it is up
	mac     wire.MAC
	mtu     uint32
	tagged  bool              // the bridge tells VLANs apart
	isOne   bool              // it is a bridge
	ports   map[string]uint32 // by name
	names   map[uint32]string
	portMTU map[string]uint32
	down    map[uint32]bool // ports that are down, or have no carrier
}

// Attributes of a bridge (linux/if_link.h).
const ifLinkBrVLANFiltering = 7

// works are the flags of a link that frames can go out by.
const works = unix.IFF_UP | unix.IFF_LOWER_UP

// readLinks looks for the bridge called name; links.bridge is 0 where there
// is none.
func readLinks(k kernel, name string) (*links, error) {
	replies, err := k.ask(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: dump},
		Data:   make([]byte, unix.SizeofIfInfomsg),
	})
	if err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	l := &links{ports: map[string]uint32{}, names: map[uint32]string{}, portMTU: map[string]uint32{}, down: map[uint32]bool{}}
	masters := map[string]uint32{}
	for _, m := range replies {
		if len(m.Data) < unix.SizeofIfInfomsg {
			return nil, fmt.Errorf("read links: short message of %d bytes", len(m.Data))
		}
		index := binary.NativeEndian.Uint32(m.Data[4:])
		flags := binary.NativeEndian.Uint32(m.Data[8:])
		a, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("read links: %w", err)
		}
		var one struct {
			name             string
			master, mtu      uint32
			mac              wire.MAC
			isBridge, tagged bool
		}
		for a.Next() {
			switch a.Type() {
			case unix.IFLA_IFNAME:
				one.name = a.String()
			case unix.IFLA_MASTER:
				one.master = a.Uint32()
			case unix.IFLA_MTU:
				one.mtu = a.Uint32()
			case unix.IFLA_ADDRESS:
				copy(one.mac[:], a.Bytes())
			case unix.IFLA_LINKINFO:
				a.Nested(func(a *netlink.AttributeDecoder) error {
					for a.Next() {
						switch a.Type() {
						case unix.IFLA_INFO_KIND:
							one.isBridge = a.String() == "bridge"
						case unix.IFLA_INFO_DATA:
							if one.isBridge {
								a.Nested(func(a *netlink.AttributeDecoder) error {
									for a.Next() {
										if a.Type() == ifLinkBrVLANFiltering {
											one.tagged = a.Uint8() != 0
										}
									}
									return a.Err()
								})
							}
						}
					}
					return a.Err()
				})
			}
		}
		if err := a.Err(); err != nil {
			return nil, fmt.Errorf("read links: %w", err)
		}
		if one.name == name {
			l.bridge, l.mac, l.mtu = index, one.mac, one.mtu
			l.up, l.running = flags&unix.IFF_UP != 0, flags&unix.IFF_LOWER_UP != 0
			l.isOne, l.tagged = one.isBridge, one.tagged
		}
		if one.master != 0 {
			masters[one.name] = one.master
			l.ports[one.name] = index
			l.names[index] = one.name
			l.portMTU[one.name] = one.mtu
			if flags&works != works {
				l.down[index] = true
			}
		}
	}
	for port, master := range masters {
		if master != l.bridge {
			delete(l.names, l.ports[port])
			delete(l.down, l.ports[port])
			delete(l.ports, port)
			delete(l.portMTU, port)
		}
	}
	return l, nil
}

// check says why nothing can be installed on the bridge.
func (l *links) check(name string) error {
	switch {
	case l.bridge == 0:
		return fmt.Errorf("bridge %s does not exist: make it (ip link add %s type bridge), and put the servers' ports into it (ip link set PORT master %s)", name, name, name)
	case !l.isOne:
		return fmt.Errorf("device %s is no bridge: name the bridge that the servers' ports are in", name)
	case !l.up:
		return fmt.Errorf("bridge %s is down: ip link set %s up", name, name)
	case !l.running:
		// The kernel takes all nexthops on it away, and takes no new ones.
		return fmt.Errorf("bridge %s has no carrier: none of its %d ports is up; see ip link show master %s", name, len(l.ports), name)
	case l.tagged:
		return fmt.Errorf("bridge %s tells VLANs apart, and entries without a VLAN lead nowhere there: ip link set %s type bridge vlan_filtering 0, or make a bridge for the servers alone", name, name)
	}
	return nil
}

// portOf finds a server's port: configured, or by its address and the MAC of
// the neighbour entry, or where it was before. 0: not known.
func portOf(s tables.SwitchServer, configured map[string]string, l *links, f *found, before uint32) uint32 {
	if name, ok := configured[s.Name]; ok {
		return l.ports[name]
	}
	if mac, ok := f.neighbours[s.Address]; ok {
		if port, ok := f.learned[mac]; ok && l.names[port] != "" {
			return port
		}
	}
	if l.names[before] != "" {
		return before
	}
	// As an earlier run of ours installed it.
	if v, ok := f.objects[kindBridge][key{kind: kindBridge, mac: tables.CopyMAC(s.Number)}]; ok && v.foreign == 0 && l.names[v.device] != "" {
		return v.device
	}
	return 0
}

// solicit has the kernel ask for an address on the bridge, so that it and the
// bridge learn where it is.
func solicit(k kernel, bridge uint32, a netip.Addr) error {
	header := make([]byte, unix.SizeofNdMsg)
	header[0] = family(a)
	binary.NativeEndian.PutUint32(header[4:], bridge)
	binary.NativeEndian.PutUint16(header[8:], unix.NUD_NONE)
	header[10] = ntfUse
	e := netlink.NewAttributeEncoder()
	e.Bytes(ndaDst, a.AsSlice())
	return k.execute([]netlink.Message{{
		Header: netlink.Header{Type: unix.RTM_NEWNEIGH, Flags: netlink.Request | netlink.Create},
		Data:   append(header, encoded(e)...),
	}})
}

// macString is a MAC as `bridge fdb` shows it.
func macString(m wire.MAC) string { return net.HardwareAddr(m[:]).String() }
