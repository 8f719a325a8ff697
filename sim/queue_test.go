package sim

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// Events come by time and, of one time, in the order in which they were put
// in, also where putting and taking take turns.
func TestQueue(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	var q Queue[int]
	type put struct {
		at Time
		i  int
	}
	var want []put
	now, n := Time(0), 0
	for step := range 20_000 {
		if r.IntN(5) < 3-2*(step/10_000) { // grows, then shrinks
			p := put{now + Time(r.IntN(50)), n}
			n++
			q.Put(p.at, p.i)
			want = append(want, p)
			continue
		}
		at, i, ok := q.Next()
		if !ok {
			if len(want) > 0 {
				t.Fatalf("seed %d: an empty queue, %d events to come", seed, len(want))
			}
			continue
		}
		first := slices.MinFunc(want, func(a, b put) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.i, b.i)) })
		if first != (put{at, i}) {
			t.Fatalf("seed %d: event %d at %d, want %d at %d", seed, i, at, first.i, first.at)
		}
		want = slices.DeleteFunc(want, func(p put) bool { return p == first })
		now = at
		if next, ok := q.Peek(); ok != (q.Len() > 0) || ok && next < now || q.Len() != len(want) {
			t.Fatalf("seed %d: %d to come, the next at %d: want %d, none before %d", seed, q.Len(), next, len(want), now)
		}
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	q, now := filled(r, 1000)
	if n := testing.AllocsPerRun(1000, func() {
		at, e, _ := q.Next()
		now = at
		q.Put(now+Time(r.IntN(1000)), e)
	}); n != 0 {
		t.Errorf("%g allocations for an event", n)
	}
}

// event is as large as a scenario's are.
type event struct {
	connection int32
	kind       uint8
}

func filled(r *rand.Rand, n int) (q Queue[event], now Time) {
	for range n {
		q.Put(Time(r.IntN(1000)), event{})
	}
	return q, 0
}

const held = 10_000

func BenchmarkQueue(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	q, _ := filled(r, held)
	b.ReportAllocs()
	for b.Loop() {
		at, e, _ := q.Next()
		q.Put(at+Time(r.IntN(1000)), e)
	}
}

// The standard library's heap with the same order, to measure by.
func BenchmarkContainerHeap(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var h binary
	for i := range held {
		heap.Push(&h, queued[event]{at: Time(r.IntN(1000)), seq: uint64(i)})
	}
	seq := uint64(held)
	b.ReportAllocs()
	for b.Loop() {
		e := heap.Pop(&h).(queued[event])
		seq++
		heap.Push(&h, queued[event]{e.at + Time(r.IntN(1000)), seq, e.event})
	}
}

type binary []queued[event]

func (h binary) Len() int           { return len(h) }
func (h binary) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h binary) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h *binary) Push(x any)        { *h = append(*h, x.(queued[event])) }
func (h *binary) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
