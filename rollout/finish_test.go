package rollout

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// stopsHalf has somebody apply text who is cut off from the store as soon as lb1 goes by
// version.
func stopsHalf(t *testing.T, s *fleet, text []byte, version uint64, o Options) {
	t.Helper()
	c, link := s.linked()
	ctx, dies := context.WithCancel(t.Context())
	defer dies()
	s.mu.Lock()
	s.get("lb1").fail = func(v uint64, done bool) error {
		if v == version && done {
			link.Cut(true)
			dies()
		}
		return nil
	}
	s.mu.Unlock()
	if _, err := c.Apply(ctx, text, o); err == nil {
		t.Fatal("nothing stopped it")
	}
	s.mu.Lock()
	s.get("lb1").fail = nil
	s.mu.Unlock()
}

// TestFinishes: a series whose maker is gone in the middle of it is finished by the leader,
// from the text that came with its first version.
func TestFinishes(t *testing.T) {
	s := newFleet(t, strings.Replace(three, "s2, s3]", "s2]", 1))
	c, _ := s.linked()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Replace(s.text, []byte("servers: [s1, s2]"), []byte("servers: [s1, s2, s3]"), 1)
	stopsHalf(t, s, all, ch.To+1, Options{})
	state := func() controller.State {
		s.mu.Lock()
		defer s.mu.Unlock()
		web, _ := s.get("lb1").cur.VIP("web")
		for _, slot := range web.Slots {
			if slot.Server == "s3" {
				return slot.State
			}
		}
		return ""
	}
	if got := state(); got != controller.Joining {
		t.Fatalf("half way s3 is %q", got)
	}
	leader, link := s.linked()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	s.eventually(t, "s3 takes new connections", func() bool { return state() == controller.Active })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.eventually(t, "nothing is left", func() bool {
		head, err := c.Ledger.Head(t.Context())
		return err == nil && !head.Left
	})
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}

// TestFinishesAfterVerb: somebody else's verb comes after a series that stopped half way, and
// the rest is brought all the same, nor is the verb undone by it.
func TestFinishesAfterVerb(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopsHalf(t, s, bytes.Replace(s.text, []byte("s2, s3]"), []byte("s2]"), 1), ch.To+1, Options{})
	other, _ := s.linked()
	for _, o := range []controller.Op{op(controller.Drain, "s1"), {Kind: controller.Rotate}} {
		if _, err := other.Do(t.Context(), Options{}, o); err != nil {
			t.Fatal(err)
		}
		if head, err := c.Ledger.Head(t.Context()); err != nil || !head.Left {
			t.Errorf("after %v nothing more is to come: %+v, %v", o.Kind, head, err)
		}
	}
	state := func(server string) controller.State {
		s.mu.Lock()
		defer s.mu.Unlock()
		web, _ := s.get("lb1").cur.VIP("web")
		for _, slot := range web.Slots {
			if slot.Server == server {
				return slot.State
			}
		}
		return ""
	}
	leader, link := s.linked()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	s.eventually(t, "nothing is left", func() bool {
		head, err := c.Ledger.Head(t.Context())
		return err == nil && !head.Left
	})
	s.eventually(t, "s3 is removed", func() bool { return state("s3") == controller.Resting })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := state("s1"); got != controller.Draining {
		t.Errorf("s1 was drained, and is %q", got)
	}
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}

// TestFinishesNoMore: what the desired state does not say is not undone by the leader, and
// a rest that is refused is told until it is not.
func TestFinishesNoMore(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A text that says otherwise than what is in force, and no series under way.
	head, err := c.Ledger.Head(t.Context())
	if err != nil || head.Left {
		t.Fatal(head, err)
	}
	base, err := c.Ledger.Read(t.Context(), head.Version, nil)
	if err != nil {
		t.Fatal(err)
	}
	leader, link := s.linked()
	var warned atomic.Pointer[[]string]
	leader.Warn = func(all []string) { warned.Store(&all) }
	steps, _, err := controller.Change(base, controller.LiveCounts{}, time.Now(), false, op(controller.Drain, "s1"))
	if err != nil {
		t.Fatal(err)
	}
	appended(t, c, steps[0], nil, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	s.eventually(t, "it leads, and has looked", func() bool { return warned.Load() != nil })
	if head, err = c.Ledger.Head(t.Context()); err != nil || head.Version != ch.To+1 {
		t.Errorf("the leader undid a drain that no text has: %+v, %v", head, err)
	}
	// Somebody forced s3 out, and is gone after the first version: connections live there.
	web, _ := base.VIP("web")
	s.mu.Lock()
	s.get("s3").live = []*fairleadv1.LiveVIP{{Id: web.ID, Server: "s3", Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: 3}}}}
	s.mu.Unlock()
	next := steps[0].Clone()
	next.Version++
	appended(t, c, next, bytes.Replace(s.text, []byte("s2, s3]"), []byte("s2]"), 1), true)
	s.eventually(t, "the refusal is told", func() bool {
		all := warned.Load()
		return len(*all) == 1 && strings.Contains((*all)[0], "stopped half way") && strings.Contains((*all)[0], "3 connections are live")
	})
	// They end, and nobody has to ask again.
	s.mu.Lock()
	s.get("s3").live = []*fairleadv1.LiveVIP{{Id: web.ID, Server: "s3"}}
	s.mu.Unlock()
	s.eventually(t, "the rest is brought when connections ended", func() bool {
		head, err := c.Ledger.Head(t.Context())
		return err == nil && !head.Left && head.Version > next.Version
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// appended makes a the newest version, which it is everybody's turn to go by.
func appended(t *testing.T, c *Coordinator, a *controller.Assignment, text []byte, left bool) {
	t.Helper()
	head, err := c.Ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base, err := c.Ledger.Read(t.Context(), head.Version, nil)
	if err == nil {
		head, err = c.Ledger.Append(t.Context(), head, base, a, ledger.Change{Who: "who dies", Text: text, Left: left})
	}
	if err == nil {
		_, err = c.Ledger.Turn(t.Context(), head, int(kinds))
	}
	if err != nil {
		t.Fatal(err)
	}
}
