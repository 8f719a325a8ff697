package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
)

func leaseExpires(t *testing.T, open func() Client) {
	s, other := open(), open()
	kept := grant(t, other)
	lease := grant(t, s)
	commit(t, other, nil, store.Op{Key: "kept", Lease: kept})
	rev := commit(t, s, nil, store.Op{Key: "a", Lease: lease}, store.Op{Key: "b", Lease: lease}, put("c", ""))
	events := watching(during(t), other, "", rev)
	s.Cut(true)
	gone := time.Now()
	await(t, lease.Done(), "the lease to end here")
	// Its time began when it was last renewed, a quarter of it before at most.
	if after := time.Since(gone); after < ttl/2 {
		t.Errorf("it ended after %v", after)
	}
	if got := await(t, events, "the lease to end there"); !strings.HasSuffix(got.events, ": -a -b") {
		t.Fatalf("the end of a lease gives %v", got)
	}
	if after := time.Since(gone); after < ttl/2 {
		t.Errorf("it ended at the store after %v", after)
	}
	// One whose client is heard lives longer than its time.
	has(t, other, "", "c= kept=")
	s.Cut(false)
	_, err := s.Commit(during(t), nil, store.Op{Key: "a", Lease: lease})
	fails(t, err, store.ErrLost)
	// What had a lease and is written without one stays.
	commit(t, other, nil, put("kept", ""))
	if err := kept.Close(during(t)); err != nil {
		t.Fatal(err)
	}
	has(t, other, "", "c= kept=")
}

func leaseClosed(t *testing.T, open func() Client) {
	s := open()
	lease := grant(t, s)
	commit(t, s, nil, store.Op{Key: "a", Lease: lease}, put("b", ""))
	if err := lease.Close(during(t)); err != nil {
		t.Fatal(err)
	}
	has(t, s, "", "b=")
	await(t, lease.Done(), "the lease to end")
	_, err := s.Commit(during(t), nil, store.Op{Key: "a", Lease: lease})
	fails(t, err, store.ErrLost)
	if err := lease.Close(during(t)); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
	// One that cannot be ended there is over here, and there in time.
	lease = grant(t, s)
	rev := commit(t, s, nil, store.Op{Key: "a", Lease: lease})
	s.Cut(true)
	ctx, cancel := context.WithTimeout(during(t), 100*time.Millisecond)
	defer cancel()
	fails(t, lease.Close(ctx), store.ErrUnavailable)
	await(t, lease.Done(), "the lease to end")
	s.Cut(false)
	_, err = s.Commit(during(t), nil, store.Op{Key: "c", Lease: lease})
	fails(t, err, store.ErrLost)
	await(t, watching(during(t), s, "a", rev), "the lease to end there")
	has(t, s, "", "b=")
}

func leaseOfAnother(t *testing.T, open func() Client) {
	s, other := open(), open()
	lease := grant(t, other)
	if _, err := s.Commit(during(t), nil, store.Op{Key: "a", Lease: lease}); err == nil || errors.Is(err, store.ErrLost) {
		t.Fatalf("another client's lease: %v", err)
	}
}

// candidate campaigns, in the background.
func candidate(t *testing.T, ctx context.Context, s store.Store, name string, lease store.Lease) <-chan store.Leadership {
	won := make(chan store.Leadership, 1)
	go func() {
		if l, err := s.Campaign(ctx, "leader/", name, lease); err == nil {
			won <- l
		} else if t.Context().Err() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	return won
}

// candidates waits until there are n.
func candidates(t *testing.T, s store.Store, n int) {
	t.Helper()
	entries, rev, err := s.Read(during(t), "leader/")
	if err != nil {
		t.Fatal(err)
	}
	for events := watching(during(t), s, "leader/", rev); len(entries) != n; entries = read(t, s, "leader/") {
		await(t, events, fmt.Sprintf("%d candidates, there are %d", n, len(entries)))
	}
}

func leads(t *testing.T, s store.Store, want string) {
	t.Helper()
	if got, err := store.Leader(during(t), s, "leader/"); err != nil || got != want {
		t.Fatalf("%q leads (%v), not %q", got, err, want)
	}
}

func election(t *testing.T, open func() Client) {
	s := open()
	leads(t, s, "")
	a, b := grant(t, s), grant(t, s)
	first := await(t, candidate(t, during(t), s, "a", a), "a to lead")
	commit(t, s, []store.If{first.If}, put("x", "a"))
	next := candidate(t, during(t), s, "b", b)
	candidates(t, s, 2)
	leads(t, s, "a")
	if err := first.Resign(during(t)); err != nil {
		t.Fatal(err)
	}
	second := await(t, next, "b to lead")
	leads(t, s, "b")
	_, err := s.Commit(during(t), []store.If{first.If}, put("x", "a, again"))
	fails(t, err, store.ErrConflict)
	commit(t, s, []store.If{second.If}, put("x", "b"))
	if err := first.Resign(during(t)); err != nil {
		t.Fatalf("resigned twice: %v", err)
	}
	leads(t, s, "b")
	has(t, s, "x", "x=b")
}

func electionLeaseEnds(t *testing.T, open func() Client) {
	s, other := open(), open()
	a, b := grant(t, s), grant(t, other)
	first := await(t, candidate(t, during(t), s, "a", a), "a to lead")
	next := candidate(t, during(t), other, "b", b)
	candidates(t, other, 2)
	s.Cut(true)
	second := await(t, next, "b to lead")
	// By then the other knew, or may have, that it no longer leads.
	await(t, a.Done(), "a's lease to end")
	leads(t, other, "b")
	s.Cut(false)
	_, err := s.Commit(during(t), []store.If{first.If}, put("x", "a"))
	fails(t, err, store.ErrConflict)
	commit(t, other, []store.If{second.If}, put("x", "b"))
}

func electionWithdrawn(t *testing.T, open func() Client) {
	s := open()
	if _, err := s.Campaign(during(t), "leader/", "", grant(t, s)); err == nil {
		t.Fatal("nobody is a candidate")
	}
	first := await(t, candidate(t, during(t), s, "a", grant(t, s)), "a to lead")
	// Who no longer waits, and whose lease ends while it waits, is none.
	ctx, cancel := context.WithCancel(during(t))
	lease := grant(t, s)
	errs := make(chan error)
	for _, c := range []context.Context{ctx, during(t)} {
		go func() {
			_, err := s.Campaign(c, "leader/", "b", lease)
			errs <- err
		}()
	}
	candidates(t, s, 3)
	cancel()
	fails(t, await(t, errs, "the end of one"), context.Canceled)
	candidates(t, s, 2)
	if err := lease.Close(during(t)); err != nil {
		t.Fatal(err)
	}
	fails(t, await(t, errs, "the end of the other"), store.ErrLost)
	candidates(t, s, 1)
	if err := first.Resign(during(t)); err != nil {
		t.Fatal(err)
	}
	leads(t, s, "")
	_, err := s.Campaign(during(t), "leader/", "b", lease)
	fails(t, err, store.ErrLost)
}

func electionOneAtATime(t *testing.T, open func() Client) {
	clients := []store.Store{open(), open()}
	var leading atomic.Int32
	var running sync.WaitGroup
	for i := range 4 {
		s := clients[i%2]
		running.Go(func() {
			lease := grant(t, s)
			for range 3 {
				l, err := s.Campaign(during(t), "leader/", fmt.Sprint(i), lease)
				if err != nil {
					t.Error(err)
					return
				}
				if leading.Add(1) != 1 {
					t.Error("two lead")
				}
				if _, err := s.Commit(during(t), []store.If{l.If}, put("x", fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				leading.Add(-1)
				if err := l.Resign(during(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	leads(t, clients[0], "")
}
