package pathsel

import "fmt"

// feistelRounds: see docs/cflb.md, "The permutation".
const feistelRounds = 8

// feistel permutes numbers of an even count of bits: a balanced Feistel
// network whose round function is (half ^ a) * b mod 2^64, with a secret a and a
// secret odd b for each round, its two words of 32 bits folded into one, of
// which the uppermost half of bits counts. One multiplication a round is what
// makes it faster than the paper's ciphers. The product's uppermost half alone
// would be nearly linear: for one key in some dozens differences then come
// through all eight rounds (docs/cflb.md).
type feistel struct {
	half   uint // bits of a half
	rounds [feistelRounds][2]uint64
}

func newFeistel(key [16]byte, bits int) *feistel {
	f := &feistel{half: uint(bits) / 2}
	// Widths differ in their keys, so that one teaches nothing about another.
	secret := derive(key, fmt.Sprintf("feistel %d", bits), 2*feistelRounds)
	for i := range f.rounds {
		f.rounds[i] = [2]uint64{secret[2*i], secret[2*i+1] | 1}
	}
	return f
}

func (f *feistel) round(i int, half uint32) uint32 {
	y := (uint64(half) ^ f.rounds[i][0]) * f.rounds[i][1]
	return uint32(y^y>>32) >> ((32 - f.half) & 31) // & tells the compiler that the shift is short
}

// forward makes fields of a selector.
func (f *feistel) forward(p uint32) uint32 {
	h := f.half & 31
	l, r := p>>h, p&(1<<h-1)
	for i := range feistelRounds {
		l, r = r, l^f.round(i, r)
	}
	return r<<h | l
}

// back makes a selector of fields.
func (f *feistel) back(c uint32) uint32 {
	h := f.half & 31
	r, l := c>>h, c&(1<<h-1)
	for i := feistelRounds - 1; i >= 0; i-- {
		l, r = r^f.round(i, l), l
	}
	return l<<h | r
}
