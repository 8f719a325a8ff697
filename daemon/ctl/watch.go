package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// What happened and happens: versions from the ledger's records, daemons from their
// reports, controllers from theirs and the election. A goroutine follows each, and the
// call sends what they see. Of each the newest alone waits for a caller who reads slowly:
// records have all versions, and reports count what was refused.

func (s service) WatchEvents(ctx context.Context, req *connect.Request[fairleadv1.WatchEventsRequest], stream *connect.ServerStream[fairleadv1.Event]) error {
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	head, err := s.ledger.Head(looking)
	if err != nil {
		return unread(err)
	}
	after := req.Msg.AfterVersion
	switch {
	case after > head.Version:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("after_version: %d: the newest version is %d", after, head.Version))
	case after == 0:
		after = head.Version - min(head.Version, usualHistory)
	case head.Version-after > mostHistory:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("after_version: %d: at most %d versions are told of at a time, and the newest is %d", after, mostHistory, head.Version))
	}
	w := &watcher{ctl: s.ctl, after: after}
	if err := w.agreed(looking, head.Version, stream.Send); err != nil {
		return unread(err)
	}
	reports, err := s.ledger.Reports(looking)
	if err != nil {
		return unread(err)
	}
	there, err := s.ledger.Controllers(looking)
	if err != nil {
		return unread(err)
	}
	leader, err := store.Leader(looking, s.store, rollout.Election)
	if err != nil {
		return unread(err)
	}
	first := slices.Concat(w.reported(head, reports), w.led(leader), w.warned(there))
	if err := send(first, stream.Send); err != nil || !req.Msg.Follow {
		return err
	}
	return w.follow(ctx, head, stream.Send)
}

// watcher is one call of WatchEvents.
type watcher struct {
	*ctl
	after   uint64 // the newest version that the caller was told of
	known   map[string]ledger.Report
	inForce uint64              // the newest version that the caller was told is in force
	leader  string              // who leads, as far as the caller was told
	warning map[string][]string // what controllers warned of, by name
}

func event(kind fairleadv1.Event_Kind, version uint64, daemon string, text ...string) *fairleadv1.Event {
	return &fairleadv1.Event{Kind: kind, AtUnixMs: time.Now().UnixMilli(), Version: version, Daemon: daemon, Text: text}
}

func send(events []*fairleadv1.Event, to func(*fairleadv1.Event) error) error {
	for _, e := range events {
		if err := to(e); err != nil {
			return err
		}
	}
	return nil
}

// agreed tells of versions up to one, after those that were told of.
func (w *watcher) agreed(ctx context.Context, version uint64, to func(*fairleadv1.Event) error) error {
	records, err := w.ledger.History(ctx, w.after+1, version)
	if err != nil {
		return err
	}
	for _, r := range records {
		e := &fairleadv1.Event{Kind: fairleadv1.Event_KIND_AGREED, AtUnixMs: r.At.UnixMilli(), Version: r.Version, Who: r.Who, Text: r.What}
		if err := to(e); err != nil {
			return err
		}
		w.after = r.Version
	}
	return nil
}

// reported is what differs in what daemons say since the last call.
func (w *watcher) reported(head ledger.Head, said map[string]ledger.Report) (events []*fairleadv1.Event) {
	for _, name := range slices.Sorted(maps.Keys(said)) {
		r, before := said[name], ledger.Report{}
		before, there := w.known[name]
		if !there {
			says := fmt.Sprintf("%s goes by version %d", name, r.Version)
			if r.Waits {
				says = unnamed(name, r)
			}
			events = append(events, event(fairleadv1.Event_KIND_DAEMON_CAME, r.Version, name, says))
		}
		switch {
		case there && r.Tries <= before.Tries:
		case r.Refused != 0:
			events = append(events, event(fairleadv1.Event_KIND_DAEMON_REFUSED, r.Refused, name, fmt.Sprintf("%s cannot put version %d in force: %s", name, r.Refused, r.Error)))
		case there:
			events = append(events, event(fairleadv1.Event_KIND_DAEMON_REFUSED, r.Version, name, fmt.Sprintf("%s could not put a version in force meanwhile, and goes by version %d now", name, r.Version)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		if _, there := said[name]; !there {
			events = append(events, event(fairleadv1.Event_KIND_DAEMON_WENT, 0, name, name+" does not reach the store any more, or was stopped"))
		}
	}
	w.known = said
	if inForce(head, said) && head.Version > w.inForce {
		w.inForce = head.Version
		events = append(events, event(fairleadv1.Event_KIND_IN_FORCE, head.Version, "", fmt.Sprintf("version %d is in force at %d daemons", head.Version, len(said))))
	}
	return events
}

// led tells of another leader. Between two, nobody leads for a moment: that is no news.
func (w *watcher) led(leader string) []*fairleadv1.Event {
	if leader == "" || leader == w.leader {
		return nil
	}
	w.leader = leader
	return []*fairleadv1.Event{event(fairleadv1.Event_KIND_LEADER, 0, leader, leader+" leads")}
}

// warned tells what controllers warn of that they did not before. One that is away for a
// moment warns of nothing new when it is back.
func (w *watcher) warned(there map[string]ledger.Controller) (events []*fairleadv1.Event) {
	now := maps.Clone(w.warning)
	if now == nil {
		now = map[string][]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		now[name] = there[name].Warnings
		for _, text := range now[name] {
			if !slices.Contains(w.warning[name], text) {
				events = append(events, event(fairleadv1.Event_KIND_CONTROLLER_WARNED, 0, name, fmt.Sprintf("%s warns: %s", name, text)))
			}
		}
	}
	w.warning = now
	return events
}

// leaders gives who leads, whenever candidates come or go, until ctx ends.
func (c *ctl) leaders(ctx context.Context, to func(string) bool) error {
	for ctx.Err() == nil {
		_, rev, err := c.store.Read(ctx, rollout.Election)
		if err != nil {
			return err
		}
		tell := func() (bool, error) {
			leader, err := store.Leader(ctx, c.store, rollout.Election)
			return err == nil && to(leader), err
		}
		if on, err := tell(); !on {
			return err
		}
		for _, err := range c.store.Watch(ctx, rollout.Election, rev) {
			if errors.Is(err, store.ErrCompacted) {
				break // and begin anew
			}
			if err != nil {
				return err
			}
			if on, err := tell(); !on {
				return err
			}
		}
	}
	return nil
}

// follow tells of what happens until ctx ends.
func (w *watcher) follow(ctx context.Context, head ledger.Head, to func(*fairleadv1.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.stopping, cancel)
	defer stop()
	heads, reports := make(chan ledger.Head, 1), make(chan map[string]ledger.Report, 1)
	leads, controllers := make(chan string, 1), make(chan map[string]ledger.Controller, 1)
	failed := make(chan error, 4)
	go func() {
		failed <- w.leaders(ctx, func(leader string) bool {
			renew(leads, leader)
			return true
		})
	}()
	go func() {
		failed <- w.ledger.AwaitControllers(ctx, func(there map[string]ledger.Controller) bool {
			renew(controllers, maps.Clone(there))
			return false
		})
	}()
	go func() {
		for h, err := range w.ledger.Heads(ctx) {
			if err != nil {
				failed <- err
				return
			}
			renew(heads, h)
		}
	}()
	go func() {
		failed <- w.ledger.Await(ctx, func(said map[string]ledger.Report) bool {
			renew(reports, maps.Clone(said))
			return false
		})
	}()
	for {
		select {
		case <-ctx.Done():
			if w.stopping.Err() != nil {
				return connect.NewError(connect.CodeUnavailable, errors.New("the controller is stopping; watch at another"))
			}
			return nil
		case err := <-failed:
			if ctx.Err() == nil && err != nil {
				return unread(err)
			}
		case head = <-heads:
			if head.Version > w.after {
				if err := w.agreed(ctx, head.Version, to); err != nil {
					return unread(err)
				}
			}
			if err := send(w.reported(head, w.known), to); err != nil {
				return err
			}
		case leader := <-leads:
			if err := send(w.led(leader), to); err != nil {
				return err
			}
		case there := <-controllers:
			if err := send(w.warned(there), to); err != nil {
				return err
			}
		case said := <-reports:
			if err := send(w.reported(head, said), to); err != nil {
				return err
			}
		}
	}
}

// renew puts v into c, which has room for one, instead of what nobody has taken yet. It is
// called by one goroutine alone.
func renew[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}
