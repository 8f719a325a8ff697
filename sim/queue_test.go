package sim

import (
	"math/rand/v2"
	"testing"
)

func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var q Queue[int]
	for i := range 1000 {
		q.Put(Time(r.IntN(50)), i)
	}
	lastAt, last := Time(-1), -1
	for n := range 1000 {
		at, i, ok := q.Next()
		if !ok || at < lastAt || at == lastAt && i < last {
			t.Fatalf("seed %d: event %d is number %d at %d, after number %d at %d", seed, n, i, at, last, lastAt)
		}
		lastAt, last = at, i
	}
	if _, _, ok := q.Next(); ok {
		t.Fatal("an empty queue has an event")
	}
}
