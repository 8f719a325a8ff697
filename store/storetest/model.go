package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/store"
)

// model draws what is done to a store, and compares it with a map and a list.
func model(t *testing.T, open func() Client) {
	clients := []store.Store{open(), open()}
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		m := &modelled{t: t, clients: clients, below: fmt.Sprintf("%d/", run), values: map[string]store.Entry{}}
		_, rev, err := clients[0].Read(during(t), m.below)
		if err != nil {
			r.Fatal(err)
		}
		m.began = rev
		ctx, cancel := context.WithCancel(during(t))
		defer cancel()
		m.live = watching(ctx, clients[1], m.below, rev)
		r.Repeat(map[string]func(*rapid.T){
			"commit": m.commit,
			"read":   m.read,
			"replay": m.replay,
		})
	})
}

type modelled struct {
	t       *testing.T
	clients []store.Store
	below   string
	values  map[string]store.Entry
	began   int64
	history []store.Event // of all commits, in order
	live    <-chan batch
}

// A few keys, one below the other.
func (m *modelled) key(r *rapid.T) string {
	return m.below + rapid.SampledFrom([]string{"a", "a/b", "a/c", "ab", "b", "b/"}).Draw(r, "key")
}

func (m *modelled) client(r *rapid.T) store.Store {
	return rapid.SampledFrom(m.clients).Draw(r, "client")
}

func (m *modelled) commit(r *rapid.T) {
	var ifs []store.If
	holds := true
	for range rapid.IntRange(0, 2).Draw(r, "conditions") {
		c := store.If{Key: m.key(r)}
		if c.Rev = m.values[c.Key].Rev; rapid.IntRange(0, 3).Draw(r, "wrong") == 0 {
			c.Rev = rapid.SampledFrom([]int64{0, m.began, m.values[m.key(r)].Rev}).Draw(r, "rev")
		}
		holds = holds && c.Rev == m.values[c.Key].Rev
		ifs = append(ifs, c)
	}
	var ops []store.Op
	for range rapid.IntRange(1, 3).Draw(r, "operations") {
		o := store.Op{Key: m.key(r)}
		switch rapid.IntRange(0, 3).Draw(r, "kind") {
		case 0:
			o.Delete = true
		case 1:
			o.Delete, o.Prefix = true, true
		default:
			o.Value = []byte(rapid.StringN(0, 3, -1).Draw(r, "value"))
		}
		meets := func(a, b store.Op) bool { return a.Key == b.Key || a.Prefix && strings.HasPrefix(b.Key, a.Key) }
		if !slices.ContainsFunc(ops, func(other store.Op) bool { return meets(o, other) || meets(other, o) }) {
			ops = append(ops, o)
		}
	}
	rev, err := m.client(r).Commit(during(m.t), ifs, ops...)
	if !holds {
		if !errors.Is(err, store.ErrConflict) {
			r.Fatalf("%v, not a conflict", err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	before := len(m.history)
	for _, o := range ops {
		m.do(o, rev)
	}
	if want := written(m.history[before:]); want != "" {
		if got := await(m.t, m.live, want); got.events != want || got.err != nil {
			r.Fatalf("the watch gives %v, not %s", got, want)
		}
	}
}

func (m *modelled) do(o store.Op, rev int64) {
	if !o.Delete {
		m.values[o.Key] = store.Entry{Key: o.Key, Value: o.Value, Rev: rev}
		m.history = append(m.history, store.Event{Entry: m.values[o.Key]})
		return
	}
	for key := range m.values {
		if key == o.Key || o.Prefix && strings.HasPrefix(key, o.Key) {
			delete(m.values, key)
			m.history = append(m.history, store.Event{Entry: store.Entry{Key: key, Rev: rev}, Deleted: true})
		}
	}
}

func (m *modelled) read(r *rapid.T) {
	prefix := m.key(r)
	entries, _, err := m.client(r).Read(during(m.t), prefix)
	if err != nil {
		r.Fatal(err)
	}
	var want []store.Entry
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		if strings.HasPrefix(key, prefix) {
			want = append(want, m.values[key])
		}
	}
	if got, want := fmt.Sprint(entries), fmt.Sprint(want); got != want {
		r.Fatalf("below %s is %s, not %s", prefix, got, want)
	}
}

// replay what followed one of the commits. Etcd collects such watches for 0.1 s, so
// they are few.
func (m *modelled) replay(r *rapid.T) {
	if len(m.history) == 0 || rapid.IntRange(0, 39).Draw(r, "seldom") != 0 {
		return
	}
	prefix, since := m.key(r), rapid.SampledFrom(m.history).Draw(r, "since").Rev
	after := slices.DeleteFunc(slices.Clone(m.history), func(e store.Event) bool {
		return e.Rev <= since || !strings.HasPrefix(e.Key, prefix)
	})
	if len(after) == 0 {
		return // it would wait
	}
	ctx, cancel := context.WithCancel(during(m.t))
	defer cancel()
	events := watching(ctx, m.client(r), prefix, since)
	for len(after) > 0 {
		n := slices.IndexFunc(after, func(e store.Event) bool { return e.Rev != after[0].Rev })
		if n < 0 {
			n = len(after)
		}
		if got, want := await(m.t, events, prefix), written(after[:n]); got.events != want || got.err != nil {
			r.Fatalf("the watch below %s since %d gives %v, not %s", prefix, since, got, want)
		}
		after = after[n:]
	}
}
