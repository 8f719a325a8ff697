package fabric

import (
	"fmt"
	"time"
)

// lock is the state of a switch that locked itself.
type lock struct {
	on     bool
	reason string
	since  time.Time
	plain  bool
	// out are the servers that are taken to be out meanwhile.
	out map[string]bool
}

// lockDown stops following health. Unless what there is now is to be kept,
// the servers that fell get their buckets back: either it is the switch that
// sees wrongly, or too few are left to carry all.
func (s *Switch) lockDown(fallen []string, now time.Time) {
	s.lock = lock{on: true, since: now, plain: !s.o.Health.LockKeep, out: map[string]bool{},
		reason: fmt.Sprintf("%d of %d servers went down within %v", len(fallen), len(s.health.servers), s.health.o.LockWindow)}
	recent := map[string]bool{}
	for _, name := range fallen {
		recent[name] = true
	}
	for name, h := range s.health.servers {
		if !recent[name] && (h.state == Down || h.state == Disabled) {
			s.lock.out[name] = true
		}
	}
	s.log.Error("locked: a cascading failure; health is not followed until the switch is unlocked", "reason", s.lock.reason, "plain", s.lock.plain)
}

// Unlock has a locked switch follow health again.
func (s *Switch) Unlock() (changes []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lock.on {
		return nil, nil
	}
	before := s.snapshot()
	s.lock = lock{}
	for _, h := range s.health.servers {
		h.fell = time.Time{} // what locked it does not lock it again
	}
	s.settle()
	if err := s.change(); err != nil {
		s.restore(before)
		return nil, err
	}
	return []string{"the switch follows its servers' health again"}, nil
}
