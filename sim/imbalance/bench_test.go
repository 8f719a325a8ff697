package imbalance

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// One seed of the default at 70,000 connections, all schemes and experiments:
// "ns/connection" is for all of them together.
func BenchmarkImbalance(b *testing.B) {
	o := New()
	o.Active, o.Seconds = []int{paperDetail}, 100
	n := int64(0)
	for b.Loop() {
		r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1})
		if err != nil {
			b.Fatal(err)
		}
		n += r.Samples[0].Count
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/connection")
}
