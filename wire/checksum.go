package wire

import (
	"encoding/binary"
	"net/netip"
)

// Checksum is the Internet checksum (RFC 1071) of b: 0 when b holds a right
// checksum already.
func Checksum(b []byte) uint16 { return finish(sum(0, b)) }

// TransportChecksum is the checksum of a TCP, UDP or ICMPv6 segment with the
// pseudo-header of its addresses: 0 when the segment holds a right one.
func TransportChecksum(src, dst netip.Addr, proto uint8, segment []byte) uint16 {
	s := sum(0, src.AsSlice())
	s = sum(s, dst.AsSlice())
	s += uint64(proto) + uint64(len(segment))
	return finish(sum(s, segment))
}

// sum adds b as big-endian words; an odd last byte is the upper half of one.
func sum(s uint64, b []byte) uint64 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func finish(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}
