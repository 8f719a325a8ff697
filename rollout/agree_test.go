package rollout

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// stored is a fleet whose daemons follow a store, each over a link that can be cut.
type stored struct {
	*fleet
	memory *store.Memory
	links  map[string]*store.MemoryClient
	stop   func()
}

// newStored starts the fleet's daemons. empty: they have nothing yet.
func newStored(t testing.TB, f *fleet, empty bool) *stored {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	s := &stored{fleet: f, memory: store.NewMemory(), links: map[string]*store.MemoryClient{}}
	s.stop = func() { cancel(); wg.Wait() }
	for _, d := range f.daemons {
		if empty {
			d.cur, d.away = nil, errNothing
		}
		link := s.memory.Client()
		s.links[d.name] = link
		wg.Go(func() {
			for ctx.Err() == nil {
				d.follow(ctx, link, s.ledger(t, link))
			}
			_ = link.Close()
		})
	}
	return s
}

// errNothing is what a daemon answers that waits for its first version.
var errNothing = connect.NewWireError(connect.CodeUnavailable, errors.New("the daemon is "+Waiting))

func (s *stored) ledger(t testing.TB, link store.Store) *ledger.Ledger {
	l, err := ledger.New(link, s.cfg.SecretBytes())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// coordinator works over a link of its own.
func (s *stored) coordinator(t testing.TB) (*Coordinator, *store.MemoryClient) {
	link := s.memory.Client()
	c := s.fleet.coordinator()
	c.Ledger, c.Who = s.ledger(t, link), "a test"
	return c, link
}

func (d *fake) kind() Kind {
	switch {
	case strings.HasPrefix(d.name, "lb"):
		return Balancer
	case strings.HasPrefix(d.name, "sw"):
		return Switch
	}
	return Host
}

// follow goes by the store as daemon/member does, until its link fails.
func (d *fake) follow(ctx context.Context, link store.Store, l *ledger.Ledger) {
	lease, err := link.Grant(ctx, 100*time.Millisecond)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-lease.Done():
		case <-ctx.Done():
		}
	}()
	for head, err := range l.Heads(ctx) {
		if err != nil {
			return
		}
		r := ledger.Report{Kind: int(d.kind())}
		if err := d.take(ctx, l, head.Of(r.Kind)); err != nil {
			d.tries++
			r.Refused, r.Error, r.Tries = head.Of(r.Kind), err.Error(), d.tries
		}
		d.fleet.mu.Lock()
		if d.cur != nil {
			sum := d.cur.Digest()
			r.Version, r.Digest = d.cur.Version, hex.EncodeToString(sum[:])
		}
		d.fleet.mu.Unlock()
		if l.Say(ctx, lease, d.name, r) != nil || r.Refused > 0 {
			time.Sleep(time.Millisecond) // and try again
			return
		}
	}
}

func (d *fake) take(ctx context.Context, l *ledger.Ledger, version uint64) error {
	f := d.fleet
	f.mu.Lock()
	have := d.cur
	f.mu.Unlock()
	if version == 0 || have != nil && have.Version >= version {
		return nil
	}
	next, err := l.Read(ctx, version, have)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(version, false); err != nil {
			return err
		}
	}
	for _, o := range f.daemons {
		if s := []byte(`"server": "` + o.name + `"`); o.cur == nil || o.name[0] == 's' && !bytes.Contains(o.cur.Encode(), s) && !bytes.Contains(next.Encode(), s) {
			continue
		}
		mixable := controller.Mixable
		if o.kind() == Host && o.cur.Version+1 < version { // cut off, as may be
			mixable = func(a, b *controller.Assignment) error { return controller.HostMayLag(a, b, o.name) }
		}
		if err := mixable(o.cur, next); err != nil && f.wrong == nil && !f.forced {
			f.wrong = fmt.Errorf("%s gets version %d while %s has %d: %w", d.name, version, o.name, o.cur.Version, err)
		}
	}
	if have != nil {
		if err := controller.Accept(have, next, have.Version, version != have.Version+1); err != nil {
			return err
		}
	}
	if d.cur, d.away = next, nil; d.fail != nil {
		_ = d.fail(version, true)
	}
	f.order = append(f.order, fmt.Sprintf("%s %d", d.name, version))
	return nil
}

func (s *stored) eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never; %s", what, s.versions())
		}
	}
}

// TestAgreed: what daemons had before becomes the store's first version, a change
// follows it, agents before balancers, and the history says who did what.
func TestAgreed(t *testing.T) {
	s := newStored(t, newFleet(t, three), false)
	defer s.stop()
	c, _ := s.coordinator(t)
	ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
	if err != nil || ch.From != 1 || ch.To != 2 || s.wrong != nil || s.versions() != "s1=2 s2=2 s3=2 lb1=2 lb2=2" {
		t.Fatalf("%+v %v %v %s", ch, err, s.wrong, s.versions())
	}
	if i := slices.IndexFunc(s.order, func(o string) bool { return strings.HasPrefix(o, "lb") }); i != 3 {
		t.Errorf("balancers did not come after agents: %q", s.order)
	}
	records, err := c.Ledger.History(t.Context(), 0)
	if err != nil || len(records) != 2 || records[1].Who != "a test" || len(records[1].What) != 1 || !strings.Contains(records[1].What[0], "s1") {
		t.Errorf("%+v %v", records, err)
	}
	if ch, err = c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil || ch.To != 2 {
		t.Errorf("the same again: %+v %v", ch, err)
	}
}

// TestParted: two halves that cannot reach each other, of which one has the store.
// What the other would change is refused, what this one changes is not lost, and
// when they meet again all have one history.
func TestParted(t *testing.T) {
	s := newStored(t, newFleet(t, twoOfEach), false)
	defer s.stop()
	c, _ := s.coordinator(t)
	if _, err := c.Apply(t.Context(), Options{}); err != nil {
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
	minority, link := s.coordinator(t)
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
	s := newStored(t, newFleet(t, twoOfEach), true)
	defer s.stop()
	c, _ := s.coordinator(t)
	if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err == nil || !strings.Contains(err.Error(), "begin with `fairlead apply`") {
		t.Errorf("a verb: %v", err)
	}
	s.mu.Lock()
	s.get("s2").away = errors.New("connection refused")
	s.mu.Unlock()
	if _, err := c.Apply(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "the store is empty, and s2 does not answer") {
		t.Errorf("a silent daemon: %v", err)
	}
	s.mu.Lock()
	s.get("s2").away = errNothing
	s.mu.Unlock()
	ch, err := c.Apply(t.Context(), Options{})
	if err != nil || ch.To != 1 || s.versions() != "s1=1 s2=1 lb1=1 lb2=1" {
		t.Errorf("%+v %v", ch, err)
	}
}

// TestRefusedVersion: a daemon that cannot put a version in force stops the series
// there, by name and at once; it goes on when that is put right.
func TestRefusedVersion(t *testing.T) {
	s := newStored(t, newFleet(t, three), false)
	defer s.stop()
	c, _ := s.coordinator(t)
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
	if ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s2")); err != nil || ch.To != 3 || s.wrong != nil {
		t.Errorf("%+v %v %v", ch, err, s.wrong)
	}
}

// TestTwoAtOnceStored: of changes at the same time each is done or refused.
func TestTwoAtOnceStored(t *testing.T) {
	s := newStored(t, newFleet(t, three), false)
	defer s.stop()
	var wg sync.WaitGroup
	for _, name := range []string{"s1", "s2", "s3"} {
		wg.Go(func() {
			c, _ := s.coordinator(t)
			for {
				_, err := c.Do(context.Background(), Options{}, op(controller.Drain, name))
				if err == nil {
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
	c, _ := s.coordinator(t)
	head, err := c.Ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Ledger.Read(t.Context(), head.Version, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := a.VIP("web")
	if slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.State != controller.Draining }) || s.wrong != nil {
		t.Errorf("%+v %v", v.Slots, s.wrong)
	}
}

// TestNothingIsLost: whatever links fail and whatever daemons refuse, versions that
// daemons have mix, none goes back, what was acknowledged is in the history, and
// when nothing fails any more all have one version.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStored(t, newFleet(t, three), false)
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
		c, link := s.coordinator(t)
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
		records, err := c.Ledger.History(t.Context(), 0)
		if err != nil || uint64(len(records)) != head.Version {
			rt.Fatalf("%d records of %d versions: %v", len(records), head.Version, err)
		}
	})
}

func (s *stored) bad() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// TestLead: of two controllers one leads, and finishes what an operator left half
// done, and slots whose rest is over; when it is gone the other does.
func TestLead(t *testing.T) {
	s := newStored(t, newFleet(t, three), false)
	defer s.stop()
	var stops []func()
	for _, name := range []string{"c1", "c2"} {
		c, link := s.coordinator(t)
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
	c, link := s.coordinator(t)
	if _, err := c.Apply(t.Context(), Options{}); err != nil {
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
	if _, err := c.Ledger.Append(t.Context(), head, base, next, "who dies", nil); err != nil {
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

// flaky is a store of which one commit fails, done or not.
type flaky struct {
	store.Store
	left int
	done bool
}

func (f *flaky) Commit(ctx context.Context, ifs []store.If, ops ...store.Op) (int64, error) {
	if f.left--; f.left != 0 {
		return f.Store.Commit(ctx, ifs, ops...)
	}
	if f.done {
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
		for _, done := range []bool{false, true} {
			s := newStored(t, newFleet(t, twoOfEach), false)
			c, link := s.coordinator(t)
			if _, err := c.Apply(t.Context(), Options{}); err != nil {
				t.Fatal(err)
			}
			c.Ledger = s.ledger(t, &flaky{link, n, done})
			_, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
			if err == nil {
				s.stop()
				if n < 5 {
					t.Errorf("a change of %d commits", n-1)
				}
				return
			}
			head, headErr := c.Ledger.Head(t.Context())
			if headErr != nil {
				t.Fatal(headErr)
			}
			text := err.Error()
			switch {
			case head.Version == 1 && !errors.Is(err, ErrNoStore):
				t.Errorf("commit %d, done %v: nothing was changed, and it says %s", n, done, text)
			case head.Version == 2 && !strings.Contains(text, "run it again"), head.Version == 2 && errors.Is(err, ErrNoStore):
				t.Errorf("commit %d, done %v: version 2 is agreed on, and it says %s", n, done, text)
			}
			if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil || s.versions() != "s1=2 s2=2 lb1=2 lb2=2" {
				t.Errorf("commit %d, done %v: again: %v %s", n, done, err, s.versions())
			}
			s.stop()
		}
	}
}

// TestFirstForAll: the first version is not done before daemons that wait for it
// have it.
func TestFirstForAll(t *testing.T) {
	s := newStored(t, newFleet(t, twoOfEach), true)
	defer s.stop()
	s.links["s2"].Cut(true)
	c, _ := s.coordinator(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.Apply(t.Context(), Options{})
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

// TestAhead: what was handed round while the deployment was half in the store is not
// lost: it goes into the store before the next change.
func TestAhead(t *testing.T) {
	s := newStored(t, newFleet(t, twoOfEach), false)
	defer s.stop()
	c, _ := s.coordinator(t)
	if _, err := c.Apply(t.Context(), Options{}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s1 := s.get("s1")
	steps, _, err := controller.Change(s1.cur, controller.LiveCounts{}, time.Now(), true, op(controller.Drain, "s2"))
	if err != nil {
		t.Fatal(err)
	}
	s1.cur = steps[0]
	s.mu.Unlock()
	ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
	if err != nil || ch.To != 3 || s.versions() != "s1=3 s2=3 lb1=3 lb2=3" || s.bad() != nil {
		t.Fatalf("%+v %v %s %v", ch, err, s.versions(), s.bad())
	}
	web, _ := s1.cur.VIP("web")
	if web.Slots[0].State != controller.Draining || web.Slots[1].State != controller.Draining {
		t.Errorf("%+v", web.Slots)
	}
}

// TestMissedBase: a daemon that may not miss the version whose turn stopped half way
// is waited for when the change is run again, or let go by name.
func TestMissedBase(t *testing.T) {
	s := newStored(t, newFleet(t, twoOfEach), false)
	defer s.stop()
	c, _ := s.coordinator(t)
	if _, err := c.Apply(t.Context(), Options{}); err != nil {
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
	steps, _, err := controller.Plan(s.cfg, base, controller.LiveCounts{}, time.Now(), false)
	if err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	if _, err := c.Ledger.Append(t.Context(), head, base, steps[0], "who was stopped", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "s1 does not answer") {
		t.Errorf("run again: %v", err)
	}
	if got := s.versions(); !strings.Contains(got, "lb1=1 lb2=1") {
		t.Errorf("balancers went on: %s", got)
	}
	if ch, err := c.Apply(t.Context(), Options{Without: []string{"s1"}}); err != nil || ch.To != 2 {
		t.Errorf("without s1: %+v %v", ch, err)
	}
}
