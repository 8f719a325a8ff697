package swtch

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// All that is ours in the kernel is a set of objects, each a key and a value.
// What shall be and what is are such sets; their difference is the messages
// to send, so that installing, repointing, putting right, going back and
// taking away are one thing.

// kind of an object, in the order in which they are installed: what refers to
// others comes after them, and a MAC has its bridge entry before any nexthop
// is pointed to it.
type kind uint8

const (
	kindNexthop kind = iota
	kindGroup
	kindBridge
	kindNeighbour
	kindRoute
	kindAnnounced
	kinds
)

func (k kind) String() string { return Kinds[k] }

// key says which object it is. Fields that a kind does not have are zero.
type key struct {
	kind kind
	id   uint32     // nexthop, group
	addr netip.Addr // neighbour, route
	mac  wire.MAC   // bridge
	// table is the routing table of a route.
	table uint32
}

// value is what an object says. It is comparable, so that a difference is !=.
type value struct {
	// device is the index of a nexthop's or neighbour's device, of the port
	// behind a bridge entry, or of the device of an announced route.
	device  uint32
	gateway netip.Addr // nexthop
	members string     // group: ids, 4 octets each, native order
	mac     wire.MAC   // neighbour
	group   uint32     // route
	// foreign is what marks an object of our key as not made by us in the way
	// we make it: another state, protocol or kind. Zero in what shall be.
	foreign uint32
}

// objects are sets by kind, so that those that a change does not concern are
// not even compared.
type objects [kinds]map[key]value

func (o *objects) put(k key, v value) {
	if o[k.kind] == nil {
		o[k.kind] = map[key]value{}
	}
	o[k.kind][k] = v
}

// empty: nothing was ever put in.
func (o objects) empty() bool {
	for _, m := range o {
		if m != nil {
			return false
		}
	}
	return true
}

// Attributes and flags that golang.org/x/sys/unix lacks (linux/nexthop.h,
// linux/neighbour.h, linux/rtnetlink.h).
const (
	nhaID        = 1
	nhaGroup     = 2
	nhaGroupType = 3
	nhaBlackhole = 4
	nhaOIF       = 5
	nhaGateway   = 6

	ndaDst      = 1
	ndaLladdr   = 2
	ndaVLAN     = 5
	ndaMaster   = 9
	ndaProtocol = 12

	ntfMaster = 0x04
	ntfSticky = 0x40
	ntfUse    = 0x01

	rtaNHID = 30

	rtnhOnlink = 4
)

// setFlags make or replace an object; no acknowledgement is asked for, since
// errors come anyhow and the batch's end is acknowledged.
const setFlags = netlink.Request | netlink.Create | netlink.Replace

// message makes the object (or takes it away).
func message(k key, v value, remove bool) netlink.Message {
	var m netlink.Message
	switch k.kind {
	case kindNexthop, kindGroup:
		m = nexthopMessage(k, v, remove)
	case kindBridge, kindNeighbour:
		m = neighbourMessage(k, v, remove)
	default:
		m = routeMessage(k, v, remove)
	}
	m.Header.Flags = setFlags
	if remove {
		m.Header.Flags = netlink.Request
	}
	return m
}

// family of an address as rtnetlink has it.
func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func nexthopMessage(k key, v value, remove bool) netlink.Message {
	header := make([]byte, unix.SizeofNhmsg)
	header[2] = Protocol
	a := netlink.NewAttributeEncoder()
	a.Uint32(nhaID, k.id)
	m := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNEXTHOP}}
	switch {
	case remove:
		m.Header.Type = unix.RTM_DELNEXTHOP
		header[2] = 0 // not to be given
	case k.kind == kindGroup:
		// struct nexthop_grp: id, weight - 1, weight's high octet, 2 unused
		group := make([]byte, 0, 2*len(v.members))
		for i := 0; i < len(v.members); i += 4 {
			group = append(group, v.members[i:i+4]...)
			group = append(group, 0, 0, 0, 0)
		}
		a.Bytes(nhaGroup, group)
	default:
		header[0] = family(v.gateway)
		// The gateway is in no network of the device's, and need not be.
		if v.gateway.Is4() {
			binary.NativeEndian.PutUint32(header[4:], rtnhOnlink)
		}
		a.Uint32(nhaOIF, v.device)
		a.Bytes(nhaGateway, v.gateway.AsSlice())
	}
	m.Data = append(header, encoded(a)...)
	return m
}

// neighbourMessage is written by hand, octet by octet, since a repointing
// makes a thousand of them: a header, and attributes of whole multiples of
// four octets.
func neighbourMessage(k key, v value, remove bool) netlink.Message {
	m := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNEIGH}, Data: make([]byte, unix.SizeofNdMsg, 64)}
	if remove {
		m.Header.Type = unix.RTM_DELNEIGH
	}
	header := m.Data
	binary.NativeEndian.PutUint32(header[4:], v.device)
	if k.kind == kindBridge {
		header[0] = unix.AF_BRIDGE
		binary.NativeEndian.PutUint16(header[8:], unix.NUD_NOARP) // static
		// Sticky: a frame with this source cannot draw it to another port.
		header[10] = ntfMaster | ntfSticky
		if remove {
			header[10] = ntfMaster
		}
		m.Data = attribute(m.Data, ndaLladdr, k.mac[:])
		return m
	}
	header[0] = family(k.addr)
	binary.NativeEndian.PutUint16(header[8:], unix.NUD_PERMANENT)
	if k.addr.Is4() {
		a := k.addr.As4()
		m.Data = attribute(m.Data, ndaDst, a[:])
	} else {
		a := k.addr.As16()
		m.Data = attribute(m.Data, ndaDst, a[:])
	}
	if !remove {
		m.Data = attribute(m.Data, ndaLladdr, v.mac[:])
		m.Data = attribute(m.Data, ndaProtocol, []byte{Protocol})
	}
	return m
}

// attribute appends one, and fills it up to a multiple of four octets.
func attribute(b []byte, typ uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func routeMessage(k key, v value, remove bool) netlink.Message {
	header := make([]byte, unix.SizeofRtMsg)
	header[0] = family(k.addr)
	header[1] = byte(k.addr.BitLen())
	header[4] = unix.RT_TABLE_UNSPEC // the attribute says which
	header[5] = Protocol
	header[6] = unix.RT_SCOPE_UNIVERSE
	header[7] = unix.RTN_UNICAST
	a := netlink.NewAttributeEncoder()
	a.Bytes(unix.RTA_DST, k.addr.AsSlice())
	a.Uint32(unix.RTA_TABLE, k.table)
	if m := metric(k.addr); m != 0 {
		a.Uint32(unix.RTA_PRIORITY, m)
	}
	if !remove {
		if v.group != 0 {
			a.Uint32(rtaNHID, v.group)
		} else {
			header[6] = unix.RT_SCOPE_LINK
			a.Uint32(unix.RTA_OIF, v.device)
		}
	} else {
		header[6] = unix.RT_SCOPE_NOWHERE // whichever it is
	}
	m := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWROUTE}}
	if remove {
		m.Header.Type = unix.RTM_DELROUTE
	}
	m.Data = append(header, encoded(a)...)
	return m
}

// metric is the metric of our routes: the best there is, so that no other
// route to the address goes before ours without standing in its place, which
// is noticed. IPv6 reads 0 as 1024.
func metric(a netip.Addr) uint32 {
	if a.Is4() {
		return 0
	}
	return 1
}

func encoded(a *netlink.AttributeEncoder) []byte {
	b, err := a.Encode()
	if err != nil {
		// Only attributes of 64 KB or more cannot be encoded: vip.MaxNexthops
		// keeps groups below.
		panic(fmt.Sprintf("fabric: %v", err))
	}
	return b
}

// step is one message of a change.
type step struct {
	key    key
	value  value
	remove bool
}

// difference is the steps from have to want: what is to be set in the order of
// kinds, then what is to be taken away in the opposite one.
func difference(have, want objects) (steps []step) {
	for k := range kinds {
		if same(have[k], want[k]) {
			continue
		}
		from := len(steps)
		steps = slices.Grow(steps, min(len(want[k]), 1024)) // often all, or few
		for key, v := range want[k] {
			if h, ok := have[k][key]; !ok || h != v {
				steps = append(steps, step{key: key, value: v})
			}
		}
		slices.SortFunc(steps[from:], compareSteps)
	}
	for i := range kinds {
		k := kinds - 1 - i
		if same(have[k], want[k]) {
			continue
		}
		from := len(steps)
		for key, v := range have[k] {
			if _, ok := want[k][key]; !ok {
				steps = append(steps, step{key: key, value: v, remove: true})
			}
		}
		slices.SortFunc(steps[from:], compareSteps)
	}
	return steps
}

// same: one and the same map, so that nothing in it can differ.
func same(a, b map[key]value) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// compareSteps orders steps of one kind, so that changes repeat exactly.
func compareSteps(a, b step) int {
	if c := cmp.Compare(a.key.id, b.key.id); c != 0 {
		return c
	}
	if c := a.key.addr.Compare(b.key.addr); c != 0 {
		return c
	}
	return slices.Compare(a.key.mac[:], b.key.mac[:])
}
