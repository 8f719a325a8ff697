package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

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
	// Waits: it has nothing to go by and does not know what it is, as the desired
	// state does not name it yet, or (Error) cannot be used there.
	Waits bool `json:"waits,omitempty"`
	// Ahead is the version of the text that it goes by, where that is not the store's and
	// no older: the store was begun anew or put back from an older copy. 0: it is the
	// store's, or the store's is newer.
	Ahead uint64 `json:"ahead,omitempty"`
}

// UnmarshalJSON leaves out of the error what a terminal would obey: a report is anybody's who
// has a machine's certificate, and comes before people's eyes.
func (r *Report) UnmarshalJSON(data []byte) error {
	type plain Report
	if err := json.Unmarshal(data, (*plain)(r)); err != nil {
		return err
	}
	r.Error = strings.Map(func(c rune) rune {
		if hidden(c) && c != '\n' {
			return ' '
		}
		return c
	}, r.Error)
	return nil
}

func hidden(c rune) bool { return !unicode.IsPrint(c) }

// Say keeps the daemon's report for as long as its lease lives; rev is the store's
// revision that has it.
func (l *Ledger) Say(ctx context.Context, lease store.Lease, name string, r Report) (rev int64, err error) {
	value, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	return l.store.Commit(ctx, nil, store.Op{Key: ReportsKey + name, Value: value, Lease: lease})
}

// Heard gives the revisions after rev in which the daemon's report was written, by
// whomever, or deleted, until ctx ends, which is no error.
func (l *Ledger) Heard(ctx context.Context, name string, rev int64) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for events, err := range l.store.Watch(ctx, ReportsKey+name, rev) {
			if err != nil {
				yield(0, err)
				return
			}
			for _, e := range events {
				if e.Key == ReportsKey+name && !yield(e.Rev, nil) {
					return
				}
			}
		}
	}
}

// Reports are what living daemons say now.
func (l *Ledger) Reports(ctx context.Context) (all map[string]Report, err error) {
	err = l.Await(ctx, func(said map[string]Report) bool {
		all = said
		return true
	})
	return all, err
}

// Await watches what living daemons say until done says that it has seen enough, or
// ctx ends, whose error it returns. A report that cannot be read, or whose name cannot be
// printed, is none.
func (l *Ledger) Await(ctx context.Context, done func(map[string]Report) bool) error {
	return await(ctx, l.store, ReportsKey, done)
}

// await watches what is said below prefix, by name. What cannot be read is none.
func await[T any](ctx context.Context, s store.Store, prefix string, done func(map[string]T) bool) error {
	for {
		enough, err := awaitOnce(ctx, s, prefix, done)
		if enough || err != nil && !errors.Is(err, store.ErrCompacted) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func awaitOnce[T any](ctx context.Context, s store.Store, prefix string, done func(map[string]T) bool) (enough bool, err error) {
	entries, rev, err := s.Read(ctx, prefix)
	if err != nil {
		return false, err
	}
	said := map[string]T{}
	take := func(e store.Entry, gone bool) {
		name := strings.TrimPrefix(e.Key, prefix)
		delete(said, name)
		var v T
		if !gone && utf8.ValidString(name) && !strings.ContainsFunc(name, hidden) && json.Unmarshal(e.Value, &v) == nil {
			said[name] = v
		}
	}
	for _, e := range entries {
		take(e, false)
	}
	if done(said) {
		return true, nil
	}
	for events, err := range s.Watch(ctx, prefix, rev) {
		if err != nil {
			return false, err
		}
		for _, e := range events {
			take(e.Entry, e.Deleted)
		}
		if done(said) {
			return true, nil
		}
	}
	return false, ctx.Err()
}
