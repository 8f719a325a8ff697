package fabrics

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// groups are the nexthop groups of all nodes. The kernel's nexthops are
// numbered by their device, groups from firstGroup on.
type groups map[group]uint32

// group is a node's group of these nexthops.
type group struct {
	node    int
	members string
}

const firstGroup = 1 << 16

// rtaNexthopID is RTA_NH_ID of linux/rtnetlink.h.
const rtaNexthopID = 30

// route makes an IPv4 route refer to the group of these hops, which it makes
// if need be, or to the hop if there is only one. Kernels forget nexthops of links
// that are down, so all are made anew each time.
func (g *groups) route(node int, to netip.Addr, hops []*netlink.NexthopInfo, source net.IP) error {
	ids := make([]uint32, len(hops))
	for i, h := range hops {
		ids[i] = uint32(h.LinkIndex)
		if err := replaceNexthop(ids[i], nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(ids[i])), nl.NewRtAttr(unix.NHA_GATEWAY, h.Gw.To4())); err != nil {
			return fmt.Errorf("nexthop via %s: %w", h.Gw, err)
		}
	}
	id := ids[0]
	if len(ids) > 1 {
		slices.Sort(ids)
		var members []byte
		for _, n := range ids {
			members = binary.NativeEndian.AppendUint32(members, n)
			members = append(members, 0, 0, 0, 0) // weight 1
		}
		id = g.id(group{node, string(members)})
		if err := replaceNexthop(id, nl.NewRtAttr(unix.NHA_GROUP, members)); err != nil {
			return fmt.Errorf("nexthop group: %w", err)
		}
	}
	return replaceNexthopRoute(to, id, source)
}

func (g *groups) id(of group) uint32 {
	if *g == nil {
		*g = groups{}
	}
	if _, ok := (*g)[of]; !ok {
		(*g)[of] = firstGroup + uint32(len(*g))
	}
	return (*g)[of]
}

// nhmsg is struct nhmsg of linux/nexthop.h.
type nhmsg [8]byte

func (m nhmsg) Len() int          { return len(m) }
func (m nhmsg) Serialize() []byte { return m[:] }

func replaceNexthop(id uint32, attrs ...*nl.RtAttr) error {
	r := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	family := byte(unix.AF_INET)
	if attrs[0].Type == unix.NHA_GROUP {
		family = unix.AF_UNSPEC
	}
	r.AddData(nhmsg{0: family, 2: unix.RTPROT_STATIC})
	r.AddData(nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(id)))
	for _, a := range attrs {
		r.AddData(a)
	}
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func replaceNexthopRoute(to netip.Addr, id uint32, source net.IP) error {
	r := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	m := nl.NewRtMsg()
	m.Family, m.Dst_len, m.Protocol = unix.AF_INET, uint8(to.BitLen()), unix.RTPROT_STATIC
	r.AddData(m)
	r.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	r.AddData(nl.NewRtAttr(rtaNexthopID, nl.Uint32Attr(id)))
	if source != nil {
		r.AddData(nl.NewRtAttr(unix.RTA_PREFSRC, source.To4()))
	}
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
