package hash

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// Rows are even: chi square of 100,000 flows over 64 rows within 4 standard
// deviations of its mean, and affinity keeps an address together.
func TestRowsAreEven(t *testing.T) {
	const seed, rows, flows = 5, 64, 100000
	r := rand.New(rand.NewPCG(seed, 0))
	key := Key{r.Uint64(), r.Uint64()}
	var count [rows]float64
	for i := range uint32(flows) {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1000)
		count[Row(Flow(key, src, 80, true), rows)]++
		a, b := netip.AddrPortFrom(src.Addr(), 7), netip.AddrPortFrom(src.Addr(), 8)
		if Flow(key, a, 80, false) != Flow(key, b, 443, false) {
			t.Fatalf("affinity: %v and %v differ", a, b)
		}
	}
	chi := 0.0
	for _, c := range count {
		d := c - flows/rows
		chi += d * d / (flows / rows)
	}
	if chi > 63+4*11.2 {
		t.Errorf("seed %d: chi square %.0f with 63 degrees of freedom", seed, chi)
	}
}
