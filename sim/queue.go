package sim

import "container/heap"

// Time is simulated time in nanoseconds from the start: integers, so that
// order never depends on rounding.
type Time int64

// Second of simulated time.
const Second Time = 1e9

// Millisecond of simulated time.
const Millisecond = Second / 1000

// Queue holds events to come in the order of time, those of one time in the
// order in which they were put in.
type Queue[E any] struct {
	h   eventHeap[E]
	seq uint64
}

// Put has event happen at a time, which must not be before the last one that
// Next returned.
func (q *Queue[E]) Put(at Time, event E) {
	q.seq++
	heap.Push(&q.h, queued[E]{at, q.seq, event})
}

// Next takes the next event; false: there is none.
func (q *Queue[E]) Next() (at Time, event E, ok bool) {
	if len(q.h) == 0 {
		return 0, event, false
	}
	e := heap.Pop(&q.h).(queued[E])
	return e.at, e.event, true
}

type queued[E any] struct {
	at    Time
	seq   uint64
	event E
}

type eventHeap[E any] []queued[E]

func (h eventHeap[E]) Len() int      { return len(h) }
func (h eventHeap[E]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h eventHeap[E]) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h *eventHeap[E]) Push(x any) { *h = append(*h, x.(queued[E])) }
func (h *eventHeap[E]) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
