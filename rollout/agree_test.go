package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// TestAgreed: what daemons had before becomes the store's first version, a change
// follows it, and the history says who did what.
func TestAgreed(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
	if err != nil || ch.From != 1 || ch.To != 2 || s.wrong != nil || s.versions() != "s1=2 s2=2 s3=2 lb1=2 lb2=2" {
		t.Fatalf("%+v %v %v %s", ch, err, s.wrong, s.versions())
	}
	records, err := c.Ledger.History(t.Context(), 0, 999)
	if err != nil || len(records) != 2 || records[1].Who != "a test" || len(records[1].What) != 1 || !strings.Contains(records[1].What[0], "s1") {
		t.Errorf("%+v %v", records, err)
	}
	if ch, err = c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil || ch.To != 2 {
		t.Errorf("the same again: %+v %v", ch, err)
	}
}

// TestTurns: where agents would not take the tunnels that are to come, they have a
// version before balancers go by it; where they may stay where they are, nobody waits
// for them: balancers have it while an agent still does not, and the change does not
// end before that has.
func TestTurns(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	s.load(t, strings.Replace(three, "policy: wrr", "policy: wrr, forwarding: gue", 1))
	s.order = nil
	if ch, err := c.Apply(t.Context(), s.text, Options{}); err != nil || ch.To != 2 || s.bad() != nil {
		t.Fatal(ch, err, s.bad())
	}
	if i := slices.IndexFunc(s.order, func(o string) bool { return strings.HasPrefix(o, "lb") }); i != 3 {
		t.Errorf("balancers did not come after agents: %q", s.order)
	}
	s.links["s2"].Cut(true)
	ended := make(chan error)
	go func() {
		_, err := c.Do(context.Background(), Options{}, op(controller.Drain, "s1"))
		ended <- err
	}()
	s.eventually(t, "balancers have it", func() bool { return s.versions() == "s1=3 s2=2 s3=3 lb1=3 lb2=3" })
	select {
	case err := <-ended:
		t.Errorf("the change ended without s2: %v", err)
	default:
	}
	if head, err := c.Ledger.Head(t.Context()); err != nil || !head.Open {
		t.Errorf("%+v %v: who died now would leave something to finish", head, err)
	}
	s.links["s2"].Cut(false)
	if err := <-ended; err != nil || s.versions() != "s1=3 s2=3 s3=3 lb1=3 lb2=3" {
		t.Error(err, s.versions())
	}
	if head, err := c.Ledger.Head(t.Context()); err != nil || head.Open {
		t.Errorf("%+v %v", head, err)
	}
}

// TestParted: two halves that cannot reach each other, of which one has the store.
// What the other would change is refused, what this one changes is not lost, and
// when they meet again all have one history.
func TestParted(t *testing.T) {
	s := newFleet(t, twoOfEach)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	away := []string{"lb2", "s2"}
	part := func(parted bool) {
		for _, name := range away {
			s.links[name].Cut(parted)
			s.mu.Lock()
			s.get(name).away = nil
			if parted {
				s.get(name).away = errors.New("cut off")
			}
			s.mu.Unlock()
		}
	}
	part(true)
	minority, link := s.linked()
	link.Cut(true)
	if _, err := minority.Do(t.Context(), Options{Force: true}, op(controller.Drain, "s1")); !errors.Is(err, ErrNoStore) {
		t.Errorf("a minority's change: %v", err)
	}
	ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s2"))
	if err != nil || len(ch.Silent) != 2 {
		t.Fatalf("%+v %v", ch, err)
	}
	if got := s.versions(); got != fmt.Sprintf("s1=%d s2=%d lb1=%d lb2=%d", ch.To, ch.From, ch.To, ch.From) {
		t.Errorf("parted: %s", got)
	}
	part(false)
	s.eventually(t, "all have one version", func() bool { return s.versions() == fmt.Sprintf("s1=%[1]d s2=%[1]d lb1=%[1]d lb2=%[1]d", ch.To) })
	if s.wrong != nil {
		t.Error(s.wrong)
	}
}

// TestEmptyStore: daemons that have nothing wait; a verb is refused, and apply makes
// the first version, unless a daemon that might have one is silent.
func TestEmptyStore(t *testing.T) {
	s := newFleet(t, twoOfEach).empty()
	c, _ := s.linked()
	if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err == nil || !strings.Contains(err.Error(), "begin with `fairlead apply`") {
		t.Errorf("a verb: %v", err)
	}
	s.mu.Lock()
	s.get("s2").away = errors.New("connection refused")
	s.mu.Unlock()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err == nil || !strings.Contains(err.Error(), "the store is empty, and s2 does not answer") {
		t.Errorf("a silent daemon: %v", err)
	}
	s.mu.Lock()
	s.get("s2").away = errNothing
	s.mu.Unlock()
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil || ch.To != 1 || s.versions() != "s1=1 s2=1 lb1=1 lb2=1" {
		t.Errorf("%+v %v", ch, err)
	}
}

// TestRefusedVersion: a daemon that cannot put a version in force stops the series
// there, by name and at once; it goes on when that is put right.
func TestRefusedVersion(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	full := true
	lb1 := s.get("lb1")
	s.mu.Lock()
	lb1.fail = func(_ uint64, done bool) error {
		if full && !done {
			return errors.New("the map is full")
		}
		return nil
	}
	s.mu.Unlock()
	began := time.Now()
	_, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
	if err == nil || !strings.Contains(err.Error(), "stopped at version 2") || !strings.Contains(err.Error(), "lb1: the map is full") || time.Since(began) > setTimeout {
		t.Errorf("%v", err)
	}
	s.mu.Lock()
	full = false
	s.mu.Unlock()
	if ch, err := c.Do(t.Context(), Options{}, op(controller.Undrain, "s1")); err != nil || ch.To != 3 || s.wrong != nil {
		t.Errorf("%+v %v %v", ch, err, s.wrong)
	}
}

// TestTwoAtOnceStored: of changes at the same time each is done or refused: who drains all
// servers at once leaves one.
func TestTwoAtOnceStored(t *testing.T) {
	s := newFleet(t, three)
	var wg sync.WaitGroup
	var last atomic.Int32
	for _, name := range []string{"s1", "s2", "s3"} {
		wg.Go(func() {
			c, _ := s.linked()
			for {
				_, err := c.Do(context.Background(), Options{}, op(controller.Drain, name))
				if err == nil {
					return
				}
				if isLast(err, name) {
					last.Add(1)
					return
				}
				if !errors.Is(err, controller.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	c, _ := s.linked()
	head, err := c.Ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Ledger.Read(t.Context(), head.Version, nil)
	if err != nil {
		t.Fatal(err)
	}
	if works := working(a); works != 1 || last.Load() != 1 || s.wrong != nil {
		t.Errorf("%d work, %d refused, %v", works, last.Load(), s.wrong)
	}
}

// TestLead: of two controllers one leads, and finishes what an operator left half
// done, and slots whose rest is over; when it is gone the other does.
func TestLead(t *testing.T) {
	s := newFleet(t, three)
	var stops []func()
	for _, name := range []string{"c1", "c2"} {
		c, link := s.linked()
		c.Who = name
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Lead(ctx, link, name, 50*time.Millisecond, slog.New(slog.DiscardHandler)) }()
		stops = append(stops, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	c, link := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	leads := func() string {
		name, err := store.Leader(t.Context(), link, Election)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	s.eventually(t, "one leads", func() bool { return leads() != "" })

	if _, err := c.Do(t.Context(), Options{Force: true}, op(controller.Remove, "s3")); err != nil {
		t.Fatal(err)
	}
	first := leads()
	// An operator dies between the head and the first turn; and s3's slot rests no
	// longer.
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
			web.Slots[i].RestUntil = time.Now().Add(-time.Second)
		}
	}
	if _, err := c.Ledger.Append(t.Context(), head, base, next, ledger.Change{Who: "who dies"}); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		web, _ := s.get("lb1").cur.VIP("web")
		return !slices.ContainsFunc(web.Slots, func(slot controller.Slot) bool { return slot.Server == "s3" })
	}
	s.eventually(t, "it is finished, and the slot is free", gone)
	stops[map[string]int{"c1": 0, "c2": 1}[first]]()
	s.eventually(t, "the other leads", func() bool { now := leads(); return now != "" && now != first })
	if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil {
		t.Error(err)
	}
	stops[map[string]int{"c1": 1, "c2": 0}[first]]()
	if s.bad() != nil {
		t.Error(s.bad())
	}
}

// TestFirstForAll: the first version is not done before daemons that wait for it
// have it.
func TestFirstForAll(t *testing.T) {
	s := newFleet(t, twoOfEach).empty()
	c, _ := s.linked()
	s.links["s2"].Cut(true)
	done := make(chan error, 1)
	go func() {
		_, err := c.Apply(t.Context(), s.text, Options{})
		done <- err
	}()
	s.eventually(t, "s1 has it", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.get("s1").cur != nil
	})
	select {
	case err := <-done:
		t.Errorf("it is done without s2: %v", err)
	default:
	}
	s.links["s2"].Cut(false)
	if err := <-done; err != nil || s.versions() != "s1=1 s2=1 lb1=1 lb2=1" {
		t.Errorf("%v %s", err, s.versions())
	}
}

// TestAhead: what daemons go by is not lost with a store that was put back from an older
// copy: it goes into the store before the next change.
func TestAhead(t *testing.T) {
	s := newFleet(t, twoOfEach)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s1 := s.get("s1")
	steps, _, err := controller.Change(s1.cur, controller.LiveCounts{}, time.Now(), true, op(controller.Drain, "s2"))
	if err != nil {
		t.Fatal(err)
	}
	s1.cur, s1.away = steps[0], errors.New("it is started again")
	s.mu.Unlock()
	s.heard("s1")
	s.away("s1", nil)
	s.heard("s1")
	weight := op(controller.Weight, "s1")
	weight.Weight = 5
	ch, err := c.Do(t.Context(), Options{}, weight)
	if err != nil || ch.To != 3 || s.versions() != "s1=3 s2=3 lb1=3 lb2=3" || s.bad() != nil {
		t.Fatalf("%+v %v %s %v", ch, err, s.versions(), s.bad())
	}
	web, _ := s1.cur.VIP("web")
	if web.Slots[0].Weight != 5 || web.Slots[1].State != controller.Draining {
		t.Errorf("%+v", web.Slots)
	}
}

// TestMissedBase: a daemon that may not miss the version whose turn stopped half way
// is waited for when the change is run again, or let go by name.
func TestMissedBase(t *testing.T) {
	s := newFleet(t, twoOfEach)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	s.load(t, strings.Replace(twoOfEach, "policy: wrr,", "policy: wrr, forwarding: gue,", 1))
	s.links["s1"].Cut(true)
	s.mu.Lock()
	s.get("s1").away = errors.New("stopped")
	base := s.get("s2").cur
	s.mu.Unlock()
	head, err := c.Ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := config.Shared(s.text)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := controller.Plan(s.cfg, base, controller.LiveCounts{}, time.Now(), false)
	if err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	if _, err := c.Ledger.Append(t.Context(), head, base, steps[0], ledger.Change{Who: "who was stopped", Text: text}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), s.text, Options{}); err == nil || !strings.Contains(err.Error(), "s1 does not answer") {
		t.Errorf("run again: %v", err)
	}
	if got := s.versions(); !strings.Contains(got, "lb1=1 lb2=1") {
		t.Errorf("balancers went on: %s", got)
	}
	if ch, err := c.Apply(t.Context(), s.text, Options{Without: []string{"s1"}}); err != nil || ch.To != 2 {
		t.Errorf("without s1: %+v %v", ch, err)
	}
}
