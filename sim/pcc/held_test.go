package pcc

import (
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// Shorter is beamer with a shorter chain: the same servers now, and of the
// previous ones the newest.
func TestShorter(t *testing.T) {
	s := Setup{Working: 20, Seed: 1, Buckets: 100, ChainTime: DefaultChainTime}
	long, err := New(Beamer3, s)
	if err != nil {
		t.Fatal(err)
	}
	short := Shorter(long, 1)
	p := NewPool(20, 0)
	for n := range 12 {
		for _, scheme := range []Scheme{long, short} {
			if err := scheme.Update(p, sim.Time(n)*sim.Second); err != nil {
				t.Fatal(err)
			}
		}
		a, b := Buckets(long), Buckets(short)
		chains := 0
		for i := range a.Current {
			if a.Current[i] != b.Current[i] || a.Since[i] != b.Since[i] || a.Previous[i][0] != b.Previous[i][0] {
				t.Fatalf("version %d, bucket %d: %v, %v", n, i, a.Previous[i], b.Previous[i])
			}
			if b.Previous[i][1] != 0xffff {
				t.Fatalf("version %d, bucket %d: two previous servers", n, i)
			}
			if a.Previous[i][1] != 0xffff {
				chains++
			}
		}
		if n > 6 && chains == 0 {
			t.Errorf("version %d: no bucket has two previous servers, so this shows nothing", n)
		}
		p.Apply(Change{Server: uint16(n), Add: false})
	}
	if Shorter(&modulo{}, 1) != nil || Buckets(&modulo{}) != nil {
		t.Error("hash has no buckets")
	}
}
