package rollout

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
)

// said has all agents say that n connections with a cookie live, of before all.
func (f *fleet) said(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.cfg.Servers {
		f.get(s.Name).live = []*fairleadv1.LiveVIP{{Id: f.get("lb1").cur.VIPs[0].ID, Server: s.Name, Earlier: new(n), Epochs: []*fairleadv1.EpochLive{{Connections: n}}}}
	}
}

func (f *fleet) web() controller.VIP {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.get("lb1").cur.VIPs[0]
}

// TestMigrationWaits: a balancer froze in the middle of a migration, which goes no further
// without it: its programs have the version before, which does not mix with the one after.
func TestMigrationWaits(t *testing.T) {
	s := newFleet(t, strings.Replace(three, "policy: wrr", "scheme: jet", 1))
	c, _ := s.linked()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.said(0)
	collect := ch.To + 1
	s.mu.Lock()
	s.get("s1").fail = func(v uint64, done bool) error {
		if v == collect && done {
			s.get("lb2").away = errors.New("frozen")
		}
		return nil
	}
	s.mu.Unlock()
	text := bytes.Replace(s.text, []byte("scheme: jet"), []byte("scheme: cheetah"), 1)
	stopsHalf(t, s, text, collect, Options{})
	s.heard("lb2")
	leader, link := s.linked()
	for range 3 { // the first may only see to the turns
		_, err = leader.Apply(t.Context(), text, Options{})
		if refused := (controller.Refusal)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "lb2 does not answer (frozen)") {
			t.Fatalf("%v, must be refused for lb2", err)
		}
		if _, err = leader.Do(t.Context(), Options{}); err == nil {
			t.Fatal("no verb is asked, and it goes on")
		}
	}
	if _, err := leader.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err == nil {
		t.Error("with another verb it goes on")
	}
	s.away("lb2", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	s.eventually(t, "it is over", func() bool { v := s.web(); return v.Migration == nil && v.Cookies() })
	cancel()
	if err := errors.Join(<-done, s.bad()); err != nil {
		t.Error(err)
	}
}

// TestMigrationOfSilent: an agent that went away when it had the stage holds nobody up.
func TestMigrationOfSilent(t *testing.T) {
	s := newFleet(t, strings.Replace(three, "policy: wrr", "scheme: jet", 1))
	c, _ := s.linked()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.said(0)
	text := bytes.Replace(s.text, []byte("scheme: jet"), []byte("scheme: cheetah"), 1)
	stopsHalf(t, s, text, ch.To+1, Options{})
	s.heard("lb2")
	s.away("s3", errors.New("frozen"))
	if _, err := s.coordinator().Apply(t.Context(), text, Options{}); err != nil {
		t.Error(err)
	}
	if v := s.web(); v.Migration == nil || v.Migration.Stage != controller.StageBoth {
		t.Errorf("it is at %+v", v.Migration)
	}
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}

// TestTwoMigrations: between cookies of two forms a VIP has scheme jet until connections end;
// then the leader goes on by itself, whatever came in between.
func TestTwoMigrations(t *testing.T) {
	s := newFleet(t, strings.Replace(three, "policy: wrr", "scheme: cheetah", 1))
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	s.said(1)
	left := func(what string) {
		t.Helper()
		if head, err := c.Ledger.Head(t.Context()); err != nil || !head.Left {
			t.Errorf("%s: nothing is left to do: %+v, %v", what, head, err)
		}
	}
	ch, err := c.Apply(t.Context(), bytes.Replace(s.text, []byte("scheme: cheetah"), []byte("scheme: cheetah-stateful"), 1), Options{})
	if err != nil || !strings.Contains(strings.Join(ch.Notes, "\n"), "waits until that is over") {
		t.Fatalf("%+v %v", ch, err)
	}
	if v := s.web(); v.Migration == nil || v.Migration.Stage != controller.StageEnding {
		t.Fatalf("it is at %+v", v.Migration)
	}
	left("at stage ending")
	if ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil || len(ch.Notes) > 0 {
		t.Fatalf("%v, notes %q: nobody was asked what lives", err, ch.Notes)
	}
	left("after a drain")
	s.said(0)
	leader, link := s.linked()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	s.eventually(t, "it is what the text says", func() bool {
		v := s.web()
		head, err := c.Ledger.Head(t.Context())
		return v.Migration == nil && v.Scheme == "cheetah-stateful" && err == nil && !head.Left
	})
	cancel()
	if err := errors.Join(<-done, s.bad()); err != nil {
		t.Error(err)
	}
}
