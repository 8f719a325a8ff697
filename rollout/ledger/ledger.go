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
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/store"
)

const (
	headKey     = "head"
	recordsKey  = "records/"
	versionsKey = "versions/"
	desiredKey  = "desired/"
	epochKey    = "epoch"

	// ReportsKey and ClockKey are what daemons write: the first of many, each its own, and
	// the second once for all. Everything else is for controllers alone.
	ReportsKey = "daemons/"
	ClockKey   = "clock"

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
	// Form of the content; 0, of builds before: the assignment's text.
	Form int `json:"form,omitempty"`
}

// formDelta: the content is what controller.Delta gives.
const formDelta = 1

// Change is what Append is told of a version beside what it is.
type Change struct {
	Who  string
	What []string
	// Text is the desired state from this version on; nil: as before.
	Text []byte
	// Turn is how many kinds of daemons go by it at once; where they are several the
	// head is open.
	Turn int
	// Left: more are to come until the text is in force.
	Left bool
}

// Ledger reads and writes. Safe for use by several goroutines.
type Ledger struct {
	store store.Store
	seal  *seal

	mu    sync.Mutex
	known known
}

// known is the assignment that was read or written last, with its digest, and the text:
// they are asked for again when the next ones come.
type known struct {
	a      *controller.Assignment
	digest string
	// text is the desired state that was read or written last, and is its name.
	is   Desired
	text []byte
}

// Digest is a's in hex: at no cost that of the one that was read or written last. Nobody
// changes an assignment that he gave to the ledger, or has from it.
func (l *Ledger) Digest(a *controller.Assignment) string {
	l.mu.Lock()
	was := l.known
	l.mu.Unlock()
	if was.a == a {
		return was.digest
	}
	sum := a.Digest()
	return l.knows(a, hex.EncodeToString(sum[:]))
}

func (l *Ledger) knows(a *controller.Assignment, digest string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.a, l.known.digest = a, digest
	return digest
}

// New is the ledger of the deployment with this secret, of 32 bytes; nil: it has none.
func New(s store.Store, secret []byte) (*Ledger, error) {
	seal, err := newSeal(secret)
	if err != nil {
		return nil, err
	}
	return &Ledger{store: s, seal: seal}, nil
}

// versionKey is a version's number in a key: ascending as text.
func versionKey(v uint64) string { return fmt.Sprintf("%020d", v) }

// Append makes a the version after head, which was read before; ErrConflict: somebody
// else came first. before is head's own assignment, nil where head has none. Nobody
// else goes by it before Turn says so. A text becomes the desired state with it, at once.
func (l *Ledger) Append(ctx context.Context, head Head, before, a *controller.Assignment, c Change) (Head, error) {
	what := c.What
	if most := 200; len(what) > most { // the record is one value of the store
		what = append(what[:most:most], fmt.Sprintf("and %d more", len(what)-most))
	}
	token := make([]byte, 8)
	rand.Read(token)
	r := Record{Version: a.Version, At: time.Now().UTC(), Who: c.Who, What: what, Digest: l.Digest(a), Token: hex.EncodeToString(token), Desired: head.Desired, Form: formDelta}
	if before != nil && a.Version%snapshotEvery != 0 {
		r.Base = before.Version
	} else {
		before = nil
	}
	content, err := controller.Delta(before, a)
	if err != nil {
		return head, fmt.Errorf("version %d: %w", a.Version, err)
	}
	data, err := l.seal.close(content, dictionary(before), r.name())
	if err != nil {
		return head, err
	}
	sealedContent := data
	var ops []store.Op
	put := func(data []byte, key func(int) string) (parts int, err error) {
		if len(data) > partSize {
			return l.write(ctx, data, key)
		}
		// With the head, or the store would be waited for once more.
		ops = append(ops, store.Op{Key: key(0), Value: data})
		return 1, nil
	}
	if r.Parts, err = put(data, r.part); err != nil {
		return head, fmt.Errorf("write version %d: %w", a.Version, err)
	}
	if c.Text != nil {
		r.Desired = Desired{Version: a.Version, Token: r.Token}
		if data, err = l.seal.close(c.Text, nil, r.Desired.name()); err == nil {
			r.Desired.Parts, err = put(data, r.Desired.part)
		}
		if err != nil {
			return head, fmt.Errorf("write the configuration of version %d: %w", a.Version, err)
		}
	}
	next := Head{Deployment: l.seal.deployment, Version: a.Version, Prior: head.Version, Desired: r.Desired, Turn: c.Turn, Open: c.Turn > 1, Left: c.Left}
	record, err := json.Marshal(r)
	if err != nil {
		return head, err
	}
	ops = append(ops, store.Op{Key: recordsKey + versionKey(a.Version), Value: record})
	if len(record)+len(sealedContent) <= newestSize {
		next.Newest = &Newest{r, sealedContent}
	}
	if a.Version > Kept && (head.Version <= Kept || (a.Version-Kept)/snapshotEvery > (head.Version-Kept)/snapshotEvery) {
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
	if err == nil && c.Text != nil {
		l.mu.Lock()
		l.known.is, l.known.text = r.Desired, c.Text
		l.mu.Unlock()
	}
	if err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil { // it was not done
		_, _ = l.store.Commit(ctx, nil,
			store.Op{Key: versionsKey + versionKey(a.Version) + "/" + r.Token + "/", Prefix: true, Delete: true},
			store.Op{Key: desiredKey + versionKey(a.Version) + "/" + r.Token + "/", Prefix: true, Delete: true})
	}
	return made, err
}

// partsAtOnce are under way at the same time: a large version has dozens, and each
// takes the store's disks a while.
const partsAtOnce = 4

// write puts data into the store in parts, each under its key, and counts them.
func (l *Ledger) write(ctx context.Context, data []byte, key func(int) string) (parts int, err error) {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(partsAtOnce)
	for at := 0; at < len(data); at += partSize {
		op := store.Op{Key: key(parts), Value: data[at:min(at+partSize, len(data))]}
		all.Go(func() error {
			_, err := l.store.Commit(ctx, nil, op)
			return err
		})
		parts++
	}
	return parts, all.Wait()
}

// name binds a version's content to its place, so that no part passes for another's.
func (r *Record) name() string {
	name := fmt.Sprintf("%d/%s/%d", r.Version, r.Token, r.Base)
	if r.Form != 0 {
		name += fmt.Sprintf("/%d", r.Form)
	}
	return name
}

func (r *Record) part(n int) string {
	return fmt.Sprintf("%s%s/%s/%04d", versionsKey, versionKey(r.Version), r.Token, n)
}

// Read is a version. have, if not nil, is one that the caller has, from which
// deltas may lead there.
func (l *Ledger) Read(ctx context.Context, version uint64, have *controller.Assignment) (*controller.Assignment, error) {
	var way []Record
	for v := version; ; {
		r, err := l.record(ctx, v)
		if err != nil {
			return nil, err
		}
		if have != nil && have.Version == v && l.is(have, &r) {
			break
		}
		way = append(way, r)
		if r.Base == 0 {
			have = nil
			break
		}
		if r.Base >= v || len(way) > Kept {
			return nil, fmt.Errorf("%w: record %d", ErrDamaged, v)
		}
		v = r.Base
	}
	a := have
	for i := len(way) - 1; i >= 0; i-- {
		next, err := l.content(ctx, &way[i], a)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", way[i].Version, err)
		}
		if a = next; a.Version != way[i].Version || !l.is(a, &way[i]) {
			return nil, fmt.Errorf("%w: version %d is not what its record says", ErrDamaged, way[i].Version)
		}
	}
	return a, nil
}

// content is what stands under r, which is a delta on base.
func (l *Ledger) content(ctx context.Context, r *Record, base *controller.Assignment) (*controller.Assignment, error) {
	data, err := l.parts(ctx, r.Parts, r.part)
	if err != nil {
		return nil, err
	}
	return l.unpack(r, base, data)
}

// unpack is content's, of what was read.
func (l *Ledger) unpack(r *Record, base *controller.Assignment, data []byte) (_ *controller.Assignment, err error) {
	switch r.Form {
	case 0:
		var text []byte
		if base != nil {
			text = base.Encode()
		}
		if data, err = l.seal.open(data, text, r.name()); err != nil {
			return nil, err
		}
		return controller.Decode(data)
	case formDelta:
		if data, err = l.seal.open(data, dictionary(base), r.name()); err != nil {
			return nil, err
		}
		return controller.Patch(base, data)
	}
	return nil, fmt.Errorf("it was written by a later build (form %d); start one that knows it", r.Form)
}

// is: a is what r says. Records of builds before may have the text's digest where this
// one takes another.
func (l *Ledger) is(a *controller.Assignment, r *Record) bool {
	if l.Digest(a) == r.Digest {
		return true
	}
	if r.Form != 0 {
		return false
	}
	sum := a.TextDigest()
	return hex.EncodeToString(sum[:]) == r.Digest
}

// dictionary is what a delta on base is compressed against, nil: nothing.
func dictionary(base *controller.Assignment) []byte {
	if base == nil {
		return nil
	}
	return base.Frame()
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
func (l *Ledger) parts(ctx context.Context, count int, key func(int) string) ([]byte, error) {
	if count < 0 || count > maxContent/partSize {
		return nil, fmt.Errorf("%w: content of %d parts", ErrDamaged, count)
	}
	read := make([][]byte, count)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(partsAtOnce)
	for n := range read {
		all.Go(func() error {
			entries, _, err := l.store.Read(ctx, key(n))
			if err == nil && len(entries) != 1 {
				err = fmt.Errorf("%w: part %d of %d is not there", ErrForgotten, n+1, count)
			}
			if err == nil {
				read[n] = entries[0].Value
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return bytes.Join(read, nil), nil
}

// History is what was done, the oldest first, from the version first to last; those that
// are forgotten are left out. A record that cannot be read says so in its place (What).
func (l *Ledger) History(ctx context.Context, first, last uint64) (all []Record, err error) {
	for v := first; v <= last; {
		// The store reads what begins alike: all digits of v but its last zeros, as far
		// as these versions reach, so that a thousand are some forty reads.
		digits, size := len(versionKey(v)), uint64(1)
		for v%(10*size) == 0 && last-v >= 10*size-1 && digits > 1 {
			digits, size = digits-1, 10*size
		}
		entries, _, err := l.store.Read(ctx, recordsKey+versionKey(v)[:digits])
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var r Record
			if err := json.Unmarshal(e.Value, &r); err != nil || e.Key != recordsKey+versionKey(r.Version) {
				r = damagedRecord(e.Key, err)
			}
			all = append(all, r)
		}
		v += size
	}
	return all, nil
}

// damagedRecord stands for the record at key, which cannot be read: the others of a
// history can.
func damagedRecord(key string, why error) (r Record) {
	if why == nil {
		why = errors.New("it is another version's")
	}
	r.At = time.Unix(0, 0).UTC()                                                  // nobody knows
	r.Version, _ = strconv.ParseUint(strings.TrimPrefix(key, recordsKey), 10, 64) // 0: nor is it a version's key
	r.What = []string{fmt.Sprintf("%v: %s: %v", ErrDamaged, key, why)}
	return r
}
