package pathsel

import (
	"encoding/hex"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// Published vectors.
func TestRC5Vector(t *testing.T) {
	// draft-krovetz-rc6-rc5-vectors-00, section 4, RC5-16/16/8: octets
	// 00 01 02 03 become 23 a8 d7 2e, words little-endian.
	key, _ := hex.DecodeString("0001020304050607")
	s := newRC5(key, 16)
	if c := s.forward(0x0100_0302); c != 0xa823_2ed7 {
		t.Errorf("forward is %08x, the draft says a8232ed7", c)
	}
	if p := s.back(0xa823_2ed7); p != 0x0100_0302 {
		t.Errorf("back is %08x, the draft says 01000302", p)
	}
}

func TestSkip32Vector(t *testing.T) {
	// The self-test of skip32.c (Rose, 1999).
	key := skip32{0x00, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}
	if c := key.forward(0x33221100); c != 0x819d5f1f {
		t.Errorf("forward is %08x, skip32.c says 819d5f1f", c)
	}
	if p := key.back(0x819d5f1f); p != 0x33221100 {
		t.Errorf("back is %08x, skip32.c says 33221100", p)
	}
}

func randomKey(r *rand.Rand) (key [16]byte) {
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return key
}

// Every value of 16 and 20 bits goes somewhere else, and comes back.
func TestFeistelIsAPermutation(t *testing.T) {
	r := soak.Rand(t)
	for _, width := range []int{16, 20} {
		f := newFeistel(randomKey(r), width)
		seen := make([]bool, 1<<width)
		for p := range uint32(1 << width) {
			c := f.forward(p)
			if c>>width != 0 || seen[c] {
				t.Fatalf("%d bits: %x goes to %x, which is taken or too wide", width, p, c)
			}
			seen[c] = true
			if back := f.back(c); back != p {
				t.Fatalf("%d bits: %x goes to %x and comes back as %x", width, p, c, back)
			}
		}
	}
}

func TestPermutationsComeBack(t *testing.T) {
	r := soak.Rand(t)
	key := randomKey(r)
	for _, f := range []permutation{newFeistel(key, 32), newRC5(cipherKey(key, "rc5"), rc5Rounds), (*skip32)(cipherKey(key, "skip32"))} {
		for range 100_000 {
			p := r.Uint32()
			if back := f.back(f.forward(p)); back != p {
				t.Fatalf("%T: %08x comes back as %08x", f, p, back)
			}
		}
	}
}

// Avalanche (section 3.3): a bit of the fields that changes, changes each bit
// of the selector in half of all cases. Measured over many keys, as one key of
// 16 bits has a fixed codebook. Bounds are six standard deviations.
func TestAvalanche(t *testing.T) {
	r := soak.Rand(t)
	const tries = 20_000
	for _, width := range []int{16, 20, 32} {
		flips := make([][]int, width)
		for in := range flips {
			flips[in] = make([]int, width)
		}
		for range tries / 100 {
			f := newFeistel(randomKey(r), width)
			for range 100 {
				c := r.Uint32() >> (32 - width)
				p := f.back(c)
				for in := range width {
					for d := p ^ f.back(c^1<<in); d != 0; d &= d - 1 {
						flips[in][bits.TrailingZeros32(d)]++
					}
				}
			}
		}
		for in := range flips {
			for out, n := range flips[in] {
				if n < tries/2-6*71 || n > tries/2+6*71 {
					t.Errorf("%d bits: input bit %d changes bit %d in %d of %d cases", width, in, out, n, tries)
				}
			}
		}
	}
}

// Two values of the fields that differ by a constant are as far apart behind
// the permutation as any two are: how often the commonest difference comes up,
// against true randomness. Section 3.3's avalanche, two points at a time.
func TestDifferences(t *testing.T) {
	r := soak.Rand(t)
	const values = 1 << 16
	for range 10 {
		f := newFeistel(randomKey(r), 16)
		for _, d := range []uint32{1, 2, 0x80, 0x100, 0x8000, 0x8080, 0xffff, 1 + r.Uint32N(0xfffe)} {
			var counts [values]uint16
			most := uint16(0)
			for c := range uint32(values) {
				at := f.back(c) ^ f.back(c^d)
				counts[at]++
				most = max(most, counts[at])
			}
			// Each pair is met twice; 32,768 pairs in 65,535 places: Poisson with
			// mean 1/2, of which 13 or more come up in one of 10^9 tables.
			if most > 2*12 {
				t.Errorf("difference %04x: the commonest difference behind it comes up %d times", d, most)
			}
		}
	}
}

// No bit of the selector is nearly a sum of bits of the fields: the Walsh
// spectrum, which for random permutations stays within 5.5 deviations of 256.
func TestNotLinear(t *testing.T) {
	r := soak.Rand(t)
	const values = 1 << 16
	for range 3 {
		f := newFeistel(randomKey(r), 16)
		selectors := make([]uint32, values)
		for c := range selectors {
			selectors[c] = f.back(uint32(c))
		}
		for bit := range 16 {
			w := make([]int, values)
			for c, p := range selectors {
				w[c] = 1 - 2*int(p>>bit&1)
			}
			walsh(w)
			for mask, x := range w {
				if x > 8*256 || x < -8*256 {
					t.Errorf("bit %d is the parity of mask %04x in %d of %d cases", bit, mask, (values+x)/2, values)
				}
			}
		}
	}
}

// walsh is the fast transform, in place.
func walsh(w []int) {
	for h := 1; h < len(w); h *= 2 {
		for i := 0; i < len(w); i += 2 * h {
			for j := i; j < i+h; j++ {
				w[j], w[j+h] = w[j]+w[j+h], w[j]-w[j+h]
			}
		}
	}
}
