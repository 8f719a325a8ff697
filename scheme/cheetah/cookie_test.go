package cheetah

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/hash"
)

// §3.1: decoding undoes encoding for every slot, epoch and width, at every
// age and clock difference that the layout promises.
func TestDecodeUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{Bits: rapid.IntRange(MinBits, MaxBits).Draw(t, "bits")}
		hash := rapid.Uint64().Draw(t, "hash")
		slot := uint32(rapid.IntRange(0, l.Slots()-1).Draw(t, "slot"))
		epoch := uint32(rapid.IntRange(0, 1).Draw(t, "epoch"))
		sent := rapid.Uint32().Draw(t, "sent")
		skew := rapid.IntRange(-SkewMS+1, SkewMS-1).Draw(t, "skew")
		age := rapid.Int64Range(0, l.IdleLimit().Milliseconds()).Draw(t, "age")

		ts := l.WireTS(l.Encode(hash, slot, epoch), sent)
		field := l.Field(ts, sent+uint32(age)+uint32(skew))
		if l.Epoch(field) != epoch || l.Value(hash, field) != slot {
			t.Fatalf("epoch %d slot %d, want %d %d", l.Epoch(field), l.Value(hash, field), epoch, slot)
		}
	})
}

// The permutation hits every slot once: no cookie space is lost.
func TestPermutation(t *testing.T) {
	for b := MinBits; b <= MaxBits; b++ {
		l := Layout{Bits: b}
		seen := make([]bool, l.Slots())
		for f := range uint32(l.Slots()) {
			s := l.Value(0x0123456789abcdef, f)
			if seen[s] {
				t.Fatalf("bits %d: slot %d twice", b, s)
			}
			seen[s] = true
		}
	}
}

// §2.3: a client that changes its own cookie, by flipping bits or by adding,
// reaches a chosen slot no more often than chance (four times at most, the
// bound measured for good permutations).
func TestOpaque(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	l := Layout{Bits: MinBits}
	n := l.Slots()
	const trials = 6000
	change := map[string]func(f, d uint32) uint32{
		"flip": func(f, d uint32) uint32 { return f ^ d },
		"add":  func(f, d uint32) uint32 { return (f + d) & uint32(n-1) },
	}
	for name, ch := range change {
		worst, worstAt := 0, [2]uint32{}
		for d := uint32(1); d < uint32(n); d++ {
			hits := make([]int, n)
			for range trials {
				h := r.Uint64()
				own := r.Uint32N(4)
				hits[l.Value(h, ch(l.Encode(h, own, 0), d))^own]++
			}
			for x, c := range hits[1:] {
				if c > worst {
					worst, worstAt = c, [2]uint32{d, uint32(x + 1)}
				}
			}
		}
		// Chance is trials/n = 11.7; the largest of n*n Poisson counts
		// around it is near 40 = 3.4 times.
		if ratio := float64(worst) * float64(n) / trials; ratio > 5 {
			t.Errorf("seed %d: %s by %#x moves slot by %#x %.1f times as often as chance", seed, name, worstAt[0], worstAt[1], ratio)
		} else {
			t.Logf("%s: at most %.1f times chance", name, ratio)
		}
	}
}

// The live hash is not linear: the hash of a xor of inputs is not the xor of
// hashes, which is what let a few own connections predict others' cookies
// with CRC and Toeplitz.
func TestHashIsNotLinear(t *testing.T) {
	const seed = 2
	r := rand.New(rand.NewPCG(seed, 0))
	linear := 0
	for range 2000 {
		k := hash.Key{r.Uint64(), r.Uint64()}
		h := func(x uint32) uint64 {
			return hash.Tuple(k, netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)}), 1000), 80)
		}
		a, b := r.Uint32(), r.Uint32()
		if (h(a)^h(b)^h(a^b)^h(0))&0x3fff == 0 {
			linear++
		}
	}
	if linear > 4 {
		t.Errorf("seed %d: %d of 2000 predicted", seed, linear)
	}
}
