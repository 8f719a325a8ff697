package lb

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel/lb"
)

const (
	// shareBatch is how many records one call carries at most, and shareDelay
	// the time from one batch to the next. A record that comes when none has
	// gone for that long goes at once: until it is there, a balancer's death
	// takes with it where the connection was.
	shareBatch = 1000
	shareDelay = 5 * time.Millisecond
	// shareQueueLimit bounds the records that wait for one peer: 1 MB of them,
	// more than half a second of a million new connections a second with a
	// horizon of 10 %.
	shareQueueLimit = 65536
)

// shareQueue holds the records that one peer has not been told yet. When it
// is full the oldest makes way: of two records about one connection the later
// one counts.
type shareQueue struct {
	limit int
	wake  chan struct{} // something was put

	mu      sync.Mutex
	ring    []lb.FlowRecord // grows up to limit
	head, n int
	taken   time.Time // when the last batch was
	dropped uint64    // since the queue was made
}

func newShareQueue(limit int) *shareQueue {
	return &shareQueue{limit: limit, wake: make(chan struct{}, 1)}
}

// put adds records and never waits.
func (q *shareQueue) put(records []lb.FlowRecord) {
	q.mu.Lock()
	for _, r := range records {
		if q.n == len(q.ring) && q.n < q.limit {
			q.grow()
		}
		if q.n == len(q.ring) {
			q.head = (q.head + 1) % len(q.ring)
			q.n--
			q.dropped++
		}
		q.ring[(q.head+q.n)%len(q.ring)] = r
		q.n++
	}
	q.mu.Unlock()
	daemon.Poke(q.wake)
}

// grow doubles the ring, up to the limit. The caller holds mu.
func (q *shareQueue) grow() {
	bigger := make([]lb.FlowRecord, min(max(64, 2*len(q.ring)), q.limit))
	n := copy(bigger, q.ring[q.head:])
	copy(bigger[n:], q.ring[:q.head])
	q.ring, q.head = bigger, 0
}

// take waits for records and moves the oldest into batch: as many as there is
// room for, or what came until shareDelay after the batch before. It returns
// none when ctx ends.
func (q *shareQueue) take(ctx context.Context, batch []lb.FlowRecord) []lb.FlowRecord {
	if !q.await(ctx, 1, nil) {
		return nil
	}
	q.mu.Lock()
	timer := time.NewTimer(shareDelay - time.Since(q.taken))
	q.mu.Unlock()
	defer timer.Stop()
	if !q.await(ctx, cap(batch), timer.C) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = time.Now()
	for batch = batch[:0]; len(batch) < cap(batch) && q.n > 0; q.n-- {
		batch = append(batch, q.ring[q.head])
		q.head = (q.head + 1) % len(q.ring)
	}
	return batch
}

// await waits until n records are there or enough fires; false: ctx ended.
func (q *shareQueue) await(ctx context.Context, n int, enough <-chan time.Time) bool {
	for {
		if waiting, _ := q.count(); waiting >= n {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-enough:
			return true
		case <-q.wake:
		}
	}
}

// count is how many records wait and how many were dropped.
func (q *shareQueue) count() (waiting int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n, q.dropped
}

// drop counts records as lost that were taken and cannot be told.
func (q *shareQueue) drop(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += uint64(n)
}
