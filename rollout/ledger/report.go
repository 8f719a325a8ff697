package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/store"
)

// Report is what a living daemon says of itself.
type Report struct {
	Kind int `json:"kind"` // rollout.Kind
	// Version and Digest (hex) are of what its packets go by.
	Version uint64 `json:"version"`
	Digest  string `json:"digest"`
	// Refused is the version that it could not put in force, 0: none, and Error why.
	Refused uint64 `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
	// Tries counts how often it could not, so that a refusal is told from the one
	// before.
	Tries uint64 `json:"tries,omitempty"`
}

// Say keeps the daemon's report for as long as its lease lives.
func (l *Ledger) Say(ctx context.Context, lease store.Lease, name string, r Report) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = l.store.Commit(ctx, nil, store.Op{Key: daemonsKey + name, Value: value, Lease: lease})
	return err
}

// Await watches what living daemons say until done says that it has seen enough, or
// ctx ends, whose error it returns.
func (l *Ledger) Await(ctx context.Context, done func(map[string]Report) bool) error {
	entries, rev, err := l.store.Read(ctx, daemonsKey)
	if err != nil {
		return err
	}
	said := map[string]Report{}
	take := func(e store.Entry, gone bool) error {
		name := strings.TrimPrefix(e.Key, daemonsKey)
		delete(said, name)
		if gone {
			return nil
		}
		var r Report
		if err := json.Unmarshal(e.Value, &r); err != nil {
			return fmt.Errorf("%w: %s: %v", ErrDamaged, e.Key, err)
		}
		said[name] = r
		return nil
	}
	for _, e := range entries {
		if err := take(e, false); err != nil {
			return err
		}
	}
	if done(said) {
		return nil
	}
	for events, err := range l.store.Watch(ctx, daemonsKey, rev) {
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := take(e.Entry, e.Deleted); err != nil {
				return err
			}
		}
		if done(said) {
			return nil
		}
	}
	return ctx.Err()
}
