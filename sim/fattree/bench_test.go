package fattree

import (
	"context"
	"fmt"
	"testing"
)

// A point of scenario fat-tree: two subflows placed by the scheduler in 30
// rounds, and their rates.
func BenchmarkFluidPoint(b *testing.B) {
	for _, k := range []int{8, 32} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			t, m := newTree(k), matrix{k, permuted}
			for b.Loop() {
				var placed []subflow
				newScheduler(t, m.stream(1, "scheduler", 2)).schedule(m.connections(1), 2, defaultRounds, func(_ int, of []subflow) { placed = of })
				maxMin(t.links(), placed)
			}
			b.ReportMetric(float64(t.hosts), "hosts")
		})
	}
}

// A point of scenario fat-tree-packets: a second of 128 hosts.
func BenchmarkPacketSecond(b *testing.B) {
	o := NewPackets()
	o.Seconds = 1
	for b.Loop() {
		_, _, counts, err := o.runOne(context.Background(), packetPoint{2, way(o.Rounds), false}, 1)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(counts.Segments), "segments/op")
	}
}
