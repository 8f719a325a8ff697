package spread

// fieldBits is the width of the ports.
const fieldBits = 32

// commonest is the share (0 to 1) of the commonest digit at the last position
// of a selector, over all values of the ports, by counting. whole: values above
// the last whole multiple of radix^length are no selectors, as in
// fabric/pathsel; otherwise all are, as in the paper (equation 6).
func commonest(radix uint64, whole bool) float64 {
	const values = uint64(1) << fieldBits
	weight := uint64(1) // of the last position
	for weight*radix*radix <= values {
		weight *= radix
	}
	limit := values
	if whole {
		limit -= values % (weight * radix)
	}
	counts := make([]uint64, radix)
	for at := uint64(0); at < limit; at += weight {
		counts[at/weight%radix] += min(weight, limit-at)
	}
	most := uint64(0)
	for _, n := range counts {
		most = max(most, n)
	}
	return float64(most) / float64(limit)
}

// modulo is the share of the first next hop when a digit that is evenly
// distributed is taken modulo their number, which the paper warns of.
func modulo(radix, hops int) float64 {
	first := (radix + hops - 1) / hops
	return float64(first) / float64(radix)
}
