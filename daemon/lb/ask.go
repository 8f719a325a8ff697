package lb

import (
	"context"
	"sync"
	"time"
)

// askAll has ask called for each of names in turn, at most atOnce at a time,
// and returns when all have answered. Each has timeout for itself, begun when it is
// asked, so that many that hang do not have others pass for silent. When ctx
// ends, who was not asked yet is not asked: ask is not called for it.
func askAll(ctx context.Context, names []string, atOnce int, timeout time.Duration, ask func(ctx context.Context, name string)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, atOnce)
	for _, name := range names {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-room }()
			asked, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			ask(asked, name)
		})
	}
}
