package hash

import "math/bits"

// IPv4 is Tuple for an IPv4 source, from the words as they lie in the
// packet's headers and are loaded in this machine's order (little endian):
// the source address, and the two ports, source port first. It is unrolled
// for callers that hash millions of packets; it equals Tuple.
func IPv4(k *Key, source, ports uint32) uint64 {
	w := uint64(source) | uint64(ports)<<32
	v0, v1 := k[0]^0x736f6d6570736575, k[1]^0x646f72616e646f6d
	v2, v3 := k[0]^0x6c7967656e657261, k[1]^0x7465646279746573^w
	// The rounds' order of independent halves is SipHash's own.
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32) ^ 0xff
	v0 ^= w

	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)

	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)

	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0 ^ v1 ^ v2 ^ v3
}

// IPv6 is Tuple for an IPv6 source, from words as IPv4 takes them: the
// first and the last eight bytes of the address, and the ports.
func IPv6(k *Key, first, last uint64, ports uint32) uint64 {
	return Words(*k, first, last, uint64(ports))
}
