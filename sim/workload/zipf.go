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
	sum := 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -s)
		sum += weights[i]
	}
	return NewAlias(weights, sum)
}

// NewAlias builds the table by Vose's method. weights are consumed.
func NewAlias(weights []float64, sum float64) Alias {
	n := len(weights)
	table := make(Alias, n)
	small, large := make([]uint32, 0, n), make([]uint32, 0, n)
	for i := range weights {
		weights[i] *= float64(n) / sum // 1 is a full cell
		if weights[i] < 1 {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		table[s] = aliasCell{uint32(min(weights[s]*(1<<32), math.MaxUint32)), l}
		weights[l] -= 1 - weights[s]
		if weights[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left is full but for rounding.
	for _, i := range append(small, large...) {
		table[i] = aliasCell{math.MaxUint32, i}
	}
	return table
}

func (a Alias) Draw(r *rand.Rand) uint32 {
	x := r.Uint64()
	i := x >> 32 * uint64(len(a)) >> 32
	if c := a[i]; uint32(x) >= c.keep {
		return c.other
	}
	return uint32(i)
}
