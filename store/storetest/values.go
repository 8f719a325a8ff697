package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
)

func readYourWrites(t *testing.T, open func() Client) {
	a, b := open(), open()
	has(t, a, "", "")
	rev := commit(t, a, nil, put("x/2", "two"), put("x/1", "one"), put("y", ""))
	for _, s := range []store.Store{a, b} {
		has(t, s, "x/", "x/1=one x/2=two")
		has(t, s, "", "x/1=one x/2=two y=")
	}
	entries, at, err := b.Read(during(t), "x/")
	if err != nil || at < rev || entries[0].Rev != rev || entries[1].Rev != rev {
		t.Fatalf("%v as of %d, %v; they were written by %d", entries, at, err, rev)
	}
	later := commit(t, b, nil, put("x/2", "zwei"))
	if e := read(t, a, "x/"); later <= rev || e[0].Rev != rev || e[1].Rev != later {
		t.Fatalf("%v, written by %d and %d", e, rev, later)
	}
	// Nobody's value changes under his hands.
	value := []byte("mine")
	commit(t, a, nil, store.Op{Key: "z", Value: value})
	value[0] = 'd'
	read(t, a, "z")[0].Value[0] = 'w'
	has(t, a, "z", "z=mine")
}

func compareAndSwap(t *testing.T, open func() Client) {
	s := open()
	one := commit(t, s, []store.If{{Key: "a"}, {Key: "b"}}, put("a", "1"))
	two := commit(t, s, []store.If{{Key: "a", Rev: one}, {Key: "b"}}, put("b", "2"))
	three := commit(t, s, []store.If{{Key: "a", Rev: one}, {Key: "b", Rev: two}},
		put("a", "3"), store.Op{Key: "b", Delete: true})
	has(t, s, "", "a=3")
	// Conditions alone are answered, too.
	commit(t, s, []store.If{{Key: "a", Rev: three}, {Key: "b"}})
	_, err := s.Commit(during(t), []store.If{{Key: "a", Rev: two}})
	fails(t, err, store.ErrConflict)
}

func conflict(t *testing.T, open func() Client) {
	s := open()
	rev := commit(t, s, nil, put("a", "1"), put("b", "1"))
	later := commit(t, s, nil, put("b", "2"))
	for _, ifs := range [][]store.If{
		{{Key: "a", Rev: rev}, {Key: "b", Rev: rev}},
		{{Key: "a"}},
		{{Key: "c", Rev: later}},
		{{Key: "a", Rev: later}},
		{{Key: "a", Rev: rev}, {Key: "b", Rev: later}, {Key: "c", Rev: 1}},
	} {
		_, err := s.Commit(during(t), ifs, put("a", "no"), put("c", "no"), store.Op{Key: "b", Delete: true})
		fails(t, err, store.ErrConflict)
		has(t, s, "", "a=1 b=2")
	}
}

func deletions(t *testing.T, open func() Client) {
	s := open()
	commit(t, s, nil, put("a", ""), put("a/1", ""), put("a/2", ""), put("a0", ""), put("b", ""))
	rev := commit(t, s, nil, store.Op{Key: "a/", Delete: true, Prefix: true}, put("c", ""))
	has(t, s, "", "a= a0= b= c=")
	if again := commit(t, s, nil, store.Op{Key: "a/", Delete: true, Prefix: true}, store.Op{Key: "none", Delete: true}); again < rev {
		t.Fatalf("revision %d after %d", again, rev)
	}
	commit(t, s, nil, store.Op{Key: "a", Delete: true})
	has(t, s, "", "a0= b= c=")
	commit(t, s, nil, store.Op{Delete: true, Prefix: true})
	has(t, s, "", "")
}

func refused(t *testing.T, open func() Client) {
	s := open()
	many := make([]store.Op, store.MaxOps+1)
	conditions := make([]store.If, store.MaxOps+1)
	for i := range many {
		many[i], conditions[i].Key = put(fmt.Sprint(i), ""), fmt.Sprint(i)
	}
	half := make([]byte, store.MaxCommit/2)
	for name, c := range map[string]struct {
		ifs []store.If
		ops []store.Op
	}{
		"value":        {ops: []store.Op{{Key: "a", Value: make([]byte, store.MaxValue+1)}}},
		"commit":       {ops: []store.Op{{Key: "a", Value: half}, {Key: "b", Value: half}}},
		"operations":   {ops: many},
		"conditions":   {ifs: conditions},
		"no key":       {ops: []store.Op{{}}},
		"no condition": {ifs: []store.If{{Rev: 1}}},
		"twice":        {ops: []store.Op{put("a", ""), put("b", ""), put("a", "")}},
		"below":        {ops: []store.Op{put("a/b", ""), {Key: "a/", Delete: true, Prefix: true}}},
		"put prefix":   {ops: []store.Op{{Key: "a", Prefix: true}}},
		"delete value": {ops: []store.Op{{Key: "a", Delete: true, Value: half}}},
	} {
		if _, err := s.Commit(during(t), c.ifs, append(c.ops, put("z", ""))...); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	has(t, s, "", "")
	if _, err := s.Grant(during(t), 0); err == nil {
		t.Error("a lease of no time")
	}
}

// large: what is within the bounds is taken.
func large(t *testing.T, open func() Client) {
	s := open()
	events := watching(during(t), s, "", commit(t, s, nil))
	value := bytes.Repeat([]byte("v"), store.MaxValue)
	for _, key := range []string{"a", "b", "c"} {
		rev := commit(t, s, nil, store.Op{Key: key, Value: value})
		gives(t, events, "%d: %s=%s", rev, key, value)
	}
	entries := read(t, s, "")
	if len(entries) != 3 || !bytes.Equal(entries[2].Value, value) {
		t.Fatalf("%d entries", len(entries))
	}
	// As many as go into a commit, as large as they then may be.
	var ifs []store.If
	var ops []store.Op
	room := store.MaxCommit/store.MaxOps - 2*store.OpBytes - 100
	for i := range store.MaxOps {
		key := fmt.Sprintf("key/%06d", i)
		ifs = append(ifs, store.If{Key: key})
		ops = append(ops, store.Op{Key: key, Value: value[:room]})
	}
	commit(t, s, ifs, ops...)
	if got := len(read(t, s, "key/")); got != store.MaxOps {
		t.Fatalf("%d entries", got)
	}
}

func cut(t *testing.T, open func() Client) {
	s := open()
	commit(t, s, nil, put("a", "1"))
	s.Cut(true)
	ctx, cancel := context.WithTimeout(during(t), 200*time.Millisecond)
	defer cancel()
	_, _, err := s.Read(ctx, "")
	fails(t, err, store.ErrUnavailable)
	_, err = s.Commit(ctx, []store.If{{Key: "a"}}, put("a", "2"))
	fails(t, err, store.ErrUnavailable)
	_, err = s.Commit(ctx, nil)
	fails(t, err, store.ErrUnavailable)
	_, err = s.Grant(ctx, ttl)
	fails(t, err, store.ErrUnavailable)
	s.Cut(false)
	has(t, s, "", "a=1")
}

func closed(t *testing.T, open func() Client) {
	s, other := open(), open()
	lease := grant(t, s)
	rev := commit(t, s, nil, put("a", "1"), store.Op{Key: "leased", Lease: lease})
	events := watching(during(t), s, "", rev-1)
	gives(t, events, "%d: a=1 leased=", rev)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end := await(t, events, "the end")
	if end.err == nil { // that the lease went is seen, or not
		end = await(t, events, "the end")
	}
	fails(t, end.err, store.ErrClosed)
	await(t, lease.Done(), "the lease to end")
	has(t, other, "", "a=1")
	_, _, err := s.Read(during(t), "")
	fails(t, err, store.ErrClosed)
	_, err = s.Commit(during(t), nil, put("a", "2"))
	fails(t, err, store.ErrClosed)
	_, err = s.Grant(during(t), ttl)
	fails(t, err, store.ErrClosed)
	fails(t, await(t, watching(during(t), s, "", rev), "the end").err, store.ErrClosed)
	if err := s.Close(); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
}

// counter: nothing is lost where many add to one value.
func counter(t *testing.T, open func() Client) {
	clients := []store.Store{open(), open()}
	const adders, each = 8, 10
	var adding sync.WaitGroup
	for i := range adders {
		s := clients[i%2]
		adding.Go(func() {
			for range each {
				if err := add(during(t), s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	adding.Wait()
	has(t, clients[0], "", fmt.Sprintf("n=%d", adders*each))
}

func add(ctx context.Context, s store.Store) error {
	for {
		entries, _, err := s.Read(ctx, "n")
		if err != nil {
			return err
		}
		n, last := 0, store.If{Key: "n"}
		if len(entries) > 0 {
			last.Rev = entries[0].Rev
			if n, err = strconv.Atoi(strings.TrimSpace(string(entries[0].Value))); err != nil {
				return err
			}
		}
		if _, err = s.Commit(ctx, []store.If{last}, put("n", fmt.Sprint(n+1))); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
