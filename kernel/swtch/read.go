package swtch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// found is what the kernel has: what is ours, and what ports are found by.
type found struct {
	objects objects
	// servers' own MACs, by the neighbour entries on the bridge.
	neighbours map[netip.Addr]wire.MAC
	// ports behind which the bridge has learned (or was told) a MAC.
	learned map[wire.MAC]uint32
}

// Marks in value.foreign.
const (
	notOurState = 1 << iota
	notOurProtocol
	notOurShape // a group of another type, a route with several hops, ...
)

// read is all that is ours, or stands where ours shall stand, on the bridge
// with that index.
func read(k kernel, bridge uint32, vips []netip.Addr, announce uint32) (*found, error) {
	f := &found{neighbours: map[netip.Addr]wire.MAC{}, learned: map[wire.MAC]uint32{}}
	for i := range f.objects {
		f.objects[i] = map[key]value{}
	}
	for _, one := range []struct {
		what string
		do   func() error
	}{
		{"nexthops", func() error { return f.readNexthops(k, bridge) }},
		{"groups", func() error { return errors.Join(f.readGroup(k, groupID4), f.readGroup(k, groupID6)) }},
		{"neighbours", func() error { return f.readNeighbours(k, bridge) }},
		{"bridge entries", func() error { return f.readBridge(k, bridge) }},
		{"routes", func() error { return f.readRoutes(k, unix.RT_TABLE_MAIN, kindRoute, vips) }},
		{"announced routes", func() error { return f.readRoutes(k, announce, kindAnnounced, vips) }},
	} {
		if err := one.do(); err != nil {
			return nil, fmt.Errorf("read %s: %w", one.what, err)
		}
	}
	return f, nil
}

const dump = netlink.Request | netlink.Dump

// get asks for what the kernel has of a type: behind the header goes the one
// attribute that chooses among it.
func get(k kernel, typ netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attribute uint16, value uint32) ([]netlink.Message, error) {
	a := netlink.NewAttributeEncoder()
	a.Uint32(attribute, value)
	return k.ask(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: flags},
		Data:   append(header, encoded(a)...),
	})
}

// readNexthops: those of ours, all of which are on the bridge. Asking for one
// device's leaves groups out, whose size could end the listing.
func (f *found) readNexthops(k kernel, bridge uint32) error {
	replies, err := get(k, unix.RTM_GETNEXTHOP, dump, make([]byte, unix.SizeofNhmsg), nhaOIF, bridge)
	if err != nil {
		return err
	}
	for _, m := range replies {
		k, v, err := parseNexthop(m)
		if err != nil {
			return err
		}
		if mine(k.id) && k.kind == kindNexthop {
			f.objects.put(k, v)
		}
	}
	return nil
}

// readGroup asks for one group; the answer has room for all of it.
func (f *found) readGroup(k kernel, id uint32) error {
	replies, err := get(k, unix.RTM_GETNEXTHOP, netlink.Request, make([]byte, unix.SizeofNhmsg), nhaID, id)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range replies {
		k, v, err := parseNexthop(m)
		if err != nil {
			return err
		}
		if k.id == id {
			k.kind = kindGroup // also where somebody put another thing there
			f.objects.put(k, v)
		}
	}
	return nil
}

func parseNexthop(m netlink.Message) (k key, v value, err error) {
	if len(m.Data) < unix.SizeofNhmsg {
		return k, v, fmt.Errorf("short message of %d bytes", len(m.Data))
	}
	if m.Data[2] != Protocol {
		v.foreign |= notOurProtocol
	}
	// A gateway of ours is on link; IPv6's link-local ones are so anyhow.
	if onlink := binary.NativeEndian.Uint32(m.Data[4:])&rtnhOnlink != 0; !onlink && m.Data[0] == unix.AF_INET {
		v.foreign |= notOurShape
	}
	a, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofNhmsg:])
	if err != nil {
		return k, v, err
	}
	for a.Next() {
		switch a.Type() {
		case nhaID:
			k.id = a.Uint32()
		case nhaOIF:
			v.device = a.Uint32()
		case nhaGateway:
			v.gateway, _ = netip.AddrFromSlice(a.Bytes())
		case nhaBlackhole:
			v.foreign |= notOurShape
		case nhaGroupType:
			if a.Uint16() != 0 {
				v.foreign |= notOurShape
			}
		case nhaGroup:
			k.kind = kindGroup
			entries := a.Bytes()
			members := make([]byte, 0, len(entries)/2)
			for ; len(entries) >= 8; entries = entries[8:] {
				members = append(members, entries[:4]...)
				if entries[4] != 0 || entries[5] != 0 { // weights
					v.foreign |= notOurShape
				}
			}
			v.members = string(members)
		}
	}
	return k, v, a.Err()
}

// dumpNeighbours gives each entry of a family of neighbours (AF_BRIDGE: the
// forwarding entries) that the kernel has for an attribute's value.
func dumpNeighbours(k kernel, family byte, attribute uint16, value uint32, each func(neighbour)) error {
	header := make([]byte, unix.SizeofNdMsg)
	header[0] = family
	replies, err := get(k, unix.RTM_GETNEIGH, dump, header, attribute, value)
	if err != nil {
		return err
	}
	for _, m := range replies {
		n, err := parseNeighbour(m)
		if err != nil {
			return err
		}
		each(n)
	}
	return nil
}

// readNeighbours: all entries on the bridge.
func (f *found) readNeighbours(k kernel, bridge uint32) error {
	const ndaIfindex = 8
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := dumpNeighbours(k, family, ndaIfindex, bridge, func(n neighbour) { f.addNeighbour(n, bridge) }); err != nil {
			return err
		}
	}
	return nil
}

func (f *found) addNeighbour(n neighbour, bridge uint32) {
	if n.device != bridge || !n.address.IsValid() {
		return
	}
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP
	if _, ok := bucketOf(n.address); !ok {
		if n.state&usable != 0 {
			f.neighbours[n.address] = n.mac
		}
		if n.protocol != Protocol {
			return // somebody's, and not in our place
		}
	}
	// What the kernel makes by itself while it asks for an address is nobody's.
	if n.protocol != Protocol && n.state&usable == 0 {
		return
	}
	v := value{device: n.device, mac: n.mac}
	if n.state != unix.NUD_PERMANENT {
		v.foreign |= notOurState
	}
	if n.protocol != Protocol {
		v.foreign |= notOurProtocol
	}
	f.objects.put(key{kind: kindNeighbour, addr: n.address}, v)
}

type neighbour struct {
	family   byte
	device   uint32
	state    uint16
	flags    uint8
	address  netip.Addr
	mac      wire.MAC
	protocol uint8
	master   uint32
	vlan     uint16
}

func parseNeighbour(m netlink.Message) (n neighbour, err error) {
	if len(m.Data) < unix.SizeofNdMsg {
		return n, fmt.Errorf("short message of %d bytes", len(m.Data))
	}
	n.family = m.Data[0]
	n.device = binary.NativeEndian.Uint32(m.Data[4:])
	n.state = binary.NativeEndian.Uint16(m.Data[8:])
	n.flags = m.Data[10]
	a, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofNdMsg:])
	if err != nil {
		return n, err
	}
	for a.Next() {
		switch a.Type() {
		case ndaDst:
			n.address, _ = netip.AddrFromSlice(a.Bytes())
		case ndaLladdr:
			copy(n.mac[:], a.Bytes())
		case ndaProtocol:
			n.protocol = a.Uint8()
		case ndaMaster:
			n.master = a.Uint32()
		case ndaVLAN:
			n.vlan = a.Uint16()
		}
	}
	return n, a.Err()
}

// readBridge: the forwarding entries of the bridge's ports.
func (f *found) readBridge(k kernel, bridge uint32) error {
	return dumpNeighbours(k, unix.AF_BRIDGE, ndaMaster, bridge, func(n neighbour) {
		if n.master == bridge {
			f.addBridge(n)
		}
	})
}

func (f *found) addBridge(n neighbour) {
	const local = unix.NUD_PERMANENT
	if n.state != local {
		f.learned[n.mac] = n.device
	}
	if !faildMAC(n.mac) || n.vlan != 0 {
		return
	}
	v := value{device: n.device}
	if n.state != unix.NUD_NOARP || n.flags&ntfSticky == 0 {
		v.foreign |= notOurState
	}
	f.objects.put(key{kind: kindBridge, mac: n.mac}, v)
}

// readRoutes: ours in a table, and what stands in our place.
func (f *found) readRoutes(k kernel, table uint32, kind kind, vips []netip.Addr) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := make([]byte, unix.SizeofRtMsg)
		header[0] = family
		replies, err := get(k, unix.RTM_GETROUTE, dump, header, unix.RTA_TABLE, table)
		if errors.Is(err, unix.ENOENT) { // there is no such table yet
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range replies {
			r, err := parseRoute(m)
			if err != nil {
				return err
			}
			if r.ours(table, vips) {
				f.objects.put(key{kind: kind, addr: r.destination, table: table}, r.value())
			}
		}
	}
	return nil
}

type route struct {
	destination netip.Addr
	bits        int
	protocol    uint8
	scope, typ  uint8
	table       uint32
	metric      uint32
	device      uint32
	group       uint32
	gateway     netip.Addr
	other       bool // a gateway, several hops, an encapsulation
	cloned      bool
}

func parseRoute(m netlink.Message) (r route, err error) {
	if len(m.Data) < unix.SizeofRtMsg {
		return r, fmt.Errorf("short message of %d bytes", len(m.Data))
	}
	r.bits = int(m.Data[1])
	r.table = uint32(m.Data[4])
	r.protocol, r.scope, r.typ = m.Data[5], m.Data[6], m.Data[7]
	r.cloned = binary.NativeEndian.Uint32(m.Data[8:])&unix.RTM_F_CLONED != 0
	a, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return r, err
	}
	for a.Next() {
		switch a.Type() {
		case unix.RTA_DST:
			r.destination, _ = netip.AddrFromSlice(a.Bytes())
		case unix.RTA_TABLE:
			r.table = a.Uint32()
		case unix.RTA_PRIORITY:
			r.metric = a.Uint32()
		case unix.RTA_OIF:
			r.device = a.Uint32()
		case rtaNHID:
			r.group = a.Uint32()
		case unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(a.Bytes())
			r.other = true
		case unix.RTA_MULTIPATH, unix.RTA_ENCAP, unix.RTA_VIA:
			r.other = true
		}
	}
	return r, a.Err()
}

// ours: a route to one address in that table that is marked as ours, or has
// the metric of ours and leads to a VIP, so that it stands in our place.
func (r *route) ours(table uint32, vips []netip.Addr) bool {
	if r.cloned || r.table != table || !r.destination.IsValid() || r.bits != r.destination.BitLen() || r.metric != metric(r.destination) {
		return false
	}
	return r.protocol == Protocol || slices.Contains(vips, r.destination)
}

func (r *route) value() value {
	v := value{group: r.group, device: r.device}
	if r.group != 0 {
		// With nexthop_compat_mode the members are spelled out; they are the
		// group's.
		v.device, r.other = 0, false
	}
	if r.protocol != Protocol {
		v.foreign |= notOurProtocol
	}
	if r.other || r.typ != unix.RTN_UNICAST {
		v.foreign |= notOurShape
	}
	return v
}
