package health

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow answers well, after a while.
type slow struct{ takes time.Duration }

func (p slow) Probe(ctx context.Context, _ Target) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.takes):
		return nil
	}
}

// TestEnded: what has ended is down at once, whatever was known, told once, and up
// after as many good checks as at any other time, of which none began before.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var changes []string
		c := NewChecker(slow{400 * time.Millisecond}, func(t Target, r Report) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, t.Server+" "+r.State.String())
		})
		defer c.Close()
		one := target(1, "b")
		one.Rise = 1 // a check that was under way would have it up
		c.SetTargets([]Target{target(0, "a"), one})
		c.Ended("a", 1, "gone") // unknown until now
		if !c.Down(1, 0) || c.Down(1, 1) {
			t.Fatal("a is not down, or b is")
		}
		time.Sleep(10 * time.Second)
		if c.Down(1, 0) {
			t.Fatal("a answers and is still down")
		}
		for range 200 { // wherever in its interval the check of b is
			c.Ended("b", 1, "gone")
			c.Ended("b", 1, "gone")
			c.Ended("b", 2, "another VIP")
			if r, _ := c.Report(1, 1); r.State != Down || !r.Ended || r.Detail != "gone" || r.Since != time.Now() {
				t.Fatalf("%+v", r)
			}
			ended := time.Now()
			for c.Down(1, 1) {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			if r, _ := c.Report(1, 1); r.Ended {
				t.Fatal("it is up, and has ended")
			}
			if after := time.Since(ended); after < 400*time.Millisecond {
				t.Fatalf("up after %v: by a check that began before", after)
			}
			time.Sleep(37 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		first := changes[1:3]
		slices.Sort(first)
		if changes[0] != "a down" || !slices.Equal(first, []string{"a up", "b up"}) || len(changes) != 3+2*200 {
			t.Errorf("%d changes, %v", len(changes), changes[:4])
		}
	})
}

// TestAsk: a check that is asked for is made at once, and later ones when they would be.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProber{times: map[string][]time.Time{}}
		c := NewChecker(p, nil)
		defer c.Close()
		c.SetTargets([]Target{target(0, "a"), target(1, "b")})
		time.Sleep(5 * time.Second)
		for range 3 {
			began := time.Now()
			c.Ask("a")
			synctest.Wait()
			p.mu.Lock()
			if last := p.times["a"][len(p.times["a"])-1]; !last.Equal(began) {
				t.Errorf("asked at %v, checked last at %v", began, last)
			}
			if last := p.times["b"][len(p.times["b"])-1]; last.Equal(began) {
				t.Error("b was checked, too")
			}
			p.mu.Unlock()
			time.Sleep(3 * time.Second)
		}
	})
}
