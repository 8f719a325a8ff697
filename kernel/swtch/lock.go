package swtch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Lock is that a switch locked itself: it does not follow its servers' health
// until it is unlocked. It outlasts the daemon if the caller keeps it (see
// Options.KeepLock).
type Lock struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// Plain: buckets stand as if the servers that fell were up.
	Plain bool `json:"plain"`
	// Out are the servers that are taken to be out meanwhile, by name.
	Out []string `json:"out"`
}

// lock is the state of a switch that may have locked itself.
type lock struct {
	on     bool
	reason string
	since  time.Time
	plain  bool
	out    map[string]bool
}

func lockOf(l *Lock) lock {
	if l == nil {
		return lock{}
	}
	out := map[string]bool{}
	for _, name := range l.Out {
		out[name] = true
	}
	return lock{on: true, reason: l.Reason, since: l.Since, plain: l.Plain, out: out}
}

func (l lock) exported() *Lock {
	return &Lock{Reason: l.reason, Since: l.since, Plain: l.plain, Out: slices.Sorted(maps.Keys(l.out))}
}

// lockDown stops following health. Unless what there is now is to be kept,
// the servers that fell get their buckets back: either it is the switch that
// sees wrongly, or too few are left to carry all. was are those that were out
// before this round.
func (s *Switch) lockDown(fallen []string, was map[string]bool, now time.Time) {
	s.lock = lock{on: true, since: now, plain: !s.o.Health.LockKeep, out: was,
		reason: fmt.Sprintf("%d of %d servers went down within %v", len(fallen), len(s.health.servers), s.health.o.LockWindow)}
	if s.lock.plain {
		s.lock.out = s.health.out()
		for _, name := range fallen {
			delete(s.lock.out, name)
		}
	}
	s.log.Error("locked: a cascading failure; health is not followed until the switch is unlocked", "reason", s.lock.reason, "plain", s.lock.plain)
	if s.o.KeepLock == nil {
		return
	}
	if err := s.o.KeepLock(s.lock.exported()); err != nil {
		s.log.Error("that the switch is locked could not be kept: after a restart it is not", "err", err)
	}
}

// Unlock has a locked switch follow health again.
func (s *Switch) Unlock() (changes []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lock.on {
		return nil, nil
	}
	if s.o.KeepLock != nil {
		if err := s.o.KeepLock(nil); err != nil {
			return nil, err
		}
	}
	if s.desired != nil {
		before := s.snapshot()
		s.lock = lock{}
		s.settle()
		if err := s.change(); err != nil {
			s.restore(before)
			if s.o.KeepLock != nil {
				err = errors.Join(err, s.o.KeepLock(s.lock.exported()))
			}
			return nil, err
		}
	}
	s.lock = lock{}
	for _, h := range s.health.servers {
		h.fell = time.Time{} // what locked it does not lock it again
	}
	return []string{"the switch follows its servers' health again"}, nil
}
