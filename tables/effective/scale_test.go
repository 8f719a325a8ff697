package effective

import (
	"testing"

	"github.com/fairlead/fairlead/controller/buckets"
)

// The size: 64,000 servers, half of them new, and 6.4 million buckets.
const (
	manyServers = 64_000
	manyBuckets = 6_400_000
)

func growth() (t *buckets.Table, after []buckets.Server) {
	for n := range uint16(manyServers) {
		after = append(after, buckets.Server{Number: n, Weight: 1})
	}
	return buckets.New(manyBuckets, after[:manyServers/2]), after
}

func BenchmarkUpdate(b *testing.B) {
	t, after := growth()
	next, _ := t.Apply(t.Assign(after, buckets.Options{Now: 1000, ChainTime: 240}), buckets.Options{Now: 1000, ChainTime: 240})
	for b.Loop() {
		b.StopTimer()
		e := new(Table)
		e.Update(t, View{Now: 999, ChainTime: 240, Servers: after})
		b.StartTimer()
		e.Update(next, View{Now: 1001, ChainTime: 240, Servers: after})
	}
}

func BenchmarkUpdateSettled(b *testing.B) {
	t, after := growth()
	e := new(Table)
	e.Update(t, View{Now: 999, ChainTime: 240, Servers: after})
	for b.Loop() {
		e.Update(t, View{Now: 999, ChainTime: 240, Servers: after})
	}
}
