package router

import (
	"fmt"
	"net/netip"
	"testing"
)

// What a change costs a router with many routes: 100,000, over four next hops.
func BenchmarkTranslate(b *testing.B) {
	p := ports()
	ways := []way{over(2, "10.9.0.2"), over(3, "10.9.0.6"), over(4, "10.9.0.10"), over(5, "10.9.0.14")}
	for i := range 100000 {
		a := netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)})
		p.routes4 = append(p.routes4, unicast(fmt.Sprint(a, "/32"), ways...))
	}
	numbers := newNumbering(fabricOf(4), 0, nil)
	for b.Loop() {
		tables, _, _ := p.translate(numbers, nil, nil)
		if len(tables.Groups) != 1 {
			b.Fatal(len(tables.Groups))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100000, "ns/route")
}
