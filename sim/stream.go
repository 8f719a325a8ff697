// Package sim repeats the papers' simulations on the hashes and tables that
// the program itself uses: JET's trace benchmark and its event simulation.
// Everything is a pure function of its options and seed, but for measured
// rates: same seed, same bytes.
package sim

import (
	"hash/fnv"
	"math/rand/v2"
)

// stream is a random source of its own for one purpose, so that a change of
// one (how servers fail, say) leaves what the others draw as it was.
func stream(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// splitmix is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators): a bijection of 64 bits.
func splitmix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
