package chash

import (
	"fmt"
	"testing"
)

// active are n members of weight 1 that serve.
func active(n int) []Member {
	m := make([]Member, n)
	for i := range m {
		m[i] = Member{Name: fmt.Sprint("server-", i), Number: i, New: 1, Held: 1, Horizon: 1}
	}
	return m
}

// BenchmarkCompile: whole tables, as the data plane takes them.
func BenchmarkCompile(b *testing.B) {
	for _, k := range Kinds() {
		for _, n := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s-%d", k, n), func(b *testing.B) {
				m := active(n)
				s := Spec{Kind: k, Rows: MaxRows, Capacity: MaxSlots}
				for b.Loop() {
					if _, err := Compile(s, m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkNew: a Hash from scratch, its horizon empty.
func BenchmarkNew(b *testing.B) {
	for _, k := range Kinds() {
		for _, n := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s-%d", k, n), func(b *testing.B) {
				s := servers(n)
				for b.Loop() {
					if _, err := New(k, Options{}, s...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChange: one server of 1,000 goes to the horizon and comes back; an
// op is one of the two.
func BenchmarkChange(b *testing.B) {
	for _, k := range Kinds() {
		for _, rows := range []int{0, 1 << 18} { // 0: the kind's own
			if k == KindAnchor || k == KindDx || k == KindRing || k == KindHRW {
				if rows > 0 {
					continue // they have none
				}
			}
			b.Run(fmt.Sprintf("%s-%d", k, rows), func(b *testing.B) {
				h, err := New(k, Options{Rows: rows}, servers(1000)...)
				if err != nil {
					b.Fatal(err)
				}
				for i := 0; b.Loop(); i++ {
					change := h.Park
					if i%2 == 1 {
						change = h.Add
					}
					if err := change("server-500", 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
