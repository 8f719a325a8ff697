package buckets

import "testing"

// The size: 64,000 servers, half of them new, and 6.4 million buckets.
const (
	manyServers = 64_000
	manyBuckets = 6_400_000
)

func growth() (t *Table, after []Server) {
	for n := range uint16(manyServers) {
		after = append(after, Server{n, 1})
	}
	return New(manyBuckets, after[:manyServers/2]), after
}

func BenchmarkAssign(b *testing.B) {
	t, after := growth()
	for b.Loop() {
		t.Assign(after, Options{Now: 1000, ChainTime: 240})
	}
}

func BenchmarkApply(b *testing.B) {
	t, after := growth()
	moves := t.Assign(after, Options{Now: 1000, ChainTime: 240})
	for b.Loop() {
		t.Apply(moves, Options{Now: 1000, ChainTime: 240})
	}
}

func BenchmarkDelta(b *testing.B) {
	t, after := growth()
	next, _ := t.Apply(t.Assign(after, Options{Now: 1000, ChainTime: 240}), Options{Now: 1000, ChainTime: 240})
	for b.Loop() {
		d, _ := Delta(t, next)
		b.ReportMetric(float64(len(d)), "octets")
	}
}

func BenchmarkApplyDelta(b *testing.B) {
	t, after := growth()
	next, _ := t.Apply(t.Assign(after, Options{Now: 1000, ChainTime: 240}), Options{Now: 1000, ChainTime: 240})
	d, _ := Delta(t, next)
	for b.Loop() {
		if _, err := t.ApplyDelta(d); err != nil {
			b.Fatal(err)
		}
	}
}
