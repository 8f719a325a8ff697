package cheetah

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/wire"
)

// Host is a server's side of the scheme: what it makes of the frames that reach
// it, written to be plain. Tests alone ask it, and hold host_in of bpf/host to it.
type Host struct {
	Layout   Layout
	Services []Service
	Keys     [2]hash.Key
	Epochs   uint8     // bit e is set where parity e is live
	Slots    [2]uint32 // this server's, and the one that it had before
	NowMS    uint32    // on the shared clock
	ClockD   uint32    // the shared clock's lead over this server's own
}

// Service is a VIP, and where tunnels to it end.
type Service struct {
	VIP    netip.AddrPort
	Tunnel netip.Addr
}

// inner is a packet as the stack is to see it.
type inner struct {
	src, dst netip.Addr
	proto    byte
	fragment bool
	l4       []byte
	l4At     int
	version  byte
}

func be16(b []byte, at int) int { return int(binary.BigEndian.Uint16(b[at:])) }

func isTransport(proto byte) bool { return proto == wire.ProtoTCP || proto == wire.ProtoUDP }

// In is the frame that the stack gets: what came in a tunnel is taken out, and
// the timestamp that this server stamped is put back. Whatever is none of its
// VIPs' passes as it is; ok is false where it is dropped.
func (h *Host) In(frame []byte) (out []byte, ok bool) {
	l3 := 14
	if len(frame) >= 14 && be16(frame, 12) == wire.EtherTypeVLAN {
		l3 = 18
	}
	if len(frame) < l3 {
		return frame, true
	}
	packet := frame[l3:]
	body, outer, ok := unwrap(packet, be16(frame, l3-2))
	if !ok {
		return frame, true
	}
	p, ok := parseInner(body)
	if !ok {
		return frame, true
	}
	tunnelled := len(body) < len(packet)
	if !h.serves(&p, outer, tunnelled) {
		return frame, true
	}
	if tunnelled && p.isICMP() && !h.forwarded(body[p.l4At:], p.dst) {
		return frame, false
	}
	out = append(bytes.Clone(frame[:l3]), body...)
	binary.BigEndian.PutUint16(out[l3-2:], map[byte]uint16{4: wire.EtherTypeIPv4, 6: wire.EtherTypeIPv6}[p.version])
	if tunnelled {
		congest(out[l3:], packet)
	}
	if p.proto != wire.ProtoTCP || p.fragment {
		return out, true
	}
	return h.restore(out, l3+p.l4At, &p)
}

// unwrap takes a packet out of the tunnel that it came in, if any, whose
// destination is outer; as the program does, whatever lengths the outer headers
// say. ok is false where kind is no packet's.
func unwrap(packet []byte, kind int) (body []byte, outer netip.Addr, ok bool) {
	header, next := 40, byte(0)
	switch kind {
	case wire.EtherTypeIPv4:
		if len(packet) < 20 || packet[0]>>4 != 4 {
			return nil, outer, false
		}
		header, next = int(packet[0]&15)*4, packet[9]
		if header < 20 || be16(packet, 6)&0x3fff != 0 {
			return packet, outer, true
		}
		outer = netip.AddrFrom4([4]byte(packet[16:]))
	case wire.EtherTypeIPv6:
		if len(packet) < 40 || packet[0]>>4 != 6 {
			return nil, outer, false
		}
		next, outer = packet[6], netip.AddrFrom16([16]byte(packet[24:]))
	default:
		return nil, outer, false
	}
	body = packet[min(header, len(packet)):]
	if next == wire.ProtoUDP && len(body) >= 8 {
		_, proto, at, hops, err := wire.Datagram(uint16(be16(body, 2)), body[8:])
		if err != nil || hops != nil {
			return packet, outer, true
		}
		next, body = proto, body[8+at:]
	}
	if next != wire.ProtoIPIP && next != wire.ProtoIPv6 {
		return packet, outer, true
	}
	return body, outer, len(body) > 0 && body[0]>>4 == map[byte]byte{wire.ProtoIPIP: 4, wire.ProtoIPv6: 6}[next]
}

// parseInner fails for what no stack could deliver.
func parseInner(b []byte) (p inner, ok bool) {
	if len(b) < 20 {
		return p, false
	}
	p.version = b[0] >> 4
	header, total := int(b[0]&15)*4, be16(b, 2)
	if p.version == 4 {
		if header < 20 || total < header {
			return p, false
		}
		p.src, p.dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		p.proto, p.fragment = b[9], be16(b, 6)&0x3fff != 0
	} else {
		if len(b) < 40 {
			return p, false
		}
		p.src, p.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		if header, ok = p.extensions(b); !ok {
			return p, false
		}
		total = 40 + be16(b, 4)
	}
	if total > len(b) || header > total {
		return p, false
	}
	p.l4, p.l4At = b[header:total], header
	return p, p.fragment || !isTransport(p.proto) || len(p.l4) >= 8
}

// extensions finds what is behind IPv6's headers, of which there are at most
// seven.
func (p *inner) extensions(b []byte) (header int, ok bool) {
	header, p.proto = 40, b[6]
	for n := 0; !p.fragment && (p.proto == 0 || p.proto == 43 || p.proto == 44 || p.proto == 60); n++ {
		if len(b) < header+8 {
			return 0, false
		}
		length := 8
		if p.proto == 44 {
			p.fragment = be16(b, header+2)&0xfff9 != 0 // else atomic: whole (RFC 6946)
		} else {
			length += int(b[header+1]) * 8
		}
		if p.proto, header = b[header], header+length; n == 7 && !p.fragment {
			return 0, false
		}
	}
	return header, true
}

func (p *inner) isICMP() bool {
	return !p.fragment && p.proto == map[byte]byte{4: wire.ProtoICMP, 6: wire.ProtoICMPv6}[p.version]
}

// serves: the packet is one of a VIP here: its service's, or one that says no
// port. A tunnel must have been meant for this server.
func (h *Host) serves(p *inner, outer netip.Addr, tunnelled bool) bool {
	for _, s := range h.Services {
		if s.VIP.Addr() != p.dst || tunnelled && outer != s.Tunnel {
			continue
		}
		switch {
		case p.isICMP() || p.fragment && isTransport(p.proto):
			return true
		case isTransport(p.proto) && !p.fragment && uint16(be16(p.l4, 2)) == s.VIP.Port():
			return true
		}
	}
	return false
}

// congest gives a packet that can say so the mark of its tunnel (RFC 6040).
func congest(to, outer []byte) {
	class := func(b []byte) byte {
		if b[0]>>4 == 4 {
			return b[1] & 3
		}
		return b[1] >> 4 & 3
	}
	if class(outer) != 3 || class(to) == 0 {
		return
	}
	if to[0]>>4 == 6 {
		to[1] |= 0x30
		return
	}
	before := bytes.Clone(to)
	to[1] |= 3
	fixChecksum(to, before, 10, 0, 2, false)
}

// restore puts the timestamp back that the client echoes.
func (h *Host) restore(out []byte, l4 int, p *inner) ([]byte, bool) {
	if len(p.l4) < 20 || int(p.l4[12]>>4)*4 < 20 || int(p.l4[12]>>4)*4 > len(p.l4) {
		return out, false
	}
	ts, ok, err := wire.FindTimestamp(p.l4[20 : int(p.l4[12]>>4)*4])
	if err != nil && !ok {
		return out, false
	}
	if !ok || p.l4[13]&(wire.SYN|wire.ACK) == wire.SYN {
		return out, true
	}
	d := h.Layout.Decode(h.Keys, h.Epochs, netip.AddrPortFrom(p.src, uint16(be16(p.l4, 0))), uint16(be16(p.l4, 2)), ts.Ecr, h.NowMS)
	if !d.Live || d.Slot != h.Slots[0] && d.Slot != h.Slots[1] {
		return out, true
	}
	at := l4 + 20 + ts.At + 4
	before := bytes.Clone(out)
	binary.BigEndian.PutUint32(out[at:], ts.Ecr-d.Field<<h.Layout.Shift()-h.ClockD)
	fixChecksum(out, before, l4+16, at, 4, (20+ts.At)%2 == 1)
	return out, true
}

// fixChecksum takes the n changed bytes from at on out of the checksum and puts
// the new ones in, byte by byte; odd: at is an odd place of what is summed.
func fixChecksum(out, before []byte, check, at, n int, odd bool) {
	sum := uint32(^binary.BigEndian.Uint16(out[check:]))
	for i := range n {
		shift := 8
		if (i%2 == 1) != odd {
			shift = 0
		}
		sum += 0xffff - uint32(before[at+i])<<shift
		sum += uint32(out[at+i]) << shift
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(out[check:], ^uint16(sum))
}

// forwarded: an ICMP message to the VIP that a balancer may have sent, echo or
// an error about one of its connections.
func (h *Host) forwarded(icmp []byte, vip netip.Addr) bool {
	if len(icmp) < 8 {
		return false
	}
	kind, quote := icmp[0], icmp[8:]
	var src netip.Addr
	var proto byte
	later := false
	if vip.Is4() {
		if kind == 0 || kind == 8 {
			return true
		}
		if kind != 3 && kind != 11 && kind != 12 || len(quote) < 20 || quote[0]>>4 != 4 || quote[0]&15 < 5 {
			return false
		}
		src, proto, later = netip.AddrFrom4([4]byte(quote[12:])), quote[9], binary.BigEndian.Uint16(quote[6:])&0x1fff != 0
		quote = quote[min(int(quote[0]&15)*4, len(quote)):]
	} else {
		if kind == 128 || kind == 129 {
			return true
		}
		if kind < 1 || kind > 4 || len(quote) < 40 || quote[0]>>4 != 6 {
			return false
		}
		src, proto = netip.AddrFrom16([16]byte(quote[8:])), quote[6]
		quote = quote[40:]
		if proto == 44 {
			if len(quote) < 8 {
				return false
			}
			proto, later = quote[0], binary.BigEndian.Uint16(quote[2:])&0xfff8 != 0
			quote = quote[8:]
		}
	}
	if src != vip || proto != wire.ProtoTCP && proto != wire.ProtoUDP {
		return false
	}
	return later || len(quote) >= 8 && slices.ContainsFunc(h.Services, func(s Service) bool {
		return s.VIP == netip.AddrPortFrom(vip, binary.BigEndian.Uint16(quote))
	})
}
