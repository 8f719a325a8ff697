package rollout

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// empty: the fleet's daemons have nothing yet, and wait.
func (f *fleet) empty() *fleet {
	for _, d := range f.daemons {
		d.cur, d.away = nil, errNothing
	}
	return f
}

// errNothing is what a daemon answers that waits for its first version.
var errNothing = connect.NewWireError(connect.CodeUnavailable, errors.New("the daemon is "+Waiting))

// gone: it reaches nobody.
func (d *fake) gone() bool {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	return d.away != nil && d.away != errNothing
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
	if d.gone() {
		time.Sleep(time.Millisecond)
		return
	}
	lease, err := link.Grant(ctx, 100*time.Millisecond)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = lease.Close(context.WithoutCancel(ctx)) }()
	go func() {
		defer cancel()
		for !d.gone() {
			select {
			case <-lease.Done():
				return
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	for head, err := range l.Heads(ctx) {
		if err != nil {
			return
		}
		r := ledger.Report{Kind: int(d.kind())}
		if err := d.take(ctx, l, head.Of(r.Kind)); err != nil && d.gone() {
			return
		} else if err != nil {
			d.tries++
			r.Refused, r.Error, r.Tries = head.Of(r.Kind), err.Error(), d.tries
		}
		if err := d.say(ctx, l, lease, r); err != nil || r.Refused > 0 {
			time.Sleep(time.Millisecond) // and try again
			return
		}
	}
}

// say says r of what d goes by, unless it is away: whoever saw that it is hears no more
// of it.
func (d *fake) say(ctx context.Context, l *ledger.Ledger, lease store.Lease, r ledger.Report) error {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if d.away != nil && d.away != errNothing {
		return d.away
	}
	if d.cur != nil {
		sum := d.cur.Digest()
		r.Version, r.Digest = d.cur.Version, hex.EncodeToString(sum[:])
	}
	_, err := l.Say(ctx, lease, d.name, r)
	return err
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
	if d.away != nil && d.away != errNothing {
		return d.away
	}
	if d.fail != nil {
		if err := d.fail(version, false); err != nil {
			return err
		}
	}
	for _, o := range f.daemons {
		if o.cur == nil || d.stranger(o.cur, next) || o.stranger(o.cur, next) {
			continue
		}
		older, newer, of := o.cur, next, o
		if older.Version > version {
			older, newer, of = next, o.cur, d
		}
		mixable := controller.Mixable
		if of.kind() == Host && older.Version+1 < newer.Version { // cut off, as may be
			mixable = func(a, b *controller.Assignment) error { return controller.HostMayLag(a, b, of.name) }
		}
		if err := mixable(older, newer); err != nil && f.wrong == nil && !f.forced {
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

// stranger: it is a server that neither names, so that no packet reaches it, and nobody
// waits for it.
func (d *fake) stranger(a, b *controller.Assignment) bool {
	s := []byte(`"server": "` + d.name + `"`)
	return d.kind() == Host && !bytes.Contains(a.Encode(), s) && !bytes.Contains(b.Encode(), s)
}

func (s *fleet) eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never; %s", what, s.versions())
		}
	}
}

func (s *fleet) bad() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}
