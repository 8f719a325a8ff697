package rollout

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

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
	follow func(*fake) // the store, as a daemon that came later does
}

// newStored starts the fleet's daemons. empty: they have nothing yet.
func newStored(t testing.TB, f *fleet, empty bool) *stored {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	s := &stored{fleet: f, memory: store.NewMemory(), links: map[string]*store.MemoryClient{}}
	s.stop = func() { cancel(); wg.Wait() }
	s.follow = func(d *fake) {
		link := s.memory.Client()
		s.links[d.name] = link
		wg.Go(func() {
			for ctx.Err() == nil {
				d.follow(ctx, link, s.ledger(t, link))
			}
			_ = link.Close()
		})
	}
	for _, d := range f.daemons {
		if empty {
			d.cur, d.away = nil, errNothing
		}
		s.follow(d)
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

func (s *stored) bad() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}
