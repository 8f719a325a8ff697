package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/store"
)

var secret = bytes.Repeat([]byte{1, 2}, 16)

// first is an assignment of vips VIPs with servers servers each.
func first(t *testing.T, vips, servers int) *controller.Assignment {
	t.Helper()
	var b strings.Builder
	b.WriteString("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\nbalancers: [{name: lb1, interfaces: [eth0]}]\nservers:\n")
	names := make([]string, servers)
	for i := range servers {
		names[i] = fmt.Sprintf("s%d", i)
		fmt.Fprintf(&b, "- {name: s%d, address: 10.0.%d.%d}\n", i, i/200, i%200+1)
	}
	b.WriteString("vips:\n")
	for i := range vips {
		fmt.Fprintf(&b, "- {name: v%d, address: 192.0.%d.%d, port: 80, servers: [%s]}\n", i, i/200, i%200+1, strings.Join(names, ", "))
	}
	cfg, err := config.Parse("fairlead.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	a, err := controller.First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, s store.Store, secret []byte) *Ledger {
	t.Helper()
	l, err := New(s, secret)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// history appends n versions to a's, which is the first, and returns all by number.
func history(t *testing.T, l *Ledger, a *controller.Assignment, n int) (all []*controller.Assignment, head Head) {
	t.Helper()
	head, err := l.Head(t.Context())
	if err != nil || head.Version != 0 {
		t.Fatal(head, err)
	}
	all = []*controller.Assignment{nil}
	for range n {
		if head, err = l.Append(t.Context(), head, all[len(all)-1], a, Change{Who: "somebody", What: []string{"a change"}}); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		a = a.Clone()
		a.Version++
		a.VIPs[0].Slots[0].Weight = 1 + int(a.Version)%1000
	}
	return all, head
}

// TestVersions: every version that is kept is read as it was written, from nothing
// and from any version before it; deltas are small, and old versions go.
func TestVersions(t *testing.T) {
	memory := store.NewMemory()
	l := open(t, memory.Client(), secret)
	const n = Kept + 3*snapshotEvery + 5
	all, head := history(t, l, first(t, 3, 4), n)
	if head.Version != n || head.Prior != n-1 || head.Of(0) != n-1 {
		t.Errorf("%+v", head)
	}
	head, err := l.Turn(t.Context(), head, 1)
	if err != nil || head.Of(0) != n || head.Of(1) != n-1 {
		t.Errorf("%+v %v", head, err)
	}
	for v := uint64(n - Kept); v <= n; v++ {
		for _, have := range []*controller.Assignment{nil, all[v-1], all[max(1, v-40)]} {
			a, err := l.Read(t.Context(), v, have)
			if err != nil || a.Digest() != all[v].Digest() {
				t.Fatalf("version %d: %v", v, err)
			}
		}
	}
	if _, err := l.Read(t.Context(), 1, nil); !errors.Is(err, ErrForgotten) {
		t.Errorf("the first version: %v", err)
	}
	// What has the number of another version is no step on the way.
	other := all[n-1].Clone()
	other.VIPs[0].Slots[0].Weight = 999
	if a, err := l.Read(t.Context(), n, other); err != nil || a.Digest() != all[n].Digest() {
		t.Errorf("from another version %d: %v", n-1, err)
	}
	records, err := l.History(t.Context(), n-9, n)
	if err != nil || len(records) != 10 || records[9].Version != n || records[9].Who != "somebody" {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// TestLarge: an assignment of many megabytes is written in parts that the store
// takes; what differs from it is a few hundred bytes.
func TestLarge(t *testing.T) {
	memory := store.NewMemory()
	client := memory.Client()
	l := open(t, client, secret)
	a := first(t, 400, 100)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range a.VIPs {
		for j := range a.VIPs[i].Slots { // which no compression makes small
			s := &a.VIPs[i].Slots[j]
			s.Since, s.OldWeight, s.WeightSince = time.Unix(1e9+r.Int64N(1e9), r.Int64N(1e9)).UTC(), 1+r.IntN(1000), time.Unix(1e9+r.Int64N(1e9), r.Int64N(1e9)).UTC()
		}
	}
	all, head := history(t, l, a, 2)
	var sizes [3]int
	for v := 1; v <= 2; v++ {
		parts, _, err := client.Read(t.Context(), versionsKey+versionKey(uint64(v))+"/")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			sizes[v] += len(p.Value)
		}
		if v == 1 && len(parts) < 2 {
			t.Errorf("%d parts", len(parts))
		}
	}
	t.Logf("%d bytes: a snapshot of %d, a delta of %d", len(a.Encode()), sizes[1], sizes[2])
	if sizes[2] > 32<<10 {
		t.Errorf("a delta of %d bytes", sizes[2])
	}
	if got, err := l.Read(t.Context(), 2, nil); err != nil || got.Digest() != all[2].Digest() || head.Version != 2 {
		t.Error(err)
	}
}

// TestConflict: of two that append to one head the second is refused, and leaves
// nothing behind.
func TestConflict(t *testing.T) {
	memory := store.NewMemory()
	client := memory.Client()
	l := open(t, client, secret)
	all, old := history(t, l, first(t, 1, 2), 1)
	next := all[1].Clone()
	next.Version = 2
	if _, err := l.Append(t.Context(), old, all[1], next, Change{Who: "one"}); err != nil {
		t.Fatal(err)
	}
	before, _, _ := client.Read(t.Context(), "")
	if _, err := l.Append(t.Context(), old, all[1], next, Change{Who: "two", Text: []byte("two")}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the second: %v", err)
	}
	if _, err := l.Turn(t.Context(), old, 3); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a turn of the head before: %v", err)
	}
	after, _, _ := client.Read(t.Context(), "")
	if len(before) != len(after) {
		t.Errorf("%d keys, %d before", len(after), len(before))
	}
}

// TestDamaged: nothing that the store has is taken for what was written unless it is.
func TestDamaged(t *testing.T) {
	memory := store.NewMemory()
	client := memory.Client()
	l := open(t, client, secret)
	history(t, l, first(t, 1, 2), 3)
	entries, _, err := client.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, client, bytes.Repeat([]byte{9, 8}, 16)).Head(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("another secret: %v", err)
	}
	put := func(e store.Entry, value []byte) {
		t.Helper()
		if _, err := client.Commit(context.Background(), nil, store.Op{Key: e.Key, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entries {
		if bytes.Contains(e.Value, secret) || bytes.Contains(e.Value, []byte("hash_key")) {
			t.Errorf("%s is in the clear", e.Key)
		}
		for at := 0; at < len(e.Value); at += max(1, len(e.Value)/50) {
			damaged := bytes.Clone(e.Value)
			damaged[at] ^= 1
			put(e, damaged)
			_, headErr := l.Head(t.Context())
			a, err := l.Read(t.Context(), 3, nil)
			if strings.HasPrefix(e.Key, versionsKey) && (err == nil || a != nil || headErr != nil) {
				t.Errorf("%s, byte %d: taken over", e.Key, at)
			}
			if err == nil && a.Version != 3 {
				t.Errorf("%s, byte %d: version %d", e.Key, at, a.Version)
			}
		}
		put(e, e.Value)
	}
}
