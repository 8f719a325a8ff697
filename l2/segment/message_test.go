package segment

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/mdlayher/ndp"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/wire"
)

var (
	here  = station{wire.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("fe80::1")}
	there = station{wire.MAC{2, 0, 0, 0, 0, 2}, netip.MustParseAddr("fe80::2")}
	four  = netip.MustParseAddr("192.0.2.10")
	six   = netip.MustParseAddr("2001:db8::10")
)

// What one end says the other understands; each frame goes to whom it should.
func TestMessages(t *testing.T) {
	noLocal := station{mac: here.mac}
	for what, c := range map[string]struct {
		frame []byte
		to    wire.MAC
		want  message
	}{
		"ARP asks one":          {here.question(four, there.mac), there.mac, message{address: four, mac: here.mac, from: netip.IPv4Unspecified()}},
		"ARP asks all":          {here.question(four, broadcast), broadcast, message{address: four, mac: here.mac, from: netip.IPv4Unspecified()}},
		"ARP answers":           {there.answer(message{address: four, mac: here.mac, from: netip.MustParseAddr("192.0.2.1")}), here.mac, message{says: true, address: four, mac: there.mac, from: four}},
		"ARP announces":         {there.announcements(four)[0], broadcast, message{says: true, address: four, mac: there.mac, from: four}},
		"ARP announces, answer": {there.announcements(four)[1], broadcast, message{says: true, address: four, mac: there.mac, from: four}},
		"ND asks one":           {here.question(six, there.mac), there.mac, message{address: six, mac: here.mac, from: here.local}},
		"ND asks all":           {here.question(six, broadcast), wire.MAC{0x33, 0x33, 0xff, 0, 0, 0x10}, message{address: six, mac: here.mac, from: here.local}},
		"ND answers":            {there.answer(message{address: six, mac: here.mac, from: here.local}), here.mac, message{says: true, address: six, mac: there.mac, from: there.local}},
		"ND answers nobody":     {there.answer(message{address: six, mac: here.mac, from: netip.IPv6Unspecified()}), allNodesMAC, message{says: true, address: six, mac: there.mac, from: there.local}},
		"ND announces":          {there.announcements(six)[0], allNodesMAC, message{says: true, address: six, mac: there.mac, from: there.local}},
		"ND, no local address":  {noLocal.announcements(six)[0], allNodesMAC, message{says: true, address: six, mac: here.mac, from: six}},
	} {
		if is, ok := read(c.frame); !ok || is != c.want {
			t.Errorf("%s: %+v %t, want %+v", what, is, ok, c.want)
		}
		if to := wire.MAC(c.frame[:6]); to != c.to {
			t.Errorf("%s: goes to %v, want %v", what, to, c.to)
		}
	}
	if noLocal.question(six, broadcast) != nil {
		t.Error("who has no link-local address asks all the same")
	}
}

// Flags of advertisements: solicited where somebody asked, override always, as the
// address moves; never a router's.
func TestAdvertisements(t *testing.T) {
	for solicited, frame := range map[bool][]byte{
		true:  here.answer(message{address: six, mac: there.mac, from: there.local}),
		false: here.announcements(six)[0],
	} {
		p := wire.Parse(frame)
		m, err := ndp.ParseMessage(frame[p.L4 : p.L3+p.TotalLen])
		if err != nil {
			t.Fatal(err)
		}
		if is := m.(*ndp.NeighborAdvertisement); is.Solicited != solicited || !is.Override || is.Router {
			t.Errorf("solicited %t: %+v", solicited, is)
		}
	}
}

// What is cut, altered or of another kind says nothing.
func TestMalformed(t *testing.T) {
	alter := func(frame []byte, at int, to ...byte) []byte {
		b := bytes.Clone(frame)
		copy(b[at:], to)
		return b
	}
	a, n := here.question(four, broadcast), here.question(six, broadcast)
	announced := here.announcements(six)[0]
	for what, frame := range map[string][]byte{
		"empty":                       nil,
		"ARP, other hardware":         alter(a, 14, 0, 6),
		"ARP, other protocol":         alter(a, 16, 0x86, 0xdd),
		"ARP, long hardware address":  alter(a, 18, 8),
		"ARP, short protocol address": alter(a, 19, 2),
		"ARP, reverse":                alter(a, 20, 0, 3),
		"ARP of a group":              alter(a, 22, 1),
		"ARP of nobody":               alter(a, 22, 0, 0, 0, 0, 0, 0),
		"ARP for a group":             alter(a, 38, 224),
		"ARP for nothing":             alter(a, 38, 0, 0, 0, 0),
		"tagged":                      wire.Link{Src: here.mac, Dst: broadcast, VLAN: 5, EtherType: wire.EtherTypeARP}.Frame(a[14:]),
		"ND over a router":            alter(n, 21, 254),
		"ND, code":                    alter(n, 55, 1),
		"ND, checksum":                alter(n, 56, 0, 0),
		"ND, target altered":          alter(n, 77, 0x11),
		"ND, option of no length":     alter(announced, 79, 0),
		"an echo request":             wire.Echo(there.local, here.local, 1, 1, nil, false).Frame(),
		"another protocol":            wire.TCP{Src: netip.MustParseAddrPort("[fe80::2]:1"), Dst: netip.MustParseAddrPort("[fe80::1]:2")}.Frame(),
	} {
		if m, ok := read(frame); ok {
			t.Errorf("%s: %+v", what, m)
		}
	}
	for _, frame := range [][]byte{a, n, announced} {
		for cut := range frame {
			if m, ok := read(frame[:cut]); ok {
				t.Errorf("cut after %d bytes of %d: %+v", cut, len(frame), m)
			}
		}
	}
}

// No frame makes it fail, and one that asks can be answered.
func TestAnyFrame(t *testing.T) {
	seeds := [][]byte{here.question(four, broadcast), here.question(six, broadcast), here.announcements(six)[0], here.announcements(four)[1]}
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Clone(rapid.SampledFrom(seeds).Draw(t, "frame"))
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		b = append(b[:rapid.IntRange(0, len(b)).Draw(t, "cut")], rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "more")...)
		m, ok := read(b)
		if ok && !m.says && here.answer(m) == nil {
			t.Fatalf("%x asks for %s, and cannot be answered", b, m.address)
		}
	})
}
