package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// TestRestEnds: nothing else happens in the deployment, and a removed server's slot is
// free when its rest is over: not before, not while its agent counts connections; and
// where its agent is gone, a day later. One that does not answer, and whose lease lives, is
// not gone.
func TestRestEnds(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		web, _ := s.get("lb1").cur.VIP("web")
		return slices.ContainsFunc(web.Slots, func(slot controller.Slot) bool { return slot.Server == "s3" })
	}
	set := func(live uint64, away, mute error) {
		s.mu.Lock()
		d := s.get("s3")
		came := d.away != nil && away == nil
		d.away, d.mute = away, mute
		d.live = []*fairleadv1.LiveVIP{{Id: d.cur.VIPs[0].ID, Server: "s3", Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: live}}}}
		s.mu.Unlock()
		if came || away != nil {
			s.heard("s3")
		}
	}
	// rests has s3's slot rest until then, as all daemons have it.
	rests := func(until time.Time) {
		t.Helper()
		head, err := c.Ledger.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		base, err := c.Ledger.Read(t.Context(), head.Version, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := base.Clone()
		next.Version++
		web, _ := next.VIP("web")
		for i := range web.Slots {
			if web.Slots[i].State == controller.Resting {
				web.Slots[i].RestUntil = until
			}
		}
		if head, err = c.Ledger.Append(t.Context(), head, base, next, ledger.Change{Who: "a test"}); err != nil {
			t.Fatal(err)
		}
		if _, err = c.Ledger.Turn(t.Context(), head, int(kinds)); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, "all have it", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, d := range s.daemons {
				if d.cur.Version < next.Version {
					return false
				}
			}
			return true
		})
	}
	remove := func() {
		t.Helper()
		if _, err := c.Do(t.Context(), Options{Force: true}, op(controller.Remove, "s3")); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	leader, link := s.linked()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- leader.Lead(ctx, link, "c1", 20*time.Millisecond, slog.New(slog.DiscardHandler)) }()
	until := time.Now().Add(700 * time.Millisecond)
	rests(until)
	s.eventually(t, "it is free", func() bool { return !there() })
	if early := time.Until(until); early > 0 {
		t.Errorf("free %v before its rest was over", early)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// tidies is once more of what it did.
	tidies := func() {
		t.Helper()
		head, err := c.Ledger.Head(t.Context())
		if err == nil {
			_, err = leader.tidyOnce(t.Context(), head, new(pace))
		}
		if err != nil {
			t.Error(err)
		}
	}
	again := func() {
		t.Helper()
		set(0, nil, nil)
		if _, err := c.Do(t.Context(), Options{}, controller.Op{Kind: controller.Add, VIP: "web", Server: "s3", Address: s.cfg.Servers[2].Address}); err != nil {
			t.Fatal(err)
		}
		remove()
	}
	for name, c := range map[string]struct {
		live       uint64
		away, mute error
		since      time.Duration
		kept       bool
	}{
		"connections live":        {3, nil, nil, 48 * time.Hour, true},
		"gone for an hour":        {0, errors.New("no route to host"), nil, time.Hour, true},
		"gone for a day and more": {0, errors.New("no route to host"), nil, 25 * time.Hour, false},
		"silent, and lives":       {3, nil, errors.New("no route to host"), 25 * time.Hour, true},
	} {
		again()
		rests(time.Now().Add(-c.since))
		set(c.live, c.away, c.mute)
		tidies()
		if there() != c.kept {
			t.Errorf("%s: its slot is there %v", name, there())
		}
		set(0, nil, nil)
		tidies()
		if there() {
			t.Errorf("%s, and then has none, or answers: its slot is there", name)
		}
	}
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}
