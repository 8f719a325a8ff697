package model

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/wire"
)

// outOfTunnel takes a frame out of the tunnel from tier one (bpf/lb/tier.h), where it is
// in one. trusted: nobody but tier one sent it.
func (t *Tables) outOfTunnel(frame []byte) (inner []byte, tunnelled, trusted bool) {
	const tag, gue = 4, 12
	at, none := 14, frame
	if !t.TierAddr.IsValid() || len(frame) < at+tag+20 {
		return none, false, true
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	if kind == 0x8100 {
		at += tag
		kind = binary.BigEndian.Uint16(frame[16:])
	}
	l2, ip := at, frame[at:]
	var src, dst netip.Addr
	var next byte
	var congested bool
	switch {
	case kind == 0x0800 && len(ip) >= 20:
		if ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || sum(ip[:20]) != 0xffff {
			return none, false, true
		}
		src, dst, next = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), ip[9]
		congested = ip[1]&3 == 3
		at += 20
	case kind == 0x86dd && len(ip) >= 40:
		src, dst, next = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:])), ip[6]
		congested = ip[1]>>4&3 == 3
		at += 40
	default:
		return none, false, true
	}
	if dst != t.TierAddr {
		return none, false, true
	}
	if next == wire.ProtoUDP {
		udp := frame[at:]
		if len(udp) < gue || binary.BigEndian.Uint16(udp[2:]) != 6080 || udp[8] != 0 || udp[10] != 0 || udp[11] != 0 {
			return none, false, true
		}
		next = udp[9]
		at += gue
	}
	switch next {
	case 4:
		kind = 0x0800
	case 41:
		kind = 0x86dd
	default:
		return none, false, true
	}
	if !slices.ContainsFunc(t.TierSources, func(p netip.Prefix) bool { return p.Contains(src) }) {
		return none, false, false
	}
	inner = append(append([]byte(nil), frame[:l2]...), frame[at:]...)
	binary.BigEndian.PutUint16(inner[l2-2:], kind)
	if congested {
		mark(inner[l2:])
	}
	return inner, true, true
}

// mark passes a congestion mark on to a packet whose ends know what it is.
func mark(ip []byte) {
	switch {
	case len(ip) < 20:
	case ip[0]>>4 == 6:
		if ip[1]&0x30 != 0 {
			ip[1] |= 0x30
		}
	case ip[1]&3 != 0 && ip[1]&3 != 3:
		was := binary.BigEndian.Uint16(ip)
		ip[1] |= 3
		s := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^was) + uint32(binary.BigEndian.Uint16(ip))
		for s>>16 != 0 {
			s = s&0xffff + s>>16
		}
		binary.BigEndian.PutUint16(ip[10:], ^uint16(s))
	}
}

// sum is the Internet checksum's, folded.
func sum(b []byte) (folded uint32) {
	for i := 0; i+1 < len(b); i += 2 {
		folded += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for folded>>16 != 0 {
		folded = folded&0xffff + folded>>16
	}
	return folded
}
