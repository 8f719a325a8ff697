// Package store is where the daemons of a deployment agree: keys and values that
// change by compare-and-swap, are watched, and go with the life of who wrote them.
// The agreement is etcd's; what stands here is the narrow edge that Fairlead needs
// of it: Memory (tests) and Cluster (a client of any etcd) have it, and
// store/embedded runs an etcd in this process. One test suite holds them all
// (storetest).
//
// Reads see every commit that was acknowledged before they began. Where no majority
// of the store answers, calls fail, or block until their context ends; they never
// answer with less.
package store

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"
)

// What etcd takes in one request, if nobody has told it otherwise. What is larger
// goes in parts: a watcher holds all that it has not read.
const (
	// MaxValue bounds a value, in bytes.
	MaxValue = 1 << 20
	// MaxCommit bounds the keys and values of a commit, conditions included, in
	// bytes; each counts OpBytes more.
	MaxCommit = 3 << 19
	// OpBytes is what an operation or condition costs beside its key and value.
	OpBytes = 128
	// MaxOps bounds a commit's operations, and its conditions.
	MaxOps = 128
)

var (
	// ErrConflict: a condition of a commit did not hold, so nothing of it was done.
	ErrConflict = errors.New("the store has changed meanwhile")
	// ErrCompacted: what a watch should begin with is forgotten: read all again.
	ErrCompacted = errors.New("the store no longer knows what changed since then")
	// ErrFull: the store takes nothing more until room is made (etcd: NOSPACE).
	ErrFull = errors.New("the store is full")
	// ErrUnavailable: no majority of the store answers.
	ErrUnavailable = errors.New("the store does not answer")
	// ErrLost: the lease or leadership is over.
	ErrLost = errors.New("the lease is over")
	// ErrClosed: the Store was closed in this process.
	ErrClosed = errors.New("the store was closed")
)

// URL is an endpoint of the configuration's (unix:/path, https://address:port) as etcd
// writes it.
func URL(endpoint string) string {
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok && !strings.HasPrefix(path, "//") {
		return "unix://" + path
	}
	return endpoint
}

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte
	// Rev is the store's revision, above 0, that wrote the value.
	Rev int64
}

// Event is what happened to a key: Entry is what it has now, or, where it was
// deleted, its name and the revision that did so.
type Event struct {
	Entry
	Deleted bool
}

// If is a condition: the key's value was written by revision Rev; 0: there is none.
type If struct {
	Key string
	Rev int64
}

// Op writes a value (of up to MaxValue bytes), or deletes the key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	// Prefix deletes all keys that begin with Key.
	Prefix bool
	// Lease, if any, deletes the key when it ends. It is of the same Store.
	Lease Lease
}

// Store is safe for use by several goroutines.
type Store interface {
	// Read gives the entries whose keys begin with prefix, ascending, and the
	// revision as of which they are.
	Read(ctx context.Context, prefix string) (entries []Entry, rev int64, err error)
	// Commit does all of ops, of which no two name one key, nor one a key below
	// another's Prefix, if every condition holds, else none and ErrConflict. What
	// exceeds MaxValue, MaxCommit or MaxOps is refused before it is sent. With
	// ErrUnavailable, or when ctx ended, it may have been done, even later: read
	// again. Without a change to make, rev is the store's as it was.
	Commit(ctx context.Context, ifs []If, ops ...Op) (rev int64, err error)
	// Watch gives what changed below prefix after revision rev, in order, all of a
	// commit together, until ctx ends, which ends it without an error. The
	// error, the last that it gives, is ErrCompacted, ErrClosed, or that the store
	// lets this process not watch. A store that is gone for a while ends no watch.
	// Values are the caller's own. A commit's events are in no order.
	Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[[]Event, error]
	// Grant makes a lease that ends ttl (seconds at the least; etcd gives no less
	// than 2) after the store last heard of this process, and not before: with a
	// change of the store's own leader, later. ctx bounds the call alone.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Campaign waits until candidate, a name, leads the election, while its lease
	// lives (ErrLost). An election is a prefix of keys, such as "leader/", that
	// nobody else writes. A candidacy whose Campaign failed is withdrawn, behind it:
	// it is gone when the store could be told, and with its lease at the latest.
	Campaign(ctx context.Context, election, candidate string, lease Lease) (Leadership, error)
	// Members has the store asked at endpoints, as in Options, from now on. What runs
	// goes on.
	Members(endpoints []string)
	// Close ends all watches, calls and leases; leases that the store cannot be
	// told of end there after their time. It takes 2 s at most.
	Close() error
}

// Lease is the life of this process as the store sees it.
type Lease interface {
	// Done is closed when the lease has ended, or may have: the store was not heard
	// for its time.
	Done() <-chan struct{}
	// Close ends it, and deletes its keys, now.
	Close(ctx context.Context) error
}

// Leadership is won, and lasts as long as its lease, or until Resign.
type Leadership struct {
	// If makes a commit fail once somebody else may lead.
	If If
	// Resign lets the next candidate lead at once. It is no error that somebody
	// does already.
	Resign func(ctx context.Context) error
}

// Leader is who leads the election: its candidate's name, "" while nobody does.
func Leader(ctx context.Context, s Store, election string) (string, error) {
	entries, _, err := s.Read(ctx, election)
	if err != nil {
		return "", err
	}
	leader, first := "", int64(0)
	for _, e := range entries {
		if first == 0 || e.Rev < first {
			leader, first = string(e.Value), e.Rev
		}
	}
	return leader, nil
}
