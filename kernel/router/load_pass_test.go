package router

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// TestPasses: each reason, by a packet that has it; the kernel gets it untouched.
func TestPasses(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	id := func(n byte) HopID { return HopID{Device: 30 + int(n), Gateway: netip.AddrFrom4([4]byte{10, 8, n, 1})} }
	for n, h := range []Hop{
		{MAC: wire.MAC{}, MTU: 1500, Usable: true, Redirect: true},
		{MAC: wire.MAC{2, 3}, MTU: 1500, Usable: true},
		{MAC: wire.MAC{2, 3}, MTU: 1279, Usable: true, Redirect: true},
		{MAC: wire.MAC{2, 3}, MTU: 1500, Usable: true, Redirect: true, Ifindex: rigDevice},
		{MAC: wire.MAC{2, 3}, MTU: 1500, Redirect: true},
		{MAC: wire.MAC{2, 3}, MTU: 1500, Usable: true, Redirect: true, Ifindex: rigDevice, VLAN: tagged},
	} {
		h.ID, h.Port = id(byte(n)), -1
		if h.Ifindex == 0 {
			h.Ifindex = h.ID.Device
		}
		tables.Hops = append(tables.Hops, h)
		tables.Groups = append(tables.Groups, Group{{h.ID, 1}})
		tables.Routes = append(tables.Routes, Route{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 4, byte(n), 0}), 24), Forward, len(tables.Groups) - 1})
	}
	tables.Devices[1].IPv4, tables.Devices[1].IPv6 = false, true
	r.apply(tables)
	w := newTwin(t, r.o, &tables)

	frame := func(dst string, ip wire.IP) []byte { return to(dst, ip).Frame() }
	link := func(l wire.Link) []byte { s := to("203.0.113.9", wire.IP{}); s.Link = l; return s.Frame() }
	from := func(src string) []byte {
		s := to("203.0.113.9", wire.IP{})
		if s.Src = netip.AddrPortFrom(netip.MustParseAddr(src), 9); s.Src.Addr().Is6() {
			s.Dst = server6
		}
		return s.Frame()
	}
	big := to("10.4.2.9", wire.IP{})
	big.Payload = make([]byte, 1279-40+1)
	fits := to("10.4.2.9", wire.IP{})
	fits.Payload = make([]byte, 1279-40)
	arp := append(bytes.Repeat([]byte{0xff}, 12), append([]byte{8, 6}, make([]byte, 46)...)...)
	tag7 := wire.Link{Dst: tables.Devices[1].MAC, VLAN: tagged}
	hop := wire.IP{Extensions: []wire.Extension{{Type: 0}}}
	for _, c := range []struct {
		want, what string
		frame      []byte
	}{
		{"not_ip", "ARP", arp},
		{"not_ip", "two tags", link(wire.Link{Dst: rigMAC, VLAN: 5, EtherType: wire.EtherTypeVLAN})},
		{"not_ip", "17 bytes", frame("203.0.113.9", wire.IP{})[:17]},
		{"malformed", "IPv4 with the type of IPv6", link(wire.Link{Dst: rigMAC, EtherType: wire.EtherTypeIPv6})},
		{"malformed", "cut", frame("203.0.113.9", wire.IP{})[:40]},
		{"malformed", "a wrong checksum", frame("203.0.113.9", wire.IP{BadChecksum: true})},
		{"input", "a VLAN that nothing is routed from", link(wire.Link{Dst: rigMAC, VLAN: 8})},
		{"other_mac", "broadcast", link(wire.Link{Dst: wire.MAC{255, 255, 255, 255, 255, 255}})},
		{"other_mac", "one bit off", link(wire.Link{Dst: wire.MAC{2, 0, 0, 0, 0, 3}})},
		{"other_mac", "the VLAN's address without a tag", link(wire.Link{Dst: tag7.Dst})},
		{"not_forwarding", "IPv4 where IPv6 alone is forwarded", link(tag7)},
		{"options", "of IPv4", frame("203.0.113.9", wire.IP{Options: []byte{1, 1, 1, 1}})},
		{"options", "hop by hop", frame("2001:db8:2::9", hop)},
		{"address", "to a group", frame("224.0.0.5", wire.IP{})},
		{"address", "to all", frame("255.255.255.255", wire.IP{})},
		{"address", "loopback", frame("127.0.0.1", wire.IP{})},
		{"address", "from nobody", from("0.0.0.0")},
		{"address", "from a group", from("239.1.1.1")},
		{"address", "from link-local", from("fe80::5")},
		{"address", "to IPv6 group", frame("ff0e::5", wire.IP{})},
		{"address", "to IPv6 loopback", frame("::1", wire.IP{})},
		{"address", "from IPv6 nobody", from("::")},
		{"ttl", "ends here", frame("203.0.113.9", wire.IP{TTL: 1})},
		{"ttl", "ends here, IPv6", frame("2001:db8:2::9", wire.IP{TTL: 1})},
		{"no_route", "nowhere", frame("192.0.2.1", wire.IP{})},
		{"no_route", "nowhere, IPv6", frame("2001:db8:3::1", wire.IP{})},
		{"local", "the router", frame("10.0.0.1", wire.IP{})},
		{"unreachable", "a blackhole", frame("10.1.2.3", wire.IP{})},
		{"unreachable", "inside a shorter prefix", frame("2001:db8:2:f::9", wire.IP{})},
		{"connected", "a neighbour", frame("10.2.0.5", wire.IP{})},
		{"beyond", "a tunnel", frame("10.3.0.5", wire.IP{})},
		{"unresolved", "a next hop", frame("10.4.0.9", wire.IP{})},
		{"no_xmit", "a device", frame("10.4.1.9", wire.IP{})},
		{"too_big", "by a byte", big.Frame()},
		{"", "just as large", fits.Frame()},
		{"same_device", "back", frame("10.4.3.9", wire.IP{})},
		{"no_hop", "down", frame("10.4.4.9", wire.IP{})},
		{"", "to another VLAN of the device", frame("10.4.5.9", wire.IP{})},
	} {
		if v := r.check(w, c.frame); v.reason != c.want {
			t.Errorf("%s: %q, want %q", c.what, v.reason, c.want)
		}
	}
}

// TestCut: every fixture, cut off at every byte, goes as the twin says; nothing
// that is not whole is forwarded.
func TestCut(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	r.apply(tables)
	w := newTwin(t, r.o, &tables)
	vlan := wire.Link{Dst: tables.Devices[1].MAC, VLAN: tagged}
	tag := to("203.0.113.9", wire.IP{})
	tag.Link = vlan
	for _, frame := range [][]byte{
		to("203.0.113.9", wire.IP{}).Frame(), to("2001:db8:2::9", wire.IP{}).Frame(), tag.Frame(),
		to("203.0.113.193", wire.IP{}).Frame(),
		to("203.0.113.9", wire.IP{Options: []byte{7, 4, 0, 0}}).Frame(),
		to("2001:db8:2::9", wire.IP{Extensions: []wire.Extension{{Type: 60}}, FragmentOffset: 1}).Frame(),
		wire.UDP{Src: client6, Dst: server6, Link: wire.Link{Dst: rigMAC}}.Frame(),
	} {
		for n := 14; n < len(frame); n++ {
			if v := r.check(w, frame[:n]); v.reason == "" {
				t.Errorf("%d bytes of %x were forwarded", n, frame)
			}
		}
	}
}

// TestPadded: a frame longer than its packet is forwarded as it is, and what
// the packet's own length cuts off has no ports.
func TestPadded(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	r.apply(tables)
	w := newTwin(t, r.o, &tables)
	for payload := range 12 {
		for _, dst := range []string{"203.0.113.9", "2001:db8:2::9"} {
			a := netip.MustParseAddr(dst)
			src := client4.Addr()
			if a.Is6() {
				src = client6.Addr()
			}
			packet := wire.IP{Src: src, Dst: a, Protocol: wire.ProtoTCP, Payload: bytes.Repeat([]byte{0x5a}, payload)}.Packet()
			frame := append(wire.Link{Dst: rigMAC}.Frame(packet), bytes.Repeat([]byte{0xa5}, 20)...)
			if v := r.check(w, frame); v.reason != "" {
				t.Errorf("%d bytes of payload to %s: %s", payload, dst, v.reason)
			}
		}
	}
}
