package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// retry is the pause before something is tried again that a store which is gone for
// a while refused.
const retry = 100 * time.Millisecond

// campaign is the election of all Stores: every candidate writes a key that goes with
// its lease, and who wrote the first of those that are there leads. (etcd's package
// concurrency does the same, but blocks after its context has ended while it cannot
// withdraw, and may win with a key whose lease has just ended.)
func campaign(ctx context.Context, s Store, election, candidate string, lease Lease) (Leadership, error) {
	if candidate == "" || lease == nil {
		return Leadership{}, fmt.Errorf("a candidate for %q needs a name and a lease", election)
	}
	ctx, cancel := during(ctx, lease)
	defer cancel()
	// The key is of this call alone, so that withdrawing it, late, cannot meet
	// another candidacy under the same lease.
	key := election + rand.Text()
	_, err := s.Commit(ctx, nil, Op{Key: key, Value: []byte(candidate), Lease: lease})
	var rev int64
	if err == nil {
		rev, err = first(ctx, s, election, key)
	}
	if err != nil {
		go withdraw(s, key, lease)
		if errors.Is(context.Cause(ctx), ErrLost) {
			err = fmt.Errorf("%w: it was to lead %q", ErrLost, election)
		}
		return Leadership{}, err
	}
	won := If{Key: key, Rev: rev}
	return Leadership{If: won, Resign: func(ctx context.Context) error {
		_, err := s.Commit(ctx, []If{won}, Op{Key: key, Delete: true})
		if errors.Is(err, ErrConflict) {
			return nil
		}
		return err
	}}, nil
}

// first waits until key is the oldest below election, and says since when it is there.
func first(ctx context.Context, s Store, election, key string) (int64, error) {
	for {
		entries, rev, err := s.Read(ctx, election)
		if errors.Is(err, ErrUnavailable) && pause(ctx) {
			continue // who waits has time
		}
		if err != nil {
			return 0, err
		}
		mine := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == key })
		if mine < 0 {
			return 0, ErrLost // its lease has ended
		}
		oldest := slices.MinFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Rev, b.Rev) })
		if oldest.Key == key {
			return oldest.Rev, nil
		}
		if err := deleted(ctx, s, election, rev); err != nil {
			return 0, err
		}
	}
}

// deleted waits until a key below prefix was deleted after rev, or what happened is
// forgotten.
func deleted(ctx context.Context, s Store, prefix string, rev int64) error {
	for events, err := range s.Watch(ctx, prefix, rev) {
		if errors.Is(err, ErrCompacted) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(events, func(e Event) bool { return e.Deleted }) {
			return nil
		}
	}
	return ctx.Err()
}

// withdraw deletes a candidate's key, or leaves it to its lease.
func withdraw(s Store, key string, lease Lease) {
	ctx, cancel := during(context.Background(), lease)
	defer cancel()
	for {
		_, err := s.Commit(ctx, nil, Op{Key: key, Delete: true})
		if err == nil || errors.Is(err, ErrClosed) || !pause(ctx) {
			return
		}
	}
}

// during is ctx while the lease lives; ErrLost is why it ends then.
func during(ctx context.Context, lease Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lease.Done():
			cancel(ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// pause waits a moment, and says whether ctx has not ended meanwhile.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(retry):
		return true
	case <-ctx.Done():
		return false
	}
}
