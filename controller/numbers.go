package controller

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of numbers that no other check has. An assignment comes from a network
// and a disk: a time to come would hold connections for ever, and a timeout below
// zero would fail every check.
const (
	// maxVersion leaves room to count on for whoever has it in force.
	maxVersion = 1 << 53 // what JSON readers can say
	maxKey     = 64      // bytes
)

// Of all times: by the shared clock they are seconds of 32 bits.
var (
	firstTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// validateNumbers is the part of validate for what is a number or a time and
// hangs on nothing else. version is the assignment's.
func (v *VIP) validateNumbers(version uint64) error {
	if h := v.Health; h != nil {
		if found := h.Check(); len(found) > 0 {
			return fmt.Errorf("health: %w", found[0])
		}
		if h.Port == 0 {
			return errors.New("health: port 0: must be 1 to 65535")
		}
	}
	for _, s := range v.HorizonSteps {
		if err := validTime("horizon step's since", s.Since); err != nil {
			return err
		}
	}
	for _, s := range v.Slots {
		if s.Version > version {
			return fmt.Errorf("slot %d: version %d: it came with a later one than this", s.Number, s.Version)
		}
		for _, f := range []struct {
			name string
			t    time.Time
		}{{"rest_until", s.RestUntil}, {"since", s.Since}, {"weight_since", s.WeightSince}, {"drain_since", s.DrainSince}} {
			if err := validTime(f.name, f.t); err != nil {
				return fmt.Errorf("slot %d: %w", s.Number, err)
			}
		}
	}
	return nil
}

func validTime(name string, t time.Time) error {
	if !t.IsZero() && (t.Before(firstTime) || t.After(lastTime)) {
		return fmt.Errorf("%s %s: must be in %d to %d", name, t.Format(time.RFC3339), firstTime.Year(), lastTime.Year())
	}
	return nil
}
