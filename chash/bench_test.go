package chash

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// keys10M are the keys that the papers' look-up benchmarks run through.
func keys10M() []uint64 {
	r := rand.New(rand.NewPCG(1, 10))
	keys := make([]uint64, 10_000_000)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	return keys
}

func servers(n int) []Server {
	s := make([]Server, n)
	for i := range s {
		s[i] = Server{fmt.Sprintf("server-%d", i), 1}
	}
	return s
}

// BenchmarkLookup: capacity/working as in the published C++ figures, one
// thread, 10 M keys read from memory.
func BenchmarkLookup(b *testing.B) {
	keys := keys10M()
	for _, c := range []struct {
		kind              Kind
		capacity, working int
	}{
		{KindAnchor, 500, 500}, {KindAnchor, 600, 500}, {KindAnchor, 1000, 900}, {KindAnchor, 110_000, 100_000},
		{KindAnchor, 2000, 1000}, {KindAnchor, 1_000_000, 100_000},
		{KindDx, 500, 500}, {KindDx, 600, 500}, {KindDx, 1000, 900}, {KindDx, 110_000, 100_000},
		{KindDx, 2000, 1000}, {KindDx, 1_000_000, 100_000},
		{KindTableHRW, 500, 500}, {KindRing, 500, 500}, {KindHRW, 500, 500}, {KindMaglev, 500, 500}, {KindBucket, 500, 500},
	} {
		b.Run(fmt.Sprintf("%s-%d/%d", c.kind, c.capacity, c.working), func(b *testing.B) {
			h, err := New(c.kind, Options{Capacity: c.capacity}, servers(c.working)...)
			if err != nil {
				b.Skip(err)
			}
			b.ResetTimer()
			sum, i := Node(0), 0
			for range b.N {
				sum += h.Lookup(keys[i])
				if i++; i == len(keys) {
					i = 0
				}
			}
			benchSink = sum
		})
	}
}

var benchSink Node

// BenchmarkCompileDraining builds a table of table-hrw whose three sets
// differ by one server.
func BenchmarkCompileDraining(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := active(n)
			m[n/2].New = 0
			for b.Loop() {
				if _, err := Compile(Spec{Kind: KindTableHRW, Rows: MaxRows}, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
