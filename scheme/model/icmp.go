package model

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// special decides what is neither a segment, nor a datagram, nor a fragment,
// or turns k into the connection that it concerns (done is false then).
func (t *Tables) special(k *packet) (reason Reason, done bool) {
	address := t.Addresses[k.vip.Addr()]
	icmp, request := uint8(wire.ProtoICMP), uint8(wire.ICMPEchoRequest)
	if k.Version == 6 {
		icmp, request = wire.ProtoICMPv6, wire.ICMPv6EchoRequest
	}
	switch {
	case address == nil:
		return bpf.PassNoVIP, true
	case k.malformed != 0:
		return k.malformed, true
	case k.proto != icmp:
		return bpf.PassVIPOther, true
	case k.TotalLen-k.HeaderLen < 8:
		return bpf.DropMalformedL4, true
	case k.ICMPType == request && address.ICMPEcho:
		return bpf.ReplyEcho, true
	case k.ICMPType == request:
		return bpf.DropEcho, true
	case !isError(k.Version, k.ICMPType):
		return bpf.PassVIPOther, true // neighbour discovery, say
	}
	if reason, done := k.quoted(); done || k.kind != quote {
		return reason, done
	}
	var c vip.Carrier
	if v := t.find(k); v != nil {
		c = v.Carrier
	}
	reason, ok := k.quotedCarrier(c)
	return reason, !ok
}

// isError: of ICMPv6's errors only those that RFC 4443 defines.
func isError(version int, kind uint8) bool {
	if version == 4 {
		return kind == wire.ICMPUnreachable || kind == wire.ICMPTimeExceeded || kind == wire.ICMPParameter
	}
	return kind >= wire.ICMPv6Unreachable && kind <= wire.ICMPv6Parameter
}

// quoted turns k into the connection whose packet the error quotes. That
// packet went from the VIP to the client: turned round, its tuple is the
// connection's, and its TSval carries the cookie that the client would echo.
func (k *packet) quoted() (Reason, bool) {
	b := k.Frame[k.L4+8:]
	client, header, proto, reason := k.quotedHeader(b)
	if reason == bpf.DropFragment && (proto == wire.ProtoTCP || proto == wire.ProtoUDP) {
		// Only scheme beamer takes what has no ports.
		k.kind, k.proto, k.quotedFragment, k.client = fragment, proto, true, netip.AddrPortFrom(client, 0)
		return 0, false
	}
	if reason != 0 {
		return reason, true
	}
	if proto != wire.ProtoTCP && proto != wire.ProtoUDP {
		return bpf.PassVIPOther, true
	}
	// Eight bytes are what the oldest rule quotes (RFC 792).
	left := k.TotalLen - k.HeaderLen - 8 - header
	if left < 8 {
		return bpf.DropMalformedL4, true
	}
	l4 := b[header : header+left]
	port := binary.BigEndian.Uint16
	k.vip = netip.AddrPortFrom(k.vip.Addr(), port(l4))
	k.client = netip.AddrPortFrom(client, port(l4[2:]))
	k.kind, k.proto = quote, proto
	k.quote = l4
	return 0, false
}

// quotedHeader reads the quoted IP header: whom the packet went to, where
// its layer 4 starts, and of which protocol it is. reason 0: all is well.
func (k *packet) quotedHeader(b []byte) (client netip.Addr, header int, proto uint8, reason Reason) {
	if k.Version == 4 {
		if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 || netip.AddrFrom4([4]byte(b[12:])) != k.vip.Addr() {
			return client, 0, 0, bpf.DropMalformedL4 // or it quotes no packet of this VIP
		}
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return netip.AddrFrom4([4]byte(b[16:])), 0, b[9], bpf.DropFragment // of a later fragment: no ports
		}
		return netip.AddrFrom4([4]byte(b[16:])), int(b[0]&15) * 4, b[9], 0
	}
	if len(b) < 40 || b[0]>>4 != 6 || netip.AddrFrom16([16]byte(b[8:])) != k.vip.Addr() {
		return client, 0, 0, bpf.DropMalformedL4
	}
	client, header, proto = netip.AddrFrom16([16]byte(b[24:])), 40, b[6]
	if proto == wire.ProtoFragment {
		if len(b) < 48 {
			return client, 0, 0, bpf.DropMalformedL4
		}
		if binary.BigEndian.Uint16(b[42:])&0xfff8 != 0 {
			return client, 0, b[40], bpf.DropFragment
		}
		header, proto = 48, b[40]
	}
	return client, header, proto, 0
}

// echo turns an echo request into its reply. Checksums are adjusted, not
// computed: what was wrong stays wrong.
func echo(k *packet) []byte {
	b := append([]byte(nil), k.Frame...)
	swapMACs(b)
	ip, icmp := b[k.L3:], b[k.L4:]
	if k.Version == 4 {
		copy(ip[12:16], k.Frame[k.L3+16:])
		copy(ip[16:20], k.Frame[k.L3+12:])
		old := binary.BigEndian.Uint16(ip[8:])
		ip[8] = outerTTL
		adjust(ip[10:], old, binary.BigEndian.Uint16(ip[8:]))
		icmp[0] = wire.ICMPEchoReply
	} else {
		copy(ip[8:24], k.Frame[k.L3+24:])
		copy(ip[24:40], k.Frame[k.L3+8:])
		ip[7] = outerTTL
		icmp[0] = wire.ICMPv6EchoReply
	}
	adjust(icmp[2:], binary.BigEndian.Uint16(k.Frame[k.L4:]), binary.BigEndian.Uint16(icmp))
	return b
}

// adjust changes a checksum for a word that changed: RFC 1624, equation 3.
func adjust(checksum []byte, old, new uint16) {
	s := uint32(^binary.BigEndian.Uint16(checksum)) + uint32(^old) + uint32(new)
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	binary.BigEndian.PutUint16(checksum, ^uint16(s))
}

func swapMACs(b []byte) {
	var dst [6]byte
	copy(dst[:], b)
	copy(b, b[6:12])
	copy(b[6:], dst[:])
}

// How much of a packet that is too big is quoted: fl_too_big says why.
const (
	quote4 = 504
	quote6 = 1232
)

// tooBig tells the sender which size fits; nil: it cannot be told.
func tooBig(k *packet, mtu int) []byte {
	quoted, least := quote4, 576
	e := wire.ICMPError{Src: k.Dst, Dst: k.Src, Type: wire.ICMPUnreachable, Code: wire.ICMPFragNeeded, MTU: uint32(mtu)}
	if k.Version == 6 {
		quoted, least = quote6, 1280
		e.Type, e.Code = wire.ICMPv6TooBig, 0
	}
	if k.Version == 4 && !k.DontFragment || len(k.Frame)-k.L3 < quoted || mtu < least {
		return nil
	}
	e.Quoted, e.QuoteBytes = k.Frame[k.L3:k.L3+quoted], quoted
	return ethernet(wire.MAC(k.Frame[6:]), wire.MAC(k.Frame), k.Tagged, k.VLAN, e.Packet())
}
