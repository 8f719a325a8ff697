package member

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/daemon"
)

// schedule is when the assignment in force is due to be applied again. The
// moment is one of the wall clock, as the assignment's times are.
type schedule struct {
	moved chan struct{} // it was set

	mu sync.Mutex
	at time.Time // zero: never
}

const (
	// wallLook is how often the wall clock is looked at while something is
	// due later: it may be stepped.
	wallLook = time.Minute
	// soonest keeps a moment that is past already from being applied for
	// without a rest.
	soonest = time.Second
)

func newSchedule() *schedule { return &schedule{moved: make(chan struct{}, 1)} }

// set replaces the moment.
func (s *schedule) set(at time.Time) {
	if first := time.Now().Add(soonest); !at.IsZero() && at.Before(first) {
		at = first
	}
	s.mu.Lock()
	s.at = at.Round(0) // without the monotonic reading
	s.mu.Unlock()
	daemon.Poke(s.moved)
}

func (s *schedule) left() (d time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.at), !s.at.IsZero()
}

// come says that the moment has come, once: who applies sets the next one.
func (s *schedule) come() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Until(s.at) > 0 {
		return false
	}
	s.at = time.Time{}
	return true
}

// wait fires when the moment may have come, never where there is none; stop
// releases it.
func (s *schedule) wait() (fires <-chan time.Time, stop func()) {
	d, ok := s.left()
	if !ok {
		return nil, func() {}
	}
	timer := time.NewTimer(min(max(d, 0), wallLook))
	return timer.C, func() { timer.Stop() }
}
