package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a store for tests: its clients have what Store promises, within one
// process. The zero Memory is not usable: NewMemory.
type Memory struct {
	mu     sync.Mutex
	values map[string]value
	// log has what each revision since compacted changed.
	log            []revision
	rev, compacted int64
	// changed is closed, and replaced, whenever a watch may have something to do.
	changed chan struct{}
}

type value struct {
	Entry
	lease *memoryLease // nil: none
}

type revision struct {
	rev    int64
	events []Event
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{values: map[string]value{}, rev: 1, changed: make(chan struct{})}
}

// Compact forgets what was before rev, which is one that the store has had: watches
// that begin earlier fail with ErrCompacted.
func (m *Memory) Compact(rev int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rev > m.rev || rev <= m.compacted {
		return fmt.Errorf("revision %d is not between %d and %d", rev, m.compacted+1, m.rev)
	}
	m.compacted = rev
	m.log = slices.DeleteFunc(m.log, func(r revision) bool { return r.rev < rev })
	return nil
}

// Client is a process that uses the store.
func (m *Memory) Client() *MemoryClient {
	return &MemoryClient{m: m, closed: make(chan struct{}), leases: map[*memoryLease]bool{}}
}

// commit makes ops one revision. The caller holds mu and has checked them.
func (m *Memory) commit(ops []Op) int64 {
	var events []Event
	for _, o := range ops {
		lease, _ := o.Lease.(*memoryLease)
		switch {
		case !o.Delete:
			e := Entry{Key: o.Key, Value: bytes.Clone(o.Value), Rev: m.rev + 1}
			m.values[o.Key] = value{e, lease}
			events = append(events, Event{Entry: e})
		default:
			events = append(events, m.drop(func(key string, _ value) bool {
				return key == o.Key || o.Prefix && strings.HasPrefix(key, o.Key)
			})...)
		}
	}
	return m.record(events)
}

// record makes what happened, if anything, a revision.
func (m *Memory) record(events []Event) int64 {
	if len(events) > 0 {
		m.rev++
		m.log = append(m.log, revision{m.rev, events})
		m.wake()
	}
	return m.rev
}

// drop deletes what is gone by the next revision.
func (m *Memory) drop(gone func(string, value) bool) []Event {
	var events []Event
	for key, v := range m.values {
		if gone(key, v) {
			events = append(events, Event{Entry: Entry{Key: key, Rev: m.rev + 1}, Deleted: true})
			delete(m.values, key)
		}
	}
	return events
}

func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// MemoryClient is a Store.
type MemoryClient struct {
	m      *Memory
	closed chan struct{}
	// These are m.mu's, too.
	cut    bool
	leases map[*memoryLease]bool
}

// Cut is what a network does that no longer carries anything to the store and back
// (or carries it again): calls fail with ErrUnavailable, watches stall, and leases end
// after their time, here and there.
func (c *MemoryClient) Cut(cut bool) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.cut == cut {
		return
	}
	c.cut = cut
	for l := range c.leases {
		if cut && !l.left() {
			l.orphan()
		}
	}
	c.m.wake()
}

// ready says why calls fail, if they do.
func (c *MemoryClient) ready(ctx context.Context) error {
	switch {
	case c.isClosed():
		return ErrClosed
	case c.cut:
		return ErrUnavailable
	}
	return ctx.Err()
}

func (c *MemoryClient) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *MemoryClient) Read(ctx context.Context, prefix string) ([]Entry, int64, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return nil, 0, err
	}
	var entries []Entry
	for key, v := range c.m.values {
		if strings.HasPrefix(key, prefix) {
			v.Value = bytes.Clone(v.Value)
			entries = append(entries, v.Entry)
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries, c.m.rev, nil
}

func (c *MemoryClient) Commit(ctx context.Context, ifs []If, ops ...Op) (int64, error) {
	if err := check(0, ifs, ops); err != nil {
		return 0, err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return 0, err
	}
	for _, cond := range ifs {
		if c.m.values[cond.Key].Rev != cond.Rev {
			return 0, ErrConflict
		}
	}
	for _, o := range ops {
		if o.Lease == nil {
			continue
		}
		if l, ok := o.Lease.(*memoryLease); !ok || l.c != c {
			return 0, errForeign
		} else if !c.leases[l] || l.left() {
			return 0, ErrLost
		}
	}
	return c.m.commit(ops), nil
}

func (c *MemoryClient) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		for seen := rev; ; {
			batches, changed, err := c.since(prefix, &seen)
			for _, events := range batches {
				if ctx.Err() != nil || !yield(events, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-c.closed:
			case <-changed:
			}
		}
	}
}

// since gives what happened below prefix after *seen, which it advances, and what is
// closed when there may be more.
func (c *MemoryClient) since(prefix string, seen *int64) (batches [][]Event, changed <-chan struct{}, err error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch {
	case c.isClosed():
		return nil, nil, ErrClosed
	case c.cut:
		return nil, c.m.changed, nil
	case *seen+1 < c.m.compacted:
		return nil, nil, ErrCompacted
	}
	after, _ := slices.BinarySearchFunc(c.m.log, *seen+1, func(r revision, rev int64) int { return cmp.Compare(r.rev, rev) })
	for _, r := range c.m.log[after:] {
		var events []Event
		for _, e := range r.events {
			if strings.HasPrefix(e.Key, prefix) {
				e.Value = bytes.Clone(e.Value)
				events = append(events, e)
			}
		}
		if events != nil {
			batches = append(batches, events)
		}
	}
	*seen = max(*seen, c.m.rev)
	return batches, c.m.changed, nil
}

// Grant makes a lease of any time above 0, so that tests wait less.
func (c *MemoryClient) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return nil, errShort
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	l := &memoryLease{c: c, ttl: ttl, done: make(chan struct{})}
	c.leases[l] = true
	return l, nil
}

func (c *MemoryClient) Campaign(ctx context.Context, election, candidate string, lease Lease) (Leadership, error) {
	return campaign(ctx, c, election, candidate, lease)
}

// Close leaves the leases of a client that is cut off to their time.
// Members changes nothing: it has no address.
func (c *MemoryClient) Members([]string) {}

func (c *MemoryClient) Close() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.isClosed() {
		return nil
	}
	close(c.closed)
	for l := range c.leases {
		l.leave()
		if !c.cut {
			l.end()
		}
	}
	return nil
}

type memoryLease struct {
	c    *MemoryClient
	ttl  time.Duration
	done chan struct{}
	// until is when it ends at the store, if that hears nothing more of it.
	until time.Time
}

func (l *memoryLease) Done() <-chan struct{} { return l.done }

func (l *memoryLease) Close(ctx context.Context) error {
	l.c.m.mu.Lock()
	defer l.c.m.mu.Unlock()
	if !l.c.leases[l] {
		return nil
	}
	l.leave()
	if err := l.c.ready(ctx); err != nil {
		if !l.c.cut {
			l.orphan()
		}
		return err
	}
	l.end()
	return nil
}

// orphan begins the time after which the store ends it.
func (l *memoryLease) orphan() {
	l.until = time.Now().Add(l.ttl)
	time.AfterFunc(l.ttl, func() {
		l.c.m.mu.Lock()
		defer l.c.m.mu.Unlock()
		// Unless it was heard, and cut off again, meanwhile.
		if (l.c.cut || l.left()) && !time.Now().Before(l.until) {
			l.leave()
			l.end()
		}
	})
}

// leave ends the lease here: nobody is to think that it lives.
func (l *memoryLease) leave() {
	if !l.left() {
		close(l.done)
	}
}

func (l *memoryLease) left() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// end ends it at the store.
func (l *memoryLease) end() {
	delete(l.c.leases, l)
	l.c.m.record(l.c.m.drop(func(_ string, v value) bool { return v.lease == l }))
}
