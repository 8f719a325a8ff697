package lb

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// Agents that hang take nothing from the time of those that answer.
func TestAskAllBesideSilent(t *testing.T) {
	agents := slices.Concat(slices.Repeat([]string{"hangs"}, 40), slices.Repeat([]string{"answers"}, 40))
	var mu sync.Mutex
	late, answered, most, now := 0, 0, 0, 0
	askAll(t.Context(), agents, 8, 20*time.Millisecond, func(ctx context.Context, name string) {
		hangs := name == "hangs"
		over := ctx.Err() != nil
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		if hangs {
			<-ctx.Done()
		}
		mu.Lock()
		defer mu.Unlock()
		now--
		switch {
		case hangs:
		case over:
			late++
		default:
			answered++
		}
	})
	if late != 0 || answered != 40 || most > 8 {
		t.Errorf("%d of 40 were asked when their time was over, %d answered; %d at once", late, answered, most)
	}
}

// Whoever could not be asked before the end is not reported at all.
func TestAskAllEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	askAll(ctx, []string{"a", "b", "c"}, 1, time.Minute, func(ctx context.Context, _ string) {
		asked++
		cancel()
		<-ctx.Done()
	})
	if asked != 1 {
		t.Errorf("%d were asked, two of them after the end", asked)
	}
}
