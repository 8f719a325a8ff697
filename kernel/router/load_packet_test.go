package router

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

var (
	rigMAC   = wire.MAC{2, 0, 0, 0, 0, 1}
	client4  = netip.MustParseAddrPort("198.51.100.7:40000")
	server4  = netip.MustParseAddrPort("203.0.113.9:80")
	client6  = netip.MustParseAddrPort("[2001:db8:1::7]:40000")
	server6  = netip.MustParseAddrPort("[2001:db8:2::9]:80")
	tagged   = uint16(7) // a VLAN that is routed from, too
	wireIP   = wire.IP{}
	leaves   = uint16(40) // one that packets leave by
	gateways = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("10.9.2.1"), netip.MustParseAddr("fe80::1")}
)

// standard is a router with a group of four hops, numbered 0, 3, 5 and without
// a number, the second of which is behind a VLAN.
func standard() Tables {
	t := Tables{Ports: []int{0, 3, 5, 9}, Devices: []Device{
		{Ifindex: rigDevice, Name: "lo", MAC: rigMAC, IPv4: true, IPv6: true},
		{Ifindex: rigDevice, Name: "lo.7", MAC: wire.MAC{2, 0, 0, 0, 0, 7}, VLAN: tagged, IPv4: true}}}
	var g Group
	for i, gateway := range gateways {
		h := Hop{ID: HopID{Device: 10 + i, Gateway: gateway}, Ifindex: 10 + i, Source: wire.MAC{2, 1, 0, 0, 0, byte(i)},
			MAC: wire.MAC{2, 2, 0, 0, 0, byte(i)}, MTU: 1500, Port: []int{0, 3, 5, -1}[i], Usable: true, Redirect: true}
		if i == 1 {
			h.VLAN = leaves
		}
		t.Hops, g = append(t.Hops, h), append(g, Member{h.ID, 1})
	}
	t.Groups = []Group{g, g[:1], g[1:2]}
	for _, r := range []struct {
		prefix string
		kind   RouteKind
		group  int
	}{
		{"203.0.113.0/24", Forward, 0}, {"2001:db8:2::/48", Forward, 0}, {"203.0.113.128/25", Forward, 1}, {"203.0.113.192/26", Forward, 2},
		{"10.0.0.1/32", Local, 0}, {"10.1.0.0/16", Unreachable, 0}, {"10.2.0.0/16", Connected, 0}, {"10.3.0.0/16", Beyond, 0},
		{"2001:db8:2:f::/64", Unreachable, 0},
	} {
		t.Routes = append(t.Routes, Route{netip.MustParsePrefix(r.prefix), r.kind, r.group})
	}
	return t
}

// to is a TCP segment to the router's own MAC, on its way to dst.
func to(dst string, ip wire.IP) wire.TCP {
	s := wire.TCP{Src: client4, Dst: netip.AddrPortFrom(netip.MustParseAddr(dst), 80), Flags: wire.ACK, IP: ip, Payload: []byte("payload"),
		Link: wire.Link{Dst: rigMAC}}
	if s.Dst.Addr().Is6() {
		s.Src = client6
	}
	return s
}

// check runs a frame and holds it against the twin.
func (r *rig) check(w *twin, frame []byte) verdict {
	r.t.Helper()
	want := w.decide(frame)
	before, err := r.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	reason, action, out := r.why(frame)
	if reason != want.reason {
		r.t.Errorf("%x: %q, want %q", frame, reason, want.reason)
		return want
	}
	if reason != "" {
		if action != xdpPass || !bytes.Equal(out, frame) {
			r.t.Errorf("%x: %s: action %d, the frame is now %x", frame, reason, action, out)
		}
		return want
	}
	if !bytes.Equal(out, want.out) {
		r.t.Errorf("%x: left as\n%x, want\n%x", frame, out, want.out)
	}
	after, err := r.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range after.Hops {
		n := h.Ways
		for _, b := range before.Hops {
			if b.ID == h.ID {
				n.Selected, n.Gone, n.Hashed, n.Single = n.Selected-b.Ways.Selected, n.Gone-b.Ways.Gone, n.Hashed-b.Ways.Hashed, n.Single-b.Ways.Single
			}
		}
		right := Ways{}
		if h.ID == want.hop.ID {
			*[]*uint64{&right.Selected, &right.Gone, &right.Hashed, &right.Single}[want.how] = 1
		}
		if n != right {
			r.t.Errorf("%x: hop %v counts %+v, want %+v", frame, h.ID, n, right)
		}
	}
	return want
}

func TestForward(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	r.apply(tables)
	w := newTwin(t, r.o, &tables)
	for name, c := range map[string]struct {
		frame []byte
		dst   byte // last byte of the MAC; 0xff: any
	}{
		"IPv4":          {to("203.0.113.9", wire.IP{}).Frame(), 0xff},
		"IPv6":          {to("2001:db8:2::9", wire.IP{}).Frame(), 0xff},
		"one hop":       {to("203.0.113.129", wire.IP{}).Frame(), 0},
		"to a VLAN":     {to("203.0.113.193", wire.IP{}).Frame(), 1},
		"last hop":      {to("203.0.113.129", wire.IP{TTL: 2}).Frame(), 0},
		"a fragment":    {to("203.0.113.9", wire.IP{MoreFragments: true}).Frame(), 0xff},
		"IPv6 fragment": {to("2001:db8:2::9", wire.IP{FragmentOffset: 3}).Frame(), 0xff},
		"UDP":           {wire.UDP{Src: client4, Dst: server4, Link: wire.Link{Dst: rigMAC}}.Frame(), 0xff},
		"echo": {func() []byte {
			m := wire.Echo(client4.Addr(), server4.Addr(), 1, 2, nil, false)
			m.Link.Dst = rigMAC
			return m.Frame()
		}(), 0xff},
	} {
		v := r.check(w, c.frame)
		if v.reason != "" {
			t.Errorf("%s: %s", name, v.reason)
		} else if c.dst != 0xff && v.out[5] != c.dst {
			t.Errorf("%s: went to %x", name, v.out[:6])
		}
	}
}

// TestLargeFrame: a frame in several buffers is forwarded whole, and one that
// lacks its end is not.
func TestLargeFrame(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	for i := range tables.Hops {
		tables.Hops[i].MTU = 9000
	}
	r.apply(tables)
	w := newTwin(t, r.o, &tables)
	for _, dst := range []string{"203.0.113.129", "203.0.113.193", "2001:db8:2::9"} {
		s := to(dst, wireIP)
		s.Payload = bytes.Repeat([]byte("payload."), 1000)
		frame := s.Frame()
		if v := r.check(w, frame); v.reason != "" {
			t.Errorf("%s: %s", dst, v.reason)
		}
		if v := r.check(w, frame[:len(frame)-1]); v.reason != "malformed" {
			t.Errorf("%s, cut: %q", dst, v.reason)
		}
	}
}
