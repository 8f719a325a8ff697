package pathsel

import (
	"encoding/binary"
	"math/bits"
)

// RC5 (Rivest, 1994) with 16-bit words, as the paper uses it: a block of 32
// bits. 12 rounds and 10 bytes of key, of which Config.Key's secrets make
// other ones than any permutation's.
const rc5Rounds = 12

// rc5 is the expanded key: two words before the rounds, two for each.
type rc5 []uint16

// newRC5 expands a key of an even number of bytes.
func newRC5(key []byte, rounds int) rc5 {
	const p, q = 0xb7e1, 0x9e37 // from e and the golden ratio
	s := make(rc5, 2*rounds+2)
	for i := range s {
		s[i] = p + q*uint16(i)
	}
	l := make([]uint16, len(key)/2)
	for i := range l {
		l[i] = binary.LittleEndian.Uint16(key[2*i:])
	}
	var a, b uint16
	for n, i, j := 0, 0, 0; n < 3*max(len(s), len(l)); n++ {
		a = bits.RotateLeft16(s[i]+a+b, 3)
		s[i] = a
		b = bits.RotateLeft16(l[j]+a+b, int((a+b)&15))
		l[j] = b
		i, j = (i+1)%len(s), (j+1)%len(l)
	}
	return s
}

// forward makes fields of a selector; a is the upper half.
func (s rc5) forward(p uint32) uint32 {
	a, b := uint16(p>>16)+s[0], uint16(p)+s[1]
	for i := 2; i < len(s); i += 2 {
		a = bits.RotateLeft16(a^b, int(b&15)) + s[i]
		b = bits.RotateLeft16(b^a, int(a&15)) + s[i+1]
	}
	return uint32(a)<<16 | uint32(b)
}

// back makes a selector of fields.
func (s rc5) back(c uint32) uint32 {
	a, b := uint16(c>>16), uint16(c)
	for i := len(s) - 2; i >= 2; i -= 2 {
		b = bits.RotateLeft16(b-s[i+1], -int(a&15)) ^ a
		a = bits.RotateLeft16(a-s[i], -int(b&15)) ^ b
	}
	return uint32(a-s[0])<<16 | uint32(b-s[1])
}
