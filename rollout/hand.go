package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
)

// Hand gives every daemon every step: none gets a step before all have the
// one before, agents get it before balancers and these before switches, and no
// version goes back. The
// first of steps is the base, which those that lack it catch up to. Daemons
// whose Err is set are passed over.
//
// It stops at the first step that a daemon does not take. Then every daemon
// has that step or the one before, which mix; running the change again goes
// on from there. The error (Stopped) says who has what.
func Hand(ctx context.Context, steps []*controller.Assignment, daemons []*Daemon) error {
	var taking []*Daemon
	for _, d := range daemons {
		if d.Err == nil {
			taking = append(taking, d)
		}
	}
	for i, step := range steps {
		for kind := range kinds {
			var now []*Daemon
			for _, d := range taking {
				if d.Kind == kind {
					now = append(now, d)
				}
			}
			// The first daemon goes alone: of two changes at the same time
			// one loses its compare-and-set here, before anybody else has
			// either.
			if i > 0 && len(now) > 0 {
				now[0].Err = give(ctx, now[0], step, i == 0)
				if now[0].Err != nil && !now[0].Leaving {
					return &Stopped{Step: step, Daemons: daemons}
				}
				now = now[1:]
			}
			each(now, func(d *Daemon) { d.Err = give(ctx, d, step, i == 0) })
			if slices.ContainsFunc(now, func(d *Daemon) bool { return d.Err != nil && !d.Leaving }) {
				return &Stopped{Step: step, Daemons: daemons}
			}
		}
		taking = slices.DeleteFunc(taking, func(d *Daemon) bool { return d.Err != nil })
	}
	return nil
}

// give puts step in force at d, unless it is already.
func give(ctx context.Context, d *Daemon, step *controller.Assignment, catchUp bool) error {
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		var expected uint64
		if d.Held != nil {
			expected = d.Held.Version
			switch {
			case expected == step.Version && d.Held.Digest() == step.Digest():
				return nil
			case expected >= step.Version:
				return fmt.Errorf("has version %d by now: another change is under way; run it again", expected)
			}
		}
		_, err := d.Client.SetAssignment(ctx, connect.NewRequest(&fairleadv1.SetAssignmentRequest{
			Assignment: step.Encode(), ExpectedVersion: expected, CatchUp: catchUp || expected+1 != step.Version,
		}))
		if err == nil {
			d.Held = step
			return nil
		}
		// It may have caught up from a peer by itself: look once more.
		now, lookErr := held(ctx, d)
		if lookErr != nil || attempt == 1 {
			return err
		}
		d.Held = now
		if now == nil || now.Version == expected {
			return err
		}
	}
}

// Stopped is a series that not every daemon took.
type Stopped struct {
	Step    *controller.Assignment // the last that any daemon may have
	Daemons []*Daemon
}

func (s *Stopped) Error() string {
	var failed []string
	byVersion := map[uint64][]string{}
	var versions []uint64
	for _, d := range s.Daemons {
		if d.Err != nil {
			failed = append(failed, d.Name+": "+api.ErrorText(d.Err))
		}
		if d.Held != nil {
			if byVersion[d.Held.Version] == nil {
				versions = append(versions, d.Held.Version)
			}
			byVersion[d.Held.Version] = append(byVersion[d.Held.Version], d.Name)
		}
	}
	slices.Sort(versions)
	var have []string
	for _, v := range versions {
		have = append(have, fmt.Sprintf("version %d: %s", v, strings.Join(byVersion[v], ", ")))
	}
	return fmt.Sprintf("stopped at version %d, no connection breaks: %s (%s); put that right and run it again, it goes on from there",
		s.Step.Version, strings.Join(failed, "; "), strings.Join(have, "; "))
}

// Unwrap is the daemons' own errors, so that their codes can be told.
func (s *Stopped) Unwrap() (errs []error) {
	for _, d := range s.Daemons {
		if d.Err != nil {
			errs = append(errs, d.Err)
		}
	}
	return errs
}
