package workload

import (
	"math"
	"math/rand/v2"
)

// Alias draws from a fixed discrete distribution in constant time (Walker's
// alias method): each cell keeps its own index with probability keep/2^32 and
// gives the other otherwise.
type Alias []aliasCell

type aliasCell struct{ keep, other uint32 }

// MaxSkew bounds Zipf's exponent: beyond it nearly all draws are rank 0.
const MaxSkew = 4

// NewZipf draws ranks 0..n-1 with probability proportional to 1/(rank+1)^s.
// Unlike math/rand's it takes any s from 0 (uniform) on.
func NewZipf(n int, s float64) Alias {
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -s)
	}
	return NewAlias(weights)
}

// NewAlias builds the table (Vose's method) of 1 to 2^30 weights that are not
// negative and not all 0. Probabilities become integers first, n·2^32 in sum,
// so that no rounding is left to the end.
func NewAlias(weights []float64) Alias {
	const one = 1 << 32 // a full cell
	due := wholes(weights, uint64(len(weights))*one)
	table := make(Alias, len(weights))
	var small, large []uint32
	for i, d := range due {
		table[i].other = uint32(i)
		if d < one {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 { // both run out together
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		table[s] = aliasCell{uint32(due[s]), l}
		due[l] -= one - due[s]
		if due[l] < one {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return table
}

// wholes are the weights' shares of a total, in whole numbers that sum up to
// it: what rounding lost is the largest one's.
func wholes(weights []float64, total uint64) []uint64 {
	sum, largest := 0.0, 0
	for i, w := range weights {
		sum += w
		if w > weights[largest] {
			largest = i
		}
	}
	due := make([]uint64, len(weights))
	given := uint64(0)
	for i, w := range weights {
		due[i] = uint64(w / sum * float64(total))
		given += due[i]
	}
	due[largest] += total - given // modulo 2^64: less, where rounding gave too much
	return due
}

// Draw is an index.
func (a Alias) Draw(r *rand.Rand) uint32 {
	x := r.Uint64()
	i := x >> 32 * uint64(len(a)) >> 32
	if c := a[i]; uint32(x) >= c.keep {
		return c.other
	}
	return uint32(i)
}
