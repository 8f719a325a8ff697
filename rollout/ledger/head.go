package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/store"
)

// Head is the newest version.
type Head struct {
	// Deployment tells one from another, and nothing of its secret.
	Deployment string `json:"deployment"`
	// Version is 0 where there is none yet.
	Version uint64 `json:"version"`
	// Turn is how many kinds of daemons (rollout.Kind, in their order) go by
	// Version; those whose turn has not come go by the version before.
	Turn int `json:"turn"`
	// Prior is the version before, 0 if there is none.
	Prior uint64 `json:"prior"`
	// Open: kinds were given their turn, and not all of them are known to go by Version yet.
	Open bool `json:"open,omitempty"`
	// Desired is the text that Version was planned from.
	Desired Desired `json:"desired,omitzero"`
	// Left: Version is one of a series, and more are to come until Desired is in force.
	Left bool `json:"left,omitempty"`
	// Newest is Version once more where it is small, so that who is told of the head
	// need not ask for it.
	Newest *Newest `json:"newest,omitempty"`

	rev int64 // the store's, which wrote it
}

// Newest is a version with its record and content, which is sealed.
type Newest struct {
	Record  Record `json:"record"`
	Content []byte `json:"content"`
}

// newestSize bounds what the head has of a version, in bytes: everybody who watches it
// gets it at every turn.
const newestSize = 16 << 10

// Of is the version that daemons of a kind go by.
func (h Head) Of(kind int) uint64 {
	if kind < h.Turn {
		return h.Version
	}
	return h.Prior
}

// Head is the newest one that was agreed on.
func (l *Ledger) Head(ctx context.Context) (Head, error) {
	entries, _, err := l.store.Read(ctx, headKey)
	if err != nil || len(entries) == 0 {
		return Head{Deployment: l.seal.deployment}, err
	}
	return l.head(entries[0])
}

func (l *Ledger) head(e store.Entry) (h Head, err error) {
	if err := json.Unmarshal(e.Value, &h); err != nil {
		return Head{}, fmt.Errorf("%w: head: %v", ErrDamaged, err)
	}
	if h.Deployment != l.seal.deployment {
		return Head{}, ErrForeign
	}
	h.rev = e.Rev
	return h, nil
}

// Heads gives the head, and each that follows, until ctx ends. Some may be left out,
// never the newest. An error ends it; then it is begun anew.
func (l *Ledger) Heads(ctx context.Context) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		entries, rev, err := l.store.Read(ctx, headKey)
		h := Head{Deployment: l.seal.deployment}
		if err == nil && len(entries) > 0 {
			h, err = l.head(entries[0])
		}
		if !yield(h, err) || err != nil {
			return
		}
		for events, err := range l.store.Watch(ctx, headKey, rev) {
			if err != nil {
				yield(Head{}, err)
				return
			}
			for _, e := range events {
				if e.Deleted {
					continue // nobody does that; what is in force stays
				}
				if h, err = l.head(e.Entry); !yield(h, err) || err != nil {
					return
				}
			}
		}
	}
}

// Turn lets the first n kinds of daemons go by the head, when those whose turn it was
// are known to. Where n was the turn already it is open no more.
func (l *Ledger) Turn(ctx context.Context, head Head, n int) (Head, error) {
	next := head
	next.Turn, next.Open = n, n > head.Turn
	return l.move(ctx, head, next)
}

// Again writes the head once more as it is: what was appended to it and is still on its
// way comes too late then.
func (l *Ledger) Again(ctx context.Context, head Head) (Head, error) {
	return l.move(ctx, head, head)
}

// move replaces the head, and does ops, if it is still the one that was read.
func (l *Ledger) move(ctx context.Context, head, next Head, ops ...store.Op) (Head, error) {
	value, err := json.Marshal(next)
	if err != nil {
		return head, err
	}
	rev, err := l.store.Commit(ctx, []store.If{{Key: headKey, Rev: head.rev}}, append(ops, store.Op{Key: headKey, Value: value})...)
	if err != nil {
		return head, err
	}
	next.rev = rev
	return next, nil
}

// Of is the version that daemons of a kind go by at head: what head itself has of it, if
// that leads there from have, or else Read.
func (l *Ledger) Of(ctx context.Context, head Head, kind int, have *controller.Assignment) (*controller.Assignment, error) {
	version := head.Of(kind)
	if a := l.newest(head, version, have); a != nil {
		return a, nil
	}
	return l.Read(ctx, version, have)
}

// Newest is head's version, from have, or what this ledger knows, where one of them leads
// there.
func (l *Ledger) Newest(ctx context.Context, head Head, have *controller.Assignment) (*controller.Assignment, error) {
	l.mu.Lock()
	known := l.known.a
	l.mu.Unlock()
	for _, a := range []*controller.Assignment{known, have} {
		if a := l.newest(head, head.Version, a); a != nil {
			return a, nil
		}
	}
	if have == nil {
		have = known
	}
	return l.Read(ctx, head.Version, have)
}

// newest is version by head alone; nil: it does not lead there.
func (l *Ledger) newest(head Head, version uint64, have *controller.Assignment) *controller.Assignment {
	if head.Newest == nil || have == nil || head.Newest.Record.Version != version {
		return nil
	}
	r := &head.Newest.Record
	switch {
	case have.Version == version && l.is(have, r):
		return have
	case r.Base == 0 || have.Version != r.Base:
		return nil
	}
	a, err := l.unpack(r, have, head.Newest.Content)
	if err != nil || a.Version != version || !l.is(a, r) {
		return nil // have is another version of that number, it seems: Read tells
	}
	return a
}
