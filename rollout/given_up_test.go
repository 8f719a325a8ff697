package rollout

import (
	"context"
	"errors"
	"testing"
)

// TestGivenUp: what is asked for by somebody who has given up is not begun, and says so.
func TestGivenUp(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range map[string]func() error{
		"apply": func() error { _, err := c.Apply(ctx, s.text, Options{}); return err },
		"plan":  func() error { _, err := c.PlanFile(ctx, s.text, Options{}); return err },
		// Its time ends while it is planned.
		"half way": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			to, err := c.toText(ctx, theFile, s.text, false)
			if err != nil {
				return err
			}
			v, err := c.look(ctx, to.cfg, Options{})
			if err != nil {
				return err
			}
			cancel()
			_, err = c.planFrom(ctx, v, Options{}, to)
			return err
		},
	} {
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	link := s.memory.Client()
	defer func() { _ = link.Close() }()
	if entries, _, err := link.Read(t.Context(), "head"); err != nil || len(entries) > 0 {
		t.Errorf("%v %v: something was begun", entries, err)
	}
}
