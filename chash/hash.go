package chash

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// nameHash is where all that a name decides comes from: eight bytes of its
// SHA-256, the same on every machine and in every release.
func nameHash(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

// negLog2 is -log2(u / 2^64) in units of 2^-48, at most 64·2^48. Squaring the
// mantissa shifts the next bit of its logarithm above the point.
func negLog2(u uint64) uint64 {
	u |= 1 // 0 has no logarithm
	whole := bits.LeadingZeros64(u)
	m := u << whole // mantissa in [2^63, 2^64): 1.xxx
	var frac uint64
	for range 48 {
		frac <<= 1
		hi, lo := bits.Mul64(m, m)
		if hi >= 1<<63 { // square is 2 or more: in [2,4) the point moves
			frac |= 1
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	// log2(u/2^64) = -whole - 1 + log2(1.xxx)
	return uint64(whole+1)<<48 - frac
}

// mix is the finalizer of MurmurHash3: each bit of x moves about half of the
// result's.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
