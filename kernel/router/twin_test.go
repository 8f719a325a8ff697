package router

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// twin is what the program does with a frame, in Go: bpf/router a second time,
// over Tables instead of maps.
type twin struct {
	t      testing.TB
	o      Options
	router *pathsel.Router
	tables *Tables
	groups []*twinGroup
}

// twinGroup is a group of the tables, of the hops that work.
type twinGroup struct {
	live []*Hop
	*pathsel.Group
}

// verdict is what becomes of a frame.
type verdict struct {
	reason string // "": forwarded
	hop    *Hop
	how    pathsel.How
	out    []byte
}

func newTwin(t testing.TB, o Options, tables *Tables) *twin {
	t.Helper()
	w := &twin{t: t, o: o, router: pathsel.NewRouter(o.Selector, o.Name), tables: tables}
	known := uint64(0)
	for _, p := range tables.Ports {
		if !o.Plain {
			known |= 1 << p
		}
	}
	for _, g := range tables.Groups {
		w.groups = append(w.groups, w.group(g, known))
	}
	return w
}

func (w *twin) hop(id HopID) *Hop {
	for i := range w.tables.Hops {
		if w.tables.Hops[i].ID == id {
			return &w.tables.Hops[i]
		}
	}
	return nil
}

func (w *twin) group(g Group, known uint64) *twinGroup {
	out := &twinGroup{}
	var hops []pathsel.Hop
	for _, m := range g {
		h := w.hop(m.Hop)
		if !h.Usable {
			continue
		}
		out.live, hops = append(out.live, h), append(hops, pathsel.Hop{Port: h.Port, Weight: m.Weight})
	}
	if len(hops) > 0 {
		var err error
		if out.Group, err = w.o.Selector.Group(hops, known); err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

// read is what a frame says.
type read struct {
	l3, length int
	vlan       uint16
	ttl        uint8
	flow       pathsel.Flow
}

func (w *twin) decide(frame []byte) verdict {
	r, reason := parse(frame)
	if reason == "" {
		reason = w.input(frame, &r)
	}
	if reason != "" {
		return verdict{reason: reason}
	}
	v := w.route(&r)
	if v.reason != "" {
		return v
	}
	switch h := v.hop; {
	case h.MAC == [6]byte{}:
		return verdict{reason: "unresolved"}
	case !h.Redirect:
		return verdict{reason: "no_xmit"}
	case r.length > h.MTU:
		return verdict{reason: "too_big"}
	case h.Ifindex == rigDevice && h.VLAN == r.vlan:
		return verdict{reason: "same_device"}
	}
	v.out = rewrite(frame, &r, v.hop)
	return v
}

func parse(frame []byte) (r read, reason string) {
	r.l3 = 14
	if len(frame) < 18 {
		return r, "not_ip"
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	if kind == 0x8100 {
		r.vlan, r.l3, kind = binary.BigEndian.Uint16(frame[14:])&0xfff, 18, binary.BigEndian.Uint16(frame[16:])
	}
	switch kind {
	case 0x0800:
		return parse4(r, frame[r.l3:])
	case 0x86dd:
		return parse6(r, frame[r.l3:])
	}
	return r, "not_ip"
}

func parse4(r read, b []byte) (read, string) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return r, "malformed"
	}
	r.length = int(binary.BigEndian.Uint16(b[2:]))
	r.flow.Src, r.flow.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	r.flow.Proto, r.ttl = b[9], b[8]
	switch {
	case r.length < 20 || r.length > len(b):
		return r, "malformed"
	case b[0]&15 != 5:
		return r, "options"
	case !sound(b[:20]):
		return r, "malformed"
	}
	for _, a := range []netip.Addr{r.flow.Src, r.flow.Dst} {
		if first := a.As4()[0]; first == 0 || first == 127 || first >= 224 {
			return r, "address"
		}
	}
	fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0
	if !fragment && r.length >= 24 {
		r.ports(b[20:])
	}
	return r, ""
}

// sound: the header's checksum is right.
func sound(header []byte) bool {
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	return sum != 0 && sum%0xffff == 0
}

func parse6(r read, b []byte) (read, string) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return r, "malformed"
	}
	r.length = int(binary.BigEndian.Uint16(b[4:])) + 40
	r.flow.Src, r.flow.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	r.flow.Proto, r.ttl, r.flow.Label = b[6], b[7], binary.BigEndian.Uint32(b)&0xfffff
	switch {
	case r.length > len(b):
		return r, "malformed"
	case r.flow.Proto == 0:
		return r, "options"
	}
	for _, a := range []netip.Addr{r.flow.Src, r.flow.Dst} {
		if a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsUnspecified() {
			return r, "address"
		}
	}
	if r.length >= 44 {
		r.ports(b[40:])
	}
	return r, ""
}

func (r *read) ports(l4 []byte) {
	if r.flow.Proto == 6 || r.flow.Proto == 17 {
		r.flow.SrcPort, r.flow.DstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	}
}

func (w *twin) input(frame []byte, r *read) string {
	for _, d := range w.tables.Devices {
		if d.Ifindex != rigDevice || d.VLAN != r.vlan {
			continue
		}
		switch {
		case [6]byte(frame) != d.MAC:
			return "other_mac"
		case r.flow.Src.Is4() && !d.IPv4, r.flow.Src.Is6() && !d.IPv6:
			return "not_forwarding"
		case r.ttl <= 1:
			return "ttl"
		}
		return ""
	}
	return "input"
}

func (w *twin) route(r *read) verdict {
	var best *Route
	for i, x := range w.tables.Routes {
		if x.Prefix.Contains(r.flow.Dst) && (best == nil || x.Prefix.Bits() > best.Prefix.Bits()) {
			best = &w.tables.Routes[i]
		}
	}
	if best == nil {
		return verdict{reason: "no_route"}
	}
	if best.Kind != Forward {
		return verdict{reason: map[RouteKind]string{Local: "local", Unreachable: "unreachable", Connected: "connected", Beyond: "beyond"}[best.Kind]}
	}
	g := w.groups[best.Group]
	if len(g.live) == 0 {
		return verdict{reason: "no_hop"}
	}
	i, how := w.router.Choose(r.flow, r.ttl, g.Group)
	return verdict{hop: g.live[i], how: how}
}

// rewrite is the frame as it leaves by a hop.
func rewrite(frame []byte, r *read, h *Hop) []byte {
	out := append(append([]byte{}, h.MAC[:]...), h.Source[:]...)
	if h.VLAN != 0 {
		out = binary.BigEndian.AppendUint16(append(out, 0x81, 0), h.VLAN)
	}
	out = append(out, frame[r.l3-2:]...) // the type, too
	ip := out[len(out)-len(frame)+r.l3:]
	if r.flow.Src.Is6() {
		ip[7]--
		return out
	}
	ip[8]--
	// RFC 1624, equation 3, by the book.
	sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^(uint16(ip[8]+1)<<8 | uint16(ip[9]))) + uint32(uint16(ip[8])<<8|uint16(ip[9]))
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return out
}
