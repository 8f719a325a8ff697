package swtch

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel/swtch"
)

// A switch keeps on disk, in the daemon's folder, whether it is drained and
// whether it locked itself.

// drain withdraws the announced routes or announces them again. On disk first,
// so that a switch that is killed in between does what it was told when it
// starts again.
func (p *plane) drain(drained bool) (changes []string, err error) {
	was, err := p.remember(drained)
	if err != nil {
		return nil, err
	}
	if changes, err = p.sw.Drain(drained); err != nil {
		_, back := p.remember(was)
		return nil, errors.Join(err, back)
	}
	return changes, nil
}

// remember keeps on disk whether the switch is drained.
func (p *plane) remember(drained bool) (was bool, err error) {
	if was, err = p.state.Mark(drainedName, drained); err != nil {
		return was, fmt.Errorf("keep on disk whether the switch is drained: %w", err)
	}
	return was, nil
}

// readLock is the lock that keepLock wrote, nil if there is none. One that is
// damaged is not set aside: without it the switch would follow health at once,
// which nobody has allowed.
func readLock(s *daemon.State) (*swtch.Lock, error) {
	text, err := s.Read(lockedName)
	if err == nil && text == nil {
		return nil, nil
	}
	l := new(swtch.Lock)
	if err == nil {
		err = json.Unmarshal(text, l)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the switch is locked: %w; if it is to follow its servers' health, remove %s", err, s.Path(lockedName))
	}
	return l, nil
}

// keepLock writes l into the folder, whole or not at all; nil: there is none. A
// switch that locks itself is locked, whatever the disk says: it is written when
// that takes it.
func keepLock(s *daemon.State, l *swtch.Lock) error {
	if l != nil {
		text, err := json.Marshal(l)
		if err == nil {
			err = s.Keep(lockedName, text)
		}
		return err
	}
	if err := s.Remove(lockedName); err != nil {
		return fmt.Errorf("keep on disk whether the switch is locked: %w", err)
	}
	return nil
}
