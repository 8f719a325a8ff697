package sim

import "math/bits"

// Time is simulated time in nanoseconds from the start: integers, so that
// order never depends on rounding.
type Time int64

// Second of simulated time.
const Second Time = 1e9

// Millisecond of simulated time.
const Millisecond = Second / 1000

// Queue holds events to come in the order of time, those of one time in the
// order in which they were put in. It allocates only where it grows.
//
// It is a heap of which every node has four children: half as many levels as
// with two, and the children lie side by side in memory. Events are values,
// so that nothing is boxed.
type Queue[E any] struct {
	heap []queued[E]
	seq  uint64
}

type queued[E any] struct {
	at    Time
	seq   uint64
	event E
}

// sign makes integers with a sign comparable as such without one.
const sign = 1 << 63

// before compares (time, sequence) as one number of 128 bits, without a branch
// that the processor would have to guess.
func (a *queued[E]) before(b *queued[E]) bool {
	_, borrow := bits.Sub64(a.seq, b.seq, 0)
	_, borrow = bits.Sub64(uint64(a.at)^sign, uint64(b.at)^sign, borrow)
	return borrow != 0
}

// Len is how many events there are.
func (q *Queue[E]) Len() int { return len(q.heap) }

// Peek is the time of the next event; false: there is none.
func (q *Queue[E]) Peek() (at Time, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// children of a node.
const children = 4

// Put has event happen at a time, which must not be before the last one that
// Next returned.
func (q *Queue[E]) Put(at Time, event E) {
	q.seq++
	e := queued[E]{at, q.seq, event}
	q.heap = append(q.heap, e)
	q.rise(len(q.heap)-1, e)
}

// rise puts e into the hole i or above it: parents that come later sink.
func (q *Queue[E]) rise(i int, e queued[E]) {
	h := q.heap
	for i > 0 {
		parent := (i - 1) / children
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// Next takes the next event; false: there is none.
func (q *Queue[E]) Next() (at Time, event E, ok bool) {
	n := len(q.heap) - 1
	if n < 0 {
		return 0, event, false
	}
	first, last := q.heap[0], q.heap[n]
	q.heap[n] = queued[E]{} // what it points to may be freed
	q.heap = q.heap[:n]
	if n > 0 {
		q.sink(last)
	}
	return first.at, first.event, true
}

// sink fills the hole at the top: the first of the children rises into it, and
// so on to the bottom; e goes there and rises from there. It was at the bottom
// before, so that it rarely has to rise far.
func (q *Queue[E]) sink(e queued[E]) {
	h := q.heap
	i := 0
	first := 1
	for ; first+children <= len(h); first = children*i + 1 {
		// The pairs' comparisons do not wait for each other.
		c := h[first : first+children]
		a, b := 0, 2
		if c[1].before(&c[0]) {
			a = 1
		}
		if c[3].before(&c[2]) {
			b = 3
		}
		if c[b].before(&c[a]) {
			a = b
		}
		h[i] = c[a]
		i = first + a
	}
	if first < len(h) { // the last family is not whole, and has no children
		least := first
		for c := first + 1; c < len(h); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		h[i] = h[least]
		i = least
	}
	q.rise(i, e)
}
