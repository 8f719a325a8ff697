package router

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Attributes that golang.org/x/sys/unix lacks (linux/nexthop.h,
// linux/neighbour.h, linux/rtnetlink.h, linux/if_link.h, linux/netconf.h).
const (
	nhaID        = 1
	nhaGroup     = 2
	nhaBlackhole = 4
	nhaOIF       = 5
	nhaGateway   = 6
	nhaEncapType = 7
	nhaFDB       = 11

	ndaDst    = 1
	ndaLladdr = 2
	ntfProxy  = 0x08
	ntfUse    = 0x01

	rtaNHID = 30
	rtaxMTU = 2

	rtnhDead     = 1
	rtnhLinkdown = 16

	ifLinkVLANID       = 1
	ifLinkVLANProtocol = 5

	netconfIfindex    = 1
	netconfForwarding = 2
	// netconfAll is the index that stands for all devices.
	netconfAll = -1

	etherVLAN = 0x8100 // 802.1Q
)

// link is a device.
type link struct {
	index  int
	name   string
	kind   string // veth, vlan, bridge, ...; empty: hardware, loopback
	mac    [6]byte
	mtu    int
	parent int // of a VLAN device; 0: none, or in another namespace
	vlan   uint16
	master int
	flags  uint32
	ether  bool
}

// carries: frames can go out by it now.
func (l link) carries() bool {
	const works = unix.IFF_UP | unix.IFF_LOWER_UP
	return l.flags&works == works
}

// way is a next hop as a route or nexthop object has it.
type way struct {
	device  int
	gateway netip.Addr // invalid: the destination is a neighbour
	weight  int
	dead    bool
	beyond  bool // an encapsulation, or what this program does not know
}

// route is an entry of a routing table.
type route struct {
	prefix  netip.Prefix
	table   uint32
	metric  uint32
	kind    uint8 // RTN_UNICAST, ...
	beyond  bool  // for some sources or types of service only
	nexthop uint32
	ways    []way
	mtu     int
}

// nexthop is a nexthop object: a way, or a group of others.
type nexthop struct {
	way       way
	blackhole bool
	members   []nexthopMember
}

type nexthopMember struct {
	id     uint32
	weight int
}

// neighbour is an entry of the neighbour tables.
type neighbour struct {
	id    HopID
	mac   [6]byte
	state uint16
	proxy bool
}

// valid: it has a MAC address that the kernel would use.
func (n neighbour) valid() bool {
	const valid = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP
	return n.state&valid != 0 && n.mac != [6]byte{} && !n.proxy
}

// attributes calls each for every attribute behind a header of that size.
func attributes(m netlink.Message, header int, each func(*netlink.AttributeDecoder)) error {
	if len(m.Data) < header {
		return fmt.Errorf("netlink: message of type %d has %d bytes, its header alone %d", m.Header.Type, len(m.Data), header)
	}
	a, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return err
	}
	for a.Next() {
		each(a)
	}
	return a.Err()
}

// address of an attribute's bytes; IPv4 in IPv6's form is IPv6.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

func parseLink(m netlink.Message) (l link, err error) {
	foreign := false
	parent := 0
	err = attributes(m, unix.SizeofIfInfomsg, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case unix.IFLA_IFNAME:
			l.name = a.String()
		case unix.IFLA_MTU:
			l.mtu = int(a.Uint32())
		case unix.IFLA_ADDRESS:
			copy(l.mac[:], a.Bytes())
		case unix.IFLA_LINK:
			parent = int(a.Uint32())
		case unix.IFLA_LINK_NETNSID:
			foreign = true
		case unix.IFLA_MASTER:
			l.master = int(a.Uint32())
		case unix.IFLA_LINKINFO:
			a.Nested(l.parseInfo)
		}
	})
	if err != nil {
		return l, err
	}
	l.ether = binary.NativeEndian.Uint16(m.Data[2:]) == unix.ARPHRD_ETHER
	l.index = int(binary.NativeEndian.Uint32(m.Data[4:]))
	l.flags = binary.NativeEndian.Uint32(m.Data[8:])
	if l.kind == "vlan" && !foreign {
		l.parent = parent
	}
	return l, nil
}

func (l *link) parseInfo(a *netlink.AttributeDecoder) error {
	for a.Next() {
		switch a.Type() {
		case unix.IFLA_INFO_KIND:
			l.kind = a.String()
		case unix.IFLA_INFO_DATA:
			if l.kind == "vlan" {
				a.Nested(l.parseVLAN)
			}
		}
	}
	return a.Err()
}

func (l *link) parseVLAN(a *netlink.AttributeDecoder) error {
	protocol := uint16(etherVLAN)
	for a.Next() {
		switch a.Type() {
		case ifLinkVLANID:
			l.vlan = a.Uint16()
		case ifLinkVLANProtocol:
			protocol = binary.BigEndian.Uint16(a.Bytes())
		}
	}
	if protocol != etherVLAN {
		l.vlan = 0 // 802.1ad: not ours
	}
	return a.Err()
}

func parseRoute(m netlink.Message) (r route, err error) {
	var destination netip.Addr
	one := way{weight: 1}
	err = attributes(m, unix.SizeofRtMsg, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case unix.RTA_DST:
			destination = address(a.Bytes())
		case unix.RTA_TABLE:
			r.table = a.Uint32()
		case unix.RTA_PRIORITY:
			r.metric = a.Uint32()
		case rtaNHID:
			r.nexthop = a.Uint32()
		case unix.RTA_METRICS:
			a.Nested(func(a *netlink.AttributeDecoder) error {
				for a.Next() {
					if a.Type() == rtaxMTU {
						r.mtu = int(a.Uint32())
					}
				}
				return a.Err()
			})
		case unix.RTA_MULTIPATH:
			b := a.Bytes()
			a.Do(func([]byte) (err error) { r.ways, err = parseWays(b); return err })
		default:
			one.take(a)
		}
	})
	if err != nil {
		return r, err
	}
	family, bits := m.Data[0], int(m.Data[1])
	if !destination.IsValid() {
		destination = netip.IPv4Unspecified()
		if family == unix.AF_INET6 {
			destination = netip.IPv6Unspecified()
		}
	}
	r.prefix = netip.PrefixFrom(destination, bits)
	if !r.prefix.IsValid() {
		return r, fmt.Errorf("netlink: a route to %v/%d", destination, bits)
	}
	r.kind = m.Data[7]
	sourceBits, service := m.Data[2], m.Data[3]
	r.beyond = sourceBits != 0 || service != 0
	if len(r.ways) == 0 && one.device != 0 {
		one.dead = binary.NativeEndian.Uint32(m.Data[8:])&(rtnhDead|rtnhLinkdown) != 0
		r.ways = []way{one}
	}
	return r, nil
}

// take reads an attribute that stands in a route, or in one of its next hops.
func (w *way) take(a *netlink.AttributeDecoder) {
	switch a.Type() {
	case unix.RTA_OIF:
		w.device = int(a.Uint32())
	case unix.RTA_GATEWAY:
		w.gateway = address(a.Bytes())
	case unix.RTA_VIA: // a router of the other family: struct rtvia
		if b := a.Bytes(); len(b) > 2 {
			w.gateway = address(b[2:])
		}
	case unix.RTA_ENCAP_TYPE, unix.RTA_NEWDST:
		w.beyond = true
	}
}

// parseWays reads the next hops of a multipath route: struct rtnexthop, its
// attributes behind it, one after the other.
func parseWays(b []byte) (ways []way, err error) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			return nil, fmt.Errorf("netlink: a next hop of %d bytes in %d", size, len(b))
		}
		w := way{
			device: int(binary.NativeEndian.Uint32(b[4:])), weight: int(b[3]) + 1,
			dead: b[2]&(rtnhDead|rtnhLinkdown) != 0,
		}
		a, err := netlink.NewAttributeDecoder(b[unix.SizeofRtNexthop:size])
		if err != nil {
			return nil, err
		}
		for a.Next() {
			w.take(a)
		}
		if a.Err() != nil {
			return nil, a.Err()
		}
		ways = append(ways, w)
		b = b[min(len(b), (size+3)&^3):]
	}
	return ways, nil
}

func parseNexthop(m netlink.Message) (id uint32, n nexthop, err error) {
	n.way.weight = 1
	err = attributes(m, unix.SizeofNhmsg, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case nhaID:
			id = a.Uint32()
		case nhaOIF:
			n.way.device = int(a.Uint32())
		case nhaGateway:
			n.way.gateway = address(a.Bytes())
		case nhaBlackhole:
			n.blackhole = true
		case nhaEncapType, nhaFDB:
			n.way.beyond = true
		case nhaGroup:
			// struct nexthop_grp: id, weight - 1 (low octet, high octet), 2 unused
			for b := a.Bytes(); len(b) >= 8; b = b[8:] {
				n.members = append(n.members, nexthopMember{binary.NativeEndian.Uint32(b), int(b[4]) + int(b[5])<<8 + 1})
			}
		}
	})
	if err == nil {
		n.way.dead = binary.NativeEndian.Uint32(m.Data[4:])&(rtnhDead|rtnhLinkdown) != 0
	}
	return id, n, err
}

func parseNeighbour(m netlink.Message) (n neighbour, err error) {
	err = attributes(m, unix.SizeofNdMsg, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case ndaDst:
			n.id.Gateway = address(a.Bytes())
		case ndaLladdr:
			copy(n.mac[:], a.Bytes())
		}
	})
	if err == nil {
		n.id.Device = int(binary.NativeEndian.Uint32(m.Data[4:]))
		n.state = binary.NativeEndian.Uint16(m.Data[8:])
		n.proxy = m.Data[10]&ntfProxy != 0
	}
	return n, err
}

// rule is an `ip rule`, as far as it tells the defaults from others.
type rule struct {
	family   uint8
	priority uint32
	table    uint32
	narrowed bool // it has a selector, or another action than a look-up
}

func parseRule(m netlink.Message) (r rule, err error) {
	const lookUp = 1 // FR_ACT_TO_TBL
	err = attributes(m, unix.SizeofRtMsg, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case unix.FRA_PRIORITY:
			r.priority = a.Uint32()
		case unix.FRA_TABLE:
			r.table = a.Uint32()
		case unix.FRA_PROTOCOL, unix.FRA_PAD:
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			r.narrowed = r.narrowed || a.Uint32() != 0xffffffff // that is none
		default:
			r.narrowed = true
		}
	})
	if err == nil {
		r.family = m.Data[0]
		const invert = 2
		r.narrowed = r.narrowed || m.Data[7] != lookUp || m.Data[1] != 0 || m.Data[2] != 0 || m.Data[3] != 0 ||
			binary.NativeEndian.Uint32(m.Data[8:])&invert != 0
	}
	return r, err
}

// parseForwarding reads whether a device (netconfAll: all) forwards.
func parseForwarding(m netlink.Message) (device int, on bool, err error) {
	// struct netconfmsg is one octet; attributes are aligned behind it.
	const header = 4
	err = attributes(m, header, func(a *netlink.AttributeDecoder) {
		switch a.Type() {
		case netconfIfindex:
			device = int(int32(a.Uint32()))
		case netconfForwarding:
			on = int32(a.Uint32()) != 0
		}
	})
	return device, on, err
}
