package tracking

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// BenchmarkJet is JET's event simulation on one core: 468 servers, 1,000 s, 10
// failures a minute, jet and full-ct side by side. cpu-s/op is the thread's
// processor time, which other work on the machine lengthens less.
func BenchmarkJet(b *testing.B) {
	for _, active := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("active=%d", active), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			j := NewJet()
			j.Schemes, j.Hashes, j.Actives = []string{SchemeJET, SchemeFullCT}, []string{"anchor"}, []int{active}
			var points []point
			for _, c := range j.curves() {
				points = append(points, j.standard(c))
			}
			before := sim.ThreadTime()
			for b.Loop() {
				if _, err := j.play(context.Background(), points, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((sim.ThreadTime()-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}
