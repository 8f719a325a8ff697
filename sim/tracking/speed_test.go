package tracking

import (
	"context"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// BenchmarkJet is JET's event simulation on one core: 468 servers, 1,000 s, 10
// failures a minute, jet and full-ct side by side.
func BenchmarkJet(b *testing.B) {
	for _, active := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("active=%d", active), func(b *testing.B) {
			j := NewJet()
			j.Schemes, j.Hashes = []string{SchemeJET, SchemeFullCT}, []string{"anchor"}
			j.Kills, j.Ratios, j.Horizons, j.Actives = []float64{10}, []float64{.1}, []int{47}, []int{active}
			for b.Loop() {
				if _, err := j.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1, Workers: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
