package spread

import (
	"math"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// fieldBits is the width of the ports.
const fieldBits = 32

// commonest is the share (0 to 1) of the commonest digit at the last position
// of a selector, over all values of the ports, by counting: in the paper
// (equation 6) each of them is a selector.
func commonest(radix uint64) float64 {
	const values = uint64(1) << fieldBits
	weight := uint64(1) // of the last position
	for weight*radix*radix <= values {
		weight *= radix
	}
	counts := make([]uint64, radix)
	for at := uint64(0); at < values; at += weight {
		counts[at/weight%radix] += min(weight, values-at)
	}
	return float64(slices.Max(counts)) / float64(values)
}

// commonestRead is the share of the commonest digit that routers of Fairlead read
// at the last position, over all values of a source port that are selectors.
func commonestRead(radix int, seed uint64) (float64, error) {
	c := selectorOf(string(pathsel.Feistel), radix, seed)
	c.IPv4 = pathsel.SourcePort
	s, err := pathsel.New(c)
	if err != nil {
		return 0, err
	}
	counts, all := make([]int, radix), 0
	last := uint8(s.Length(false) - 1) // a TTL of its position
	f := pathsel.Flow{Src: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Dst: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Proto: 6, DstPort: 80}
	for port := range 1 << 16 {
		f.SrcPort = uint16(port)
		if digit, selects := s.Digit(f, last); selects {
			counts[digit]++
			all++
		}
	}
	return float64(slices.Max(counts)) / float64(all), nil
}

// mostUneven is the largest of commonestRead over even, of all radixes: 1, but for
// source port 0, which is no selector. NaN if a selector cannot be made.
func mostUneven(seed uint64) (most float64) {
	for radix := 2; radix <= maxHops; radix++ {
		share, err := commonestRead(radix, seed)
		if err != nil {
			return math.NaN()
		}
		most = max(most, share*float64(radix))
	}
	return most
}

// modulo is the share of the first next hop when a digit that is evenly
// distributed is taken modulo their number, which the paper warns of.
func modulo(radix, hops int) float64 {
	first := (radix + hops - 1) / hops
	return float64(first) / float64(radix)
}
