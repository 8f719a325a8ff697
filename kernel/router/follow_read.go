package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// part is one of the kernel's tables that a router goes by. Parts are read
// anew as a whole when something in them has changed.
type part uint8

const (
	partLinks part = iota
	partForwarding
	partNexthops
	partRoutes4
	partRoutes6
	partNeighbours
	partRules
	partFeatures
	parts
)

// picture is what the kernel has, as read last.
type picture struct {
	links      map[int]link
	forwards4  map[int]bool // by device
	forwards6  bool
	nexthops   map[uint32]nexthop
	routes4    []route // of tables local and main, in the kernel's order
	routes6    []route
	neighbours map[HopID]neighbour
	rules      []rule
	features
}

// read reads a part anew; it stays as it was where that fails.
func (p *picture) read(k *rtnetlink, which part) (err error) {
	switch which {
	case partLinks:
		err = p.readLinks(k)
	case partForwarding:
		err = p.readForwarding(k)
	case partNexthops:
		err = p.readNexthops(k)
	case partRoutes4:
		p.routes4, err = readRoutes(k, unix.AF_INET, p.routes4)
	case partRoutes6:
		p.routes6, err = readRoutes(k, unix.AF_INET6, p.routes6)
	case partNeighbours:
		err = p.readNeighbours(k)
	case partRules:
		err = p.readRules(k)
	case partFeatures:
		err = p.readFeatures(k)
	}
	if err != nil {
		return fmt.Errorf("read the kernel's %s: %w", which, err)
	}
	return nil
}

func (p part) String() string {
	return [parts]string{"devices", "forwarding settings", "nexthops", "IPv4 routes", "IPv6 routes", "neighbours", "rules", "devices' features"}[p]
}

// partOf is the part that a notification is about; parts: none.
func partOf(m netlink.Message) part {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return partLinks
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return partForwarding
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return partNexthops
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return partNeighbours
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return partRules
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) > 0 && m.Data[0] == unix.AF_INET6 {
			return partRoutes6
		}
		return partRoutes4
	}
	return parts
}

func (p *picture) readLinks(k *rtnetlink) error {
	replies, err := k.list(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return err
	}
	links := make(map[int]link, len(replies))
	for _, m := range replies {
		l, err := parseLink(m)
		if err != nil {
			return err
		}
		links[l.index] = l
	}
	p.links = links
	return nil
}

func (p *picture) readForwarding(k *rtnetlink) error {
	by := map[int]bool{}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		replies, err := k.list(unix.RTM_GETNETCONF, []byte{family, 0, 0, 0})
		if errors.Is(err, unix.EOPNOTSUPP) { // IPv6 is switched off
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range replies {
			device, on, err := parseForwarding(m)
			if err != nil {
				return err
			}
			if family == unix.AF_INET {
				by[device] = on
			} else if device == netconfAll {
				p.forwards6 = on
			}
		}
	}
	p.forwards4 = by
	return nil
}

func (p *picture) readNexthops(k *rtnetlink) error {
	replies, err := k.list(unix.RTM_GETNEXTHOP, make([]byte, unix.SizeofNhmsg))
	if err != nil {
		return err
	}
	nexthops := make(map[uint32]nexthop, len(replies))
	for _, m := range replies {
		id, n, err := parseNexthop(m)
		if err != nil {
			return err
		}
		nexthops[id] = n
	}
	p.nexthops = nexthops
	return nil
}

// readRoutes lists tables local and main; the rules ask no other before these.
func readRoutes(k *rtnetlink, family byte, room []route) ([]route, error) {
	routes := make([]route, 0, len(room))
	for _, table := range []uint32{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN} {
		a := netlink.NewAttributeEncoder()
		a.Uint32(unix.RTA_TABLE, table)
		narrow, err := a.Encode()
		if err != nil {
			return room, err
		}
		header := make([]byte, unix.SizeofRtMsg)
		header[0] = family
		replies, err := k.list(unix.RTM_GETROUTE, append(header, narrow...))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // there is no such table yet, or no such family
		}
		if err != nil {
			return room, err
		}
		for _, m := range replies {
			if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg ||
				binary.NativeEndian.Uint32(m.Data[8:])&unix.RTM_F_CLONED != 0 {
				continue // what was learned of one destination
			}
			r, err := parseRoute(m)
			if err != nil {
				return room, err
			}
			if r.table == table {
				routes = append(routes, r)
			}
		}
	}
	return routes, nil
}

func (p *picture) readNeighbours(k *rtnetlink) error {
	neighbours := make(map[HopID]neighbour, len(p.neighbours))
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := make([]byte, unix.SizeofNdMsg)
		header[0] = family
		replies, err := k.list(unix.RTM_GETNEIGH, header)
		if err != nil {
			return err
		}
		for _, m := range replies {
			n, err := parseNeighbour(m)
			if err != nil {
				return err
			}
			if n.id.Gateway.IsValid() && !n.proxy {
				neighbours[n.id] = n
			}
		}
	}
	p.neighbours = neighbours
	return nil
}

func (p *picture) readRules(k *rtnetlink) error {
	var rules []rule
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := make([]byte, unix.SizeofRtMsg)
		header[0] = family
		replies, err := k.list(unix.RTM_GETRULE, header)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range replies {
			r, err := parseRule(m)
			if err != nil {
				return err
			}
			rules = append(rules, r)
		}
	}
	p.rules = rules
	return nil
}

// otherRules says which rules there are besides the kernel's own; empty: none.
// With others a destination alone does not say where a packet goes.
func (p *picture) otherRules() (others []string) {
	own := []uint32{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT}
	for _, r := range p.rules {
		if r.narrowed || !slices.Contains(own, r.table) {
			flag := ""
			if r.family == unix.AF_INET6 {
				flag = "-6 "
			}
			others = append(others, fmt.Sprintf("ip %srule %d", flag, r.priority))
		}
	}
	return others
}

// solicit has the kernel ask for a neighbour, or confirm what it knows, as if
// a packet had gone there.
func (k *rtnetlink) solicit(n HopID) error {
	header := make([]byte, unix.SizeofNdMsg)
	header[0] = unix.AF_INET6
	if n.Gateway.Is4() {
		header[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(header[4:], uint32(n.Device))
	header[10] = ntfUse
	a := netlink.NewAttributeEncoder()
	a.Bytes(ndaDst, n.Gateway.AsSlice())
	destination, err := a.Encode()
	if err != nil {
		return err
	}
	_, err = k.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_NEWNEIGH, Flags: netlink.Request | netlink.Create | netlink.Acknowledge},
		Data:   append(header, destination...),
	})
	return err
}
