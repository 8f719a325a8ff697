package segment

import (
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"

	"github.com/fairlead/fairlead/wire"
)

// message is a frame of ARP (RFC 826) or neighbour discovery (RFC 4861): a question
// for an address, or somebody's word that he has it.
type message struct {
	address netip.Addr
	says    bool     // that address is at mac
	mac     wire.MAC // who says so, or who asks
	// from is who asks; unspecified where somebody wants the address himself.
	from netip.Addr
}

// hopLimit of neighbour discovery: what came over a router has less.
const hopLimit = 255

var (
	broadcast = wire.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// allNodes is ff02::1, which everybody listens to.
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = wire.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// read is a frame's message; false: it has none, or is malformed.
func read(frame []byte) (m message, ok bool) {
	p := wire.Parse(frame)
	if p.Err != nil || p.Tagged {
		return m, false
	}
	switch {
	case p.EtherType == wire.EtherTypeARP:
		m, ok = readARP(frame[p.L3:])
	case p.Version == 6 && p.Protocol == wire.ProtoICMPv6:
		m, ok = readND(p)
	}
	// A group, or nobody, has no address.
	return m, ok && m.mac[0]&1 == 0 && m.mac != wire.MAC{} && m.address.IsValid() && !m.address.IsMulticast() && !m.address.IsUnspecified()
}

func readARP(b []byte) (m message, ok bool) {
	var p arp.Packet
	if len(b) < 8 || b[4] != 6 || b[5] != 4 || p.UnmarshalBinary(b) != nil {
		return m, false
	}
	if p.HardwareType != 1 || p.ProtocolType != wire.EtherTypeIPv4 {
		return m, false
	}
	m = message{mac: wire.MAC(p.SenderHardwareAddr), from: p.SenderIP, address: p.TargetIP}
	switch p.Operation {
	case arp.OperationRequest:
		m.says = p.SenderIP == p.TargetIP // an announcement (RFC 5227)
	case arp.OperationReply:
		m.says, m.address = true, p.SenderIP
	default:
		return m, false
	}
	return m, true
}

func readND(p *wire.Parsed) (m message, ok bool) {
	b := p.Frame[p.L4 : p.L3+p.TotalLen]
	if p.TTL != hopLimit || p.ICMPCode != 0 || p.Fragmented() || wire.TransportChecksum(p.Src, p.Dst, wire.ProtoICMPv6, b) != 0 {
		return m, false
	}
	said, err := ndp.ParseMessage(b)
	if err != nil {
		return m, false
	}
	m.from, m.mac = p.Src, wire.MAC(p.Frame[6:12])
	var options []ndp.Option
	switch said := said.(type) {
	case *ndp.NeighborSolicitation:
		m.address, options = said.TargetAddress, said.Options
	case *ndp.NeighborAdvertisement:
		m.says, m.address, options = true, said.TargetAddress, said.Options
	default:
		return m, false
	}
	way := ndp.Source
	if m.says {
		way = ndp.Target
	}
	for _, o := range options {
		if l, is := o.(*ndp.LinkLayerAddress); is && l.Direction == way {
			m.mac = wire.MAC(l.Addr)
		}
	}
	return m, true
}

// station is one end of an Ethernet.
type station struct {
	mac wire.MAC
	// local is its link-local address; invalid: it has none.
	local netip.Addr
}

// answer is the frame that answers a question: the address is here.
func (s station) answer(m message) []byte {
	if m.address.Is4() {
		return s.arp(arp.OperationReply, m.mac, m.address, m.mac, m.from)
	}
	to, at, solicited := m.from, m.mac, true
	if to.IsUnspecified() { // it is not to be that one's
		to, at, solicited = allNodes, allNodesMAC, false
	}
	return s.advertisement(m.address, to, at, solicited)
}

// announcements tell everybody that the address is here. Some switches and hosts
// believe ARP's requests alone, some its replies.
func (s station) announcements(a netip.Addr) [][]byte {
	if a.Is4() {
		return [][]byte{s.arp(arp.OperationRequest, broadcast, a, wire.MAC{}, a), s.arp(arp.OperationReply, broadcast, a, s.mac, a)}
	}
	return [][]byte{s.advertisement(a, allNodes, allNodesMAC, false)}
}

// question asks one machine, or all where at is broadcast, for an address, so that
// nobody who hears it remembers anything. Nil: it cannot be asked from here.
func (s station) question(a netip.Addr, at wire.MAC) []byte {
	if a.Is4() {
		return s.arp(arp.OperationRequest, at, netip.IPv4Unspecified(), wire.MAC{}, a)
	}
	if !s.local.IsValid() {
		return nil
	}
	to := a
	if at == broadcast {
		to, at = solicited(a)
	}
	return s.nd(&ndp.NeighborSolicitation{TargetAddress: a}, s.local, to, at)
}

// solicited is the group that is asked for an address.
func solicited(a netip.Addr) (netip.Addr, wire.MAC) {
	b := a.As16()
	group := [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]}
	return netip.AddrFrom16(group), wire.MAC{0x33, 0x33, 0xff, b[13], b[14], b[15]}
}

func (s station) arp(op arp.Operation, to wire.MAC, sender netip.Addr, target wire.MAC, targetIP netip.Addr) []byte {
	p, err := arp.NewPacket(op, s.mac[:], sender, net.HardwareAddr(target[:]), targetIP)
	if err != nil {
		return nil // no IPv4 addresses: read and the configuration let none through
	}
	b, err := p.MarshalBinary()
	if err != nil {
		return nil
	}
	return wire.Link{Src: s.mac, Dst: to, EtherType: wire.EtherTypeARP}.Frame(b)
}

func (s station) advertisement(a, to netip.Addr, at wire.MAC, solicited bool) []byte {
	from := s.local
	if !from.IsValid() {
		from = a
	}
	return s.nd(&ndp.NeighborAdvertisement{Solicited: solicited, Override: true, TargetAddress: a,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: s.mac[:]}}}, from, to, at)
}

func (s station) nd(m ndp.Message, from, to netip.Addr, at wire.MAC) []byte {
	b, err := ndp.MarshalMessageChecksum(m, from, to)
	if err != nil {
		return nil
	}
	return wire.Link{Src: s.mac, Dst: at}.Frame(wire.IP{Src: from, Dst: to, Protocol: wire.ProtoICMPv6, TTL: hopLimit, Payload: b}.Packet())
}
