// Package ledger is what a deployment's store holds: the versions of the assignment,
// one after the other, the text that each was planned from, and which of them each
// daemon goes by.
//
//	head                       Head: the newest version, and whose turn it is
//	records/VERSION            Record: what it changed, who did that, its digest
//	versions/VERSION/TOKEN/N   its content in parts, sealed (seal.go)
//	desired/VERSION/TOKEN/N    the text that came with a version, the same way (desired.go)
//	daemons/NAME               Report, under the daemon's lease
//	epoch                      since when keys stamp (epoch.go)
//	clock                      Clock: the shared one, fixed once, sealed
//
// A version is agreed on when the head names it, by compare-and-swap on the head
// before: of two changes at once one is told that it comes too late, and where no
// majority of the store answers there is no change at all. Versions are written
// as deltas, and every snapshotEvery-th whole, for daemons that were away.
package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/store"
)

const (
	headKey     = "head"
	recordsKey  = "records/"
	versionsKey = "versions/"
	desiredKey  = "desired/"
	daemonsKey  = "daemons/"
	clockKey    = "clock"
	epochKey    = "epoch"

	// snapshotEvery bounds how many deltas a daemon replays.
	snapshotEvery = 16
	// Kept can be read, and rolled back to; records stay for longer.
	Kept        = 8 * snapshotEvery
	keptRecords = 10_000
	// partSize is what one part has at the most, in bytes: several fit into a
	// request of etcd's (1.5 MiB).
	partSize = 512 << 10
)

var (
	// ErrForeign: the store is another deployment's.
	ErrForeign = errors.New("the store holds another deployment's versions, or the file's secret was changed")
	// ErrDamaged: what the store has is not what was written.
	ErrDamaged = errors.New("a version in the store is damaged")
	// ErrForgotten: the version is too old.
	ErrForgotten = errors.New("the store no longer has this version")
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
	// Desired is the text that Version was planned from.
	Desired Desired `json:"desired,omitzero"`

	rev int64 // the store's, which wrote it
}

// Of is the version that daemons of a kind go by.
func (h Head) Of(kind int) uint64 {
	if kind < h.Turn {
		return h.Version
	}
	return h.Prior
}

// Record is what people are told of a version.
type Record struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	// Who made it, and what it changes in words.
	Who  string   `json:"who"`
	What []string `json:"what"`
	// Digest is the assignment's, in hex.
	Digest string `json:"digest"`

	Token string `json:"token"` // of its parts
	Parts int    `json:"parts"`
	// Base is the version that the content is a delta on, 0: it is whole.
	Base uint64 `json:"base,omitempty"`
	// Desired is the text that it was planned from.
	Desired Desired `json:"desired,omitzero"`
}

// Change is what Append is told of a version beside what it is.
type Change struct {
	Who  string
	What []string
	// Text is the desired state from this version on; nil: as before.
	Text []byte
}

// Ledger reads and writes. Safe for use by several goroutines.
type Ledger struct {
	store store.Store
	seal  *seal
}

// New is the ledger of the deployment with this secret, of 32 bytes; nil: it has none.
func New(s store.Store, secret []byte) (*Ledger, error) {
	seal, err := newSeal(secret)
	if err != nil {
		return nil, err
	}
	return &Ledger{s, seal}, nil
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

// versionKey is a version's number in a key: ascending as text.
func versionKey(v uint64) string { return fmt.Sprintf("%020d", v) }

// Append makes a the version after head, which was read before; ErrConflict: somebody
// else came first. before is head's own assignment, nil where head has none. Nobody
// goes by it before Turn says so. A text becomes the desired state with it, at once.
func (l *Ledger) Append(ctx context.Context, head Head, before, a *controller.Assignment, c Change) (Head, error) {
	what := c.What
	if most := 200; len(what) > most { // the record is one value of the store
		what = append(what[:most:most], fmt.Sprintf("and %d more", len(what)-most))
	}
	token := make([]byte, 8)
	rand.Read(token)
	digest := a.Digest()
	r := Record{Version: a.Version, At: time.Now().UTC(), Who: c.Who, What: what, Digest: hex.EncodeToString(digest[:]), Token: hex.EncodeToString(token), Desired: head.Desired}
	var base []byte
	if before != nil && a.Version%snapshotEvery != 0 {
		base, r.Base = before.Encode(), before.Version
	}
	data, err := l.seal.close(a.Encode(), base, r.name())
	if err != nil {
		return head, err
	}
	if r.Parts, err = l.write(ctx, data, r.part); err != nil {
		return head, fmt.Errorf("write version %d: %w", a.Version, err)
	}
	if c.Text != nil {
		r.Desired = Desired{Version: a.Version, Token: r.Token}
		if data, err = l.seal.close(c.Text, nil, r.Desired.name()); err == nil {
			r.Desired.Parts, err = l.write(ctx, data, r.Desired.part)
		}
		if err != nil {
			return head, fmt.Errorf("write the configuration of version %d: %w", a.Version, err)
		}
	}
	next := Head{Deployment: l.seal.deployment, Version: a.Version, Prior: head.Version, Desired: r.Desired}
	record, err := json.Marshal(r)
	if err != nil {
		return head, err
	}
	ops := []store.Op{{Key: recordsKey + versionKey(a.Version), Value: record}}
	if a.Version > Kept {
		// All that the oldest one that is kept hangs on stays: it is whole.
		old := (a.Version - Kept) / snapshotEvery * snapshotEvery
		for v := max(old, snapshotEvery) - snapshotEvery; v < old; v++ {
			ops = append(ops, store.Op{Key: versionsKey + versionKey(v) + "/", Prefix: true, Delete: true})
		}
		ops = append(ops, l.unnamed(ctx, old)...)
	}
	if a.Version > keptRecords {
		ops = append(ops, store.Op{Key: recordsKey + versionKey(a.Version-keptRecords), Delete: true})
	}
	made, err := l.move(ctx, head, next, ops...)
	if err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil { // it was not done
		_, _ = l.store.Commit(ctx, nil,
			store.Op{Key: versionsKey + versionKey(a.Version) + "/" + r.Token + "/", Prefix: true, Delete: true},
			store.Op{Key: desiredKey + versionKey(a.Version) + "/" + r.Token + "/", Prefix: true, Delete: true})
	}
	return made, err
}

// write puts data into the store in parts, each under its key, and counts them.
func (l *Ledger) write(ctx context.Context, data []byte, key func(int) string) (parts int, err error) {
	for at := 0; at < len(data); at += partSize {
		part := data[at:min(at+partSize, len(data))]
		if _, err := l.store.Commit(ctx, nil, store.Op{Key: key(parts), Value: part}); err != nil {
			return parts, err
		}
		parts++
	}
	return parts, nil
}

// Turn lets the first n kinds of daemons go by the head.
func (l *Ledger) Turn(ctx context.Context, head Head, n int) (Head, error) {
	next := head
	next.Turn = n
	return l.move(ctx, head, next)
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

// name binds a version's content to its place, so that no part passes for another's.
func (r *Record) name() string { return fmt.Sprintf("%d/%s/%d", r.Version, r.Token, r.Base) }

func (r *Record) part(n int) string {
	return fmt.Sprintf("%s%s/%s/%04d", versionsKey, versionKey(r.Version), r.Token, n)
}

// Read is a version. have, if not nil, is one that the caller has, from which
// deltas may lead there.
func (l *Ledger) Read(ctx context.Context, version uint64, have *controller.Assignment) (*controller.Assignment, error) {
	var way []Record
	var content []byte
	for v := version; ; {
		r, err := l.record(ctx, v)
		if err != nil {
			return nil, err
		}
		if have != nil && have.Version == v {
			if d := have.Digest(); hex.EncodeToString(d[:]) == r.Digest {
				content = have.Encode()
				break
			}
		}
		way = append(way, r)
		if r.Base == 0 {
			break
		}
		if r.Base >= v || len(way) > Kept {
			return nil, fmt.Errorf("%w: record %d", ErrDamaged, v)
		}
		v = r.Base
	}
	a := have
	for i := len(way) - 1; i >= 0; i-- {
		data, err := l.parts(ctx, way[i].Parts, way[i].part)
		if err == nil {
			content, err = l.seal.open(data, content, way[i].name())
		}
		if err == nil {
			a, err = controller.Decode(content)
		}
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", way[i].Version, err)
		}
		if d := a.Digest(); hex.EncodeToString(d[:]) != way[i].Digest || a.Version != way[i].Version {
			return nil, fmt.Errorf("%w: version %d is not what its record says", ErrDamaged, way[i].Version)
		}
	}
	return a, nil
}

func (l *Ledger) record(ctx context.Context, v uint64) (r Record, err error) {
	entries, _, err := l.store.Read(ctx, recordsKey+versionKey(v))
	switch {
	case err != nil:
		return r, err
	case len(entries) == 0:
		return r, fmt.Errorf("%w: %d", ErrForgotten, v)
	}
	if err := json.Unmarshal(entries[0].Value, &r); err != nil || r.Version != v {
		return r, fmt.Errorf("%w: record %d: %v", ErrDamaged, v, err)
	}
	return r, nil
}

// parts are read one by one: together they may be larger than an answer can be.
func (l *Ledger) parts(ctx context.Context, count int, key func(int) string) (data []byte, err error) {
	for n := range count {
		entries, _, err := l.store.Read(ctx, key(n))
		switch {
		case err != nil:
			return nil, err
		case len(entries) != 1:
			return nil, fmt.Errorf("%w: part %d of %d is not there", ErrForgotten, n+1, count)
		}
		data = append(data, entries[0].Value...)
	}
	return data, nil
}

// History is what was done, the oldest first, from the version first on.
func (l *Ledger) History(ctx context.Context, first uint64) (all []Record, err error) {
	entries, _, err := l.store.Read(ctx, recordsKey)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var r Record
		if err := json.Unmarshal(e.Value, &r); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrDamaged, e.Key, err)
		}
		if r.Version >= first {
			all = append(all, r)
		}
	}
	return all, nil
}
