package ledger

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/store"
)

// Desired names a text in the store: the desired state that a version was planned from
// (a fairlead.yaml). Versions that do not change it name the same one. It is kept for
// as long as a version that names it.
type Desired struct {
	// Version is the one that the text came with; 0: there is none.
	Version uint64 `json:"version"`
	Token   string `json:"token"` // of its parts
	Parts   int    `json:"parts"`
}

// name binds a text to its place, so that none passes for another, nor for a version.
func (d Desired) name() string { return fmt.Sprintf("desired/%d/%s", d.Version, d.Token) }

func (d Desired) part(n int) string {
	return fmt.Sprintf("%s%s/%s/%04d", desiredKey, versionKey(d.Version), d.Token, n)
}

// Text is the text that d names, nil where there is none. Nobody changes it.
func (l *Ledger) Text(ctx context.Context, d Desired) ([]byte, error) {
	if d.Version == 0 {
		return nil, nil
	}
	l.mu.Lock()
	is, text := l.known.is, l.known.text
	l.mu.Unlock()
	if is == d {
		return text, nil
	}
	data, err := l.parts(ctx, d.Parts, d.part)
	if err == nil {
		data, err = l.seal.open(data, nil, d.name())
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration of version %d: %w", d.Version, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.is, l.known.text = d, data
	return data, nil
}

// TextOf is the text that a version was planned from, nil where the store had none
// then.
func (l *Ledger) TextOf(ctx context.Context, version uint64) ([]byte, error) {
	r, err := l.record(ctx, version)
	if err != nil {
		return nil, err
	}
	return l.Text(ctx, r.Desired)
}

// unnamed takes away the texts that no version from old on names, with the versions
// just before it. Texts before those went with theirs.
func (l *Ledger) unnamed(ctx context.Context, old uint64) (ops []store.Op) {
	first := max(old, snapshotEvery) - snapshotEvery
	oldest, err := l.record(ctx, old)
	if err != nil {
		return nil // they stay: better too many than one too few
	}
	drop := func(v uint64) {
		if v > 0 && v < oldest.Desired.Version {
			ops = append(ops, store.Op{Key: desiredKey + versionKey(v) + "/", Prefix: true, Delete: true})
		}
	}
	if r, err := l.record(ctx, first); err == nil && r.Desired.Version < first {
		drop(r.Desired.Version)
	}
	for v := first; v < old; v++ {
		drop(v)
	}
	return ops
}
