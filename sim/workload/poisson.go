package workload

import (
	"math"
	"math/rand/v2"
)

// PoissonNumber draws from Poisson's distribution with the mean, which may be
// anything from 0 to 2^53. It counts exponential gaps where the mean is small,
// and halves the problem otherwise: of n uniform places in an interval the
// k-th is Gamma distributed, whatever falls short of it is binomial (Ahrens
// and Dieter). So it is exact, and takes time in the logarithm of the mean.
func PoissonNumber(r *rand.Rand, mean float64) int {
	n := 0
	for mean > 20 {
		k := int(mean * 7 / 8)
		x := gamma(r, float64(k)) // when the k-th of them comes
		if x > mean {
			return n + binomial(r, k-1, mean/x)
		}
		n += k
		mean -= x
	}
	for t := r.ExpFloat64(); t < mean; t += r.ExpFloat64() {
		n++
	}
	return n
}

// binomial draws how many of n succeed, each with probability p: by the beta
// distributed median of their uniform variables.
func binomial(r *rand.Rand, n int, p float64) int {
	k := 0
	for n > 20 {
		i := n/2 + 1
		a, b := gamma(r, float64(i)), gamma(r, float64(n+1-i))
		x := a / (a + b) // the i-th of n uniform variables in order
		if x >= p {
			n = i - 1
			p /= x
		} else {
			k += i
			n -= i
			p = (p - x) / (1 - x)
		}
	}
	for range n {
		if r.Float64() < p {
			k++
		}
	}
	return k
}

// gamma draws from the gamma distribution of a shape of 1 at least and scale 1
// (Marsaglia and Tsang, A simple method for generating gamma variables, 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
