// Package storetest is what holds of every store.Store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
)

// Client is a Store, with what a test does to it.
type Client interface {
	store.Store
	// Cut keeps everything from the store, and from the client, until it is undone.
	Cut(cut bool)
}

// Fresh makes a store of its own for t, and says how its clients are opened, which are
// closed after t; compact forgets what was before a revision.
type Fresh func(t *testing.T) (open func() Client, compact func(rev int64) error)

// Run tests what fresh makes. Only one test at a time compacts: others may have their
// keys in the same etcd.
func Run(t *testing.T, fresh Fresh) {
	t.Run("compaction", func(t *testing.T) { compaction(t, fresh) })
	tests := map[string]func(*testing.T, func() Client){
		"read your writes":        readYourWrites,
		"compare and swap":        compareAndSwap,
		"conflict":                conflict,
		"deletions":               deletions,
		"refused":                 refused,
		"large":                   large,
		"cut":                     cut,
		"closed":                  closed,
		"counter":                 counter,
		"watch":                   watch,
		"watch ends":              watchEnds,
		"watch goes on":           watchGoesOn,
		"lease expires":           leaseExpires,
		"lease closed":            leaseClosed,
		"lease of another":        leaseOfAnother,
		"election":                election,
		"election, lease ends":    electionLeaseEnds,
		"election, withdrawn":     electionWithdrawn,
		"election, one at a time": electionOneAtATime,
		"model":                   model,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, _ := fresh(t)
			test(t, open)
		})
	}
}

// Patience is how long a test waits for what has to happen.
const Patience = time.Minute

// during is a context for a test's calls.
func during(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

func put(key, value string) store.Op { return store.Op{Key: key, Value: []byte(value)} }

func commit(t testing.TB, s store.Store, ifs []store.If, ops ...store.Op) int64 {
	t.Helper()
	rev, err := s.Commit(during(t), ifs, ops...)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func read(t testing.TB, s store.Store, prefix string) []store.Entry {
	t.Helper()
	entries, _, err := s.Read(during(t), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// has fails unless the entries below prefix are those, as "key=value key=value".
func has(t testing.TB, s store.Store, prefix, want string) {
	t.Helper()
	var got []string
	for _, e := range read(t, s, prefix) {
		got = append(got, fmt.Sprintf("%s=%s", e.Key, e.Value))
	}
	if got := strings.Join(got, " "); got != want {
		t.Fatalf("below %q is %s, not %s", prefix, got, want)
	}
}

func fails(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, not: %v", err, want)
	}
}

func grant(t testing.TB, s store.Store) store.Lease {
	t.Helper()
	l, err := s.Grant(during(t), ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ttl is as short as etcd has it.
const ttl = 2 * time.Second

// await fails unless c is closed, or gives something, in time.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("waited in vain for: %s", what)
		panic("not reached")
	}
}

// batch is what a watch gave.
type batch struct {
	events string // "rev: key=value -key", in the order of keys
	err    error
}

// watching is what a watch gives; it is closed when that ends.
func watching(ctx context.Context, s store.Store, prefix string, rev int64) <-chan batch {
	c := make(chan batch, 1000)
	go func() {
		defer close(c)
		for events, err := range s.Watch(ctx, prefix, rev) {
			c <- batch{written(events), err}
		}
	}()
	return c
}

func written(events []store.Event) string {
	if len(events) == 0 {
		return ""
	}
	var words []string
	for _, e := range events {
		word := "-" + e.Key
		if !e.Deleted {
			word = fmt.Sprintf("%s=%s", e.Key, e.Value)
		}
		if e.Rev != events[0].Rev {
			word += " of another revision"
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return fmt.Sprintf("%d: %s", events[0].Rev, strings.Join(words, " "))
}

// gives fails unless the next of a watch is that.
func gives(t testing.TB, c <-chan batch, want string, args ...any) {
	t.Helper()
	want = fmt.Sprintf(want, args...)
	if got := await(t, c, want); got.events != want || got.err != nil {
		t.Fatalf("the watch gives %.200q (%v), not %.200q", got.events, got.err, want)
	}
}
