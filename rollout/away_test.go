package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/store"
)

// TestNothingIsLost: whatever links fail and whatever daemons refuse, versions that
// daemons have mix, none goes back, what was acknowledged is in the history, and
// when nothing fails any more all have one version.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newFleet(t, three)
		defer s.stop()
		last, broken := map[string]uint64{}, map[string]bool{}
		for _, d := range s.daemons {
			d.fail = func(v uint64, done bool) error { // under the fleet's lock
				if done && v <= last[d.name] && s.wrong == nil {
					s.wrong = fmt.Errorf("%s goes from %d to %d", d.name, last[d.name], v)
				}
				if done {
					last[d.name] = v
				} else if broken[d.name] {
					return errors.New("failed")
				}
				return nil
			}
		}
		c, link := s.linked()
		ops := []controller.Op{op(controller.Drain, "s1"), op(controller.Undrain, "s1"), op(controller.Drain, "s2"), op(controller.Undrain, "s2"), {Kind: controller.Rotate}}
		names := []string{"s1", "s2", "s3", "lb1", "lb2"}
		acknowledged := uint64(1)
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			name, what := rapid.SampledFrom(names).Draw(rt, "who"), rapid.IntRange(0, 3).Draw(rt, "what")
			s.mu.Lock()
			d := s.get(name)
			switch d.away = nil; what {
			case 0: // cut off from all
				d.away = errors.New("cut off")
			case 1:
				broken[name] = !broken[name]
			}
			s.mu.Unlock()
			s.links[name].Cut(what == 0)
			link.Cut(rapid.IntRange(0, 4).Draw(rt, "coordinator") == 0)
			ch, err := c.Do(context.Background(), Options{}, rapid.SampledFrom(ops).Draw(rt, "op"))
			if err == nil {
				acknowledged = max(acknowledged, ch.To)
			}
			if s.bad() != nil {
				rt.Fatal(s.bad())
			}
		}
		link.Cut(false)
		for _, name := range names {
			s.links[name].Cut(false)
			s.mu.Lock()
			s.get(name).away, broken[name] = nil, false
			s.mu.Unlock()
		}
		var err error
		s.eventually(t, "a change is done", func() bool {
			_, err = c.Do(context.Background(), Options{Force: true}, controller.Op{Kind: controller.Rotate})
			return err == nil
		})
		head, err := c.Ledger.Head(t.Context())
		if err != nil || head.Version < acknowledged || s.bad() != nil {
			rt.Fatal(head, acknowledged, err, s.bad())
		}
		s.eventually(t, "all have one version", func() bool {
			return s.versions() == fmt.Sprintf("s1=%[1]d s2=%[1]d s3=%[1]d lb1=%[1]d lb2=%[1]d", head.Version)
		})
		records, err := c.Ledger.History(t.Context(), 0, 999)
		if err != nil || uint64(len(records)) != head.Version {
			rt.Fatalf("%d records of %d versions: %v", len(records), head.Version, err)
		}
	})
}

// flaky is a store of which one commit fails: not done, done, or done when late is
// called.
type flaky struct {
	store.Store
	left int
	done string
	late func()
}

func (f *flaky) Commit(ctx context.Context, ifs []store.If, ops ...store.Op) (int64, error) {
	if f.left--; f.left != 0 {
		return f.Store.Commit(ctx, ifs, ops...)
	}
	f.late = func() {}
	if f.done == "late" {
		f.late = func() { _, _ = f.Store.Commit(context.Background(), ifs, ops...) }
	}
	if f.done == "done" {
		if _, err := f.Store.Commit(ctx, ifs, ops...); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: cut", store.ErrUnavailable)
}

// TestStoreGoesAway: at whichever commit of a change the store goes away, whether it
// did that one or not, what is said of it is so, and running it again completes it.
func TestStoreGoesAway(t *testing.T) {
	for n := 1; ; n++ {
		for _, done := range []string{"not done", "done", "late"} {
			s := newFleet(t, twoOfEach)
			c, link := s.linked()
			if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
				t.Fatal(err)
			}
			f := &flaky{Store: link, left: n, done: done}
			c.Ledger = s.ledger(f)
			_, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
			if err == nil {
				s.stop()
				if n != 3 { // the version, and that all have it
					t.Errorf("a change of %d commits", n-1)
				}
				return
			}
			f.late()
			head, headErr := c.Ledger.Head(t.Context())
			if headErr != nil {
				t.Fatal(headErr)
			}
			text := err.Error()
			switch {
			case head.Version == 1 && !errors.Is(err, ErrNoStore):
				t.Errorf("commit %d, %s: nothing was changed, and it says %s", n, done, text)
			case head.Version == 2 && !strings.Contains(text, "run it again"), head.Version == 2 && errors.Is(err, ErrNoStore):
				t.Errorf("commit %d, %s: version 2 is agreed on, and it says %s", n, done, text)
			}
			if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil || s.versions() != "s1=2 s2=2 lb1=2 lb2=2" {
				t.Errorf("commit %d, %s: again: %v %s", n, done, err, s.versions())
			}
			s.stop()
		}
	}
}
