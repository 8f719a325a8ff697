// Package hash is the keyed hash by which connections are told apart and placed:
// SipHash-1-3 over what a packet says of its connection, and what rows of tables
// come of it. BPF's twin is bpf/include/siphash.h. Pure.
package hash

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Key is a SipHash key: two words, as BPF holds them.
type Key [2]uint64

// Tuple is the keyed hash of a connection as the balancer sees it: source is
// the client. Only the destination's port enters; its address and protocol
// are in the VIP's key.
func Tuple(k Key, src netip.AddrPort, dstPort uint16) uint64 {
	sport, dport := uint64(bits.ReverseBytes16(src.Port())), uint64(bits.ReverseBytes16(dstPort))
	if a := src.Addr().Unmap(); a.Is4() {
		b := a.As4()
		return Words(k, uint64(binary.LittleEndian.Uint32(b[:]))|sport<<32|dport<<48)
	}
	b := src.Addr().As16()
	return Words(k, binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]), sport|dport<<16)
}

// Flow is the hash of a flow under the key that never rotates. A VIP that
// keeps a client address together (affinity, fragments by addresses) leaves
// the ports out.
func Flow(key Key, src netip.AddrPort, dstPort uint16, ports bool) uint64 {
	if !ports {
		src, dstPort = netip.AddrPortFrom(src.Addr(), 0), 0
	}
	return Tuple(key, src, dstPort)
}

// Row is the row of a consistent-hash table of size rows: the upper half of
// the hash, scaled. size 0 has none: 0.
func Row(hash uint64, size int) int { return Scale(uint32(hash>>32), size) }

// Scale maps 32 random bits to 0..size-1 without a division (fl_scale).
func Scale(random uint32, size int) int { return int(uint64(random) * uint64(size) >> 32) }

// Words is SipHash-1-3 over a fixed number of words, without the block
// that encodes the length: bpf/include/siphash.h.
func Words(k Key, all ...uint64) uint64 {
	v0, v1 := k[0]^0x736f6d6570736575, k[1]^0x646f72616e646f6d
	v2, v3 := k[0]^0x6c7967656e657261, k[1]^0x7465646279746573
	round := func() {
		v0 += v1
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v3
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 += v3
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 += v1
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	for _, w := range all {
		v3 ^= w
		round()
		v0 ^= w
	}
	v2 ^= 0xff
	round()
	round()
	round()
	return v0 ^ v1 ^ v2 ^ v3
}
