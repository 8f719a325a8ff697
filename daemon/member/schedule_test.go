package member

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
)

// duePlane counts how often it is applied, and says once when it is due again.
type duePlane struct {
	Plane
	mu     sync.Mutex
	n      int
	due    time.Time
	refuse error
}

func (p *duePlane) Apply(*controller.Assignment) (due time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return due, p.refuse
	}
	p.n++
	due, p.due = p.due, time.Time{}
	return due, nil
}

func (p *duePlane) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// When a warm-up ends the assignment is applied again, without any change.
func TestDueAppliesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(duePlane)
		d := &Member{Daemon: &daemon.Daemon{Log: slog.New(slog.DiscardHandler)}, retry: make(chan struct{}, 1), due: newSchedule(), opened: Opened{Plane: p}}
		a := &controller.Assignment{Version: 1}
		d.force.Store(&inForce{Assignment: a, own: a})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.reapply(ctx) }()
		start := time.Now()
		later := start.Add(10 * time.Hour)
		p.due = later // the first run says when the next is due
		d.due.set(start.Add(2 * time.Hour))
		time.Sleep(2*time.Hour - time.Second)
		if n := p.count(); n != 0 {
			t.Errorf("applied %d times before it was due", n)
		}
		time.Sleep(2 * time.Second)
		if n := p.count(); n != 1 {
			t.Errorf("applied %d times when it was due, want 1", n)
		}
		time.Sleep(time.Until(later) - time.Second)
		if n := p.count(); n != 1 {
			t.Errorf("applied %d times before it was due again", n)
		}
		time.Sleep(2 * time.Second)
		if n := p.count(); n != 2 {
			t.Errorf("applied %d times when it was due again, want 2", n)
		}
		time.Sleep(24 * time.Hour)
		if n := p.count(); n != 2 {
			t.Errorf("applied %d times with nothing due", n)
		}
		// A moment that is past already: once, after a rest; and what fails
		// is tried again.
		p.mu.Lock()
		p.refuse = errors.New("not now")
		p.mu.Unlock()
		d.due.set(time.Now().Add(-time.Hour))
		time.Sleep(5 * time.Second)
		p.mu.Lock()
		p.refuse = nil
		p.mu.Unlock()
		time.Sleep(5 * time.Second)
		if n := p.count(); n != 3 {
			t.Errorf("applied %d times after a failure, want 3", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
