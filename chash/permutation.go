package chash

import (
	"math/bits"
	"sync"
)

// permutation is a member's order of a table's rows, drawn by the hash of its
// name: a bijection on the numbers of so many bits, whose inverse is as cheap.
// A round multiplies by an odd number (which carries upward), adds, and folds
// the upper half onto the lower; each step can be undone. Three of them
// suffice for rows to look independent from member to member (tested).
type permutation struct {
	mask, fold uint32
	mul, add   [permutationRounds]uint32
	inv        [permutationRounds]uint32 // of mul, modulo 2^32
}

const permutationRounds = 3

func newPermutation(hash uint64, rowBits int) permutation {
	p := permutation{mask: 1<<rowBits - 1, fold: uint32(rowBits+1) / 2}
	for i := range p.mul {
		x := mix(hash + uint64(i+1)*0x9e3779b97f4a7c15)
		p.mul[i], p.add[i] = uint32(x)|1, uint32(x>>32)
		// Newton: x·x is 1 modulo 8, and each step doubles the right bits.
		inv := p.mul[i]
		for range 4 {
			inv *= 2 - p.mul[i]*inv
		}
		p.inv[i] = inv
	}
	return p
}

// row is the row at a position of the order.
func (p *permutation) row(position uint32) uint32 {
	x := position
	x = (x*p.mul[0] + p.add[0]) & p.mask
	x ^= x >> p.fold
	x = (x*p.mul[1] + p.add[1]) & p.mask
	x ^= x >> p.fold
	x = (x*p.mul[2] + p.add[2]) & p.mask
	return x ^ x>>p.fold
}

// position is the inverse of row. The fold undoes itself, as it moves by half
// of the bits or more.
func (p *permutation) position(row uint32) uint32 {
	x := row
	x ^= x >> p.fold
	x = (x - p.add[2]) * p.inv[2] & p.mask
	x ^= x >> p.fold
	x = (x - p.add[1]) * p.inv[1] & p.mask
	x ^= x >> p.fold
	return (x - p.add[0]) * p.inv[0] & p.mask
}

// raceTimes are the times at which a runner of weight 1 passes the positions
// of its order: position k of n at -ln(1 - (k+1/2)/n), in units of 2^-58, so
// that a runner's times are those of an exponential race, evened out. They
// rise strictly, and stay below 2^62 (-ln(1/2^23) < 16).
func raceTimes(rowBits int) []uint64 {
	timesOnce[rowBits].Do(func() {
		rows := uint64(1) << rowBits
		times := make([]uint64, rows)
		times[0] = twiceAtanh(4*rows - 1) // -ln(1 - 1/2n) = 2 atanh(1 / (4n-1))
		for k := uint64(1); k < rows; k++ {
			times[k] = times[k-1] + twiceAtanh(2*(rows-k))
		}
		timesOf[rowBits] = times
	})
	return timesOf[rowBits]
}

var (
	timesOnce [maxRowBits + 1]sync.Once
	timesOf   [maxRowBits + 1][]uint64
)

const maxRowBits = 22 // of MaxTableRows

// twiceAtanh is 2 atanh(1/d) in units of 2^-58, d >= 2, by its series. With
// integers, since every machine must find the same.
func twiceAtanh(d uint64) uint64 {
	term := 1 << 63 / d // y = 1/d in units of 2^-63
	square, _ := bits.Mul64(term, term)
	sum := term
	for i := uint64(3); ; i += 2 {
		term, _ = bits.Mul64(term, square)
		term <<= 2 // square was in units of 2^-62
		if term < i {
			return sum >> 4
		}
		sum += term / i
	}
}
