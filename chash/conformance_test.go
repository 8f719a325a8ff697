package chash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What every Hash promises, whatever its kind.

// small are options with which a change takes microseconds, and with which
// every kind has room for 40 servers.
var small = Options{Capacity: 64, Rows: 1021, Replicas: 10}

func smallOptions(k Kind) Options {
	o := small
	if k == KindTableHRW {
		o.Rows = 1024
	}
	return o
}

func someKeys(n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = mix(uint64(i) + 12345)
	}
	return keys
}

// ownersOf are the names of the keys' servers.
func ownersOf(h Hash, keys []uint64) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = h.Name(h.Lookup(k))
	}
	return out
}

// mirror remembers what a Hash should hold.
type mirror struct{ working, horizon map[string]int }

func newMirror() mirror { return mirror{map[string]int{}, map[string]int{}} }

func (m mirror) servers(horizon bool) []Server {
	var out []Server
	for name, w := range m.working {
		out = append(out, Server{name, w})
	}
	for name, w := range m.horizon {
		if horizon {
			out = append(out, Server{name, w})
		}
	}
	return out // a map's order: any
}

// step draws one change, makes it on hash and mirror, and returns whose.
func (m mirror) step(t *rapid.T, k Kind, h Hash) string {
	name := fmt.Sprint("s", rapid.IntRange(0, 15).Draw(t, "server"))
	weight := 1
	if k.Weighted() {
		weight = rapid.IntRange(1, 4).Draw(t, "weight")
	}
	var err error
	switch rapid.SampledFrom([]string{"add", "add", "park", "remove", "set"}).Draw(t, "verb") {
	case "add":
		if err = h.Add(name, weight); err == nil {
			delete(m.horizon, name)
			m.working[name] = weight
		}
	case "park":
		if err = h.Park(name, weight); err == nil {
			delete(m.working, name)
			m.horizon[name] = weight
		}
	case "remove":
		if err = h.Remove(name); err == nil {
			delete(m.working, name)
			delete(m.horizon, name)
		}
	case "set":
		if err = h.SetWeight(name, weight); err == nil {
			for _, set := range []map[string]int{m.working, m.horizon} {
				if _, ok := set[name]; ok {
					set[name] = weight
				}
			}
		}
	}
	if err != nil && !errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if w, o := h.Len(); w != len(m.working) || o != len(m.horizon) {
		t.Fatalf("%d working and %d in the horizon, want %d and %d", w, o, len(m.working), len(m.horizon))
	}
	return name
}

func start(t *rapid.T, k Kind, m mirror) Hash {
	for i := range rapid.IntRange(0, 8).Draw(t, "servers") {
		m.working[fmt.Sprint("s", i)] = 1
	}
	h, err := New(k, smallOptions(k), m.servers(false)...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// JET, Theorem on consistent hashes: a change moves keys only to or from the
// changed server. And its Track: however much of the horizon is added, in
// whatever order, what was not to be tracked stays.
func TestMinimalDisruption(t *testing.T) {
	for _, k := range Kinds() {
		if !k.Minimal() {
			continue
		}
		t.Run(string(k), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := newMirror()
				h, keys := start(t, k, m), someKeys(200)
				for range rapid.IntRange(1, 20).Draw(t, "changes") {
					before := ownersOf(h, keys)
					name := m.step(t, k, h)
					for i, now := range ownersOf(h, keys) {
						if now != before[i] && now != name && before[i] != name {
							t.Fatalf("key %x moved from %q to %q when %q changed", keys[i], before[i], now, name)
						}
					}
				}
				before, tracked := ownersOf(h, keys), make([]bool, len(keys))
				for i, key := range keys {
					_, tracked[i] = h.Track(key)
				}
				for name, weight := range m.horizon { // in any order
					if err := h.Add(name, weight); err != nil {
						t.Fatal(err)
					}
					for i, now := range ownersOf(h, keys) {
						if now != before[i] && !tracked[i] {
							t.Fatalf("key %x moved from %q to %q with %q though it was not to be tracked", keys[i], before[i], now, name)
						}
					}
				}
			})
		})
	}
}

// A Hash after any changes is the one that is built from scratch, whatever
// the order, and its Track compares with the one built with the horizon.
// (Anchor, Dx and bucket depend on what came before.)
func TestSameAsRebuilt(t *testing.T) {
	for _, k := range []Kind{KindTableHRW, KindRing, KindHRW, KindMaglev} {
		t.Run(string(k), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := newMirror()
				h, keys := start(t, k, m), someKeys(200)
				for range rapid.IntRange(1, 20).Draw(t, "changes") {
					m.step(t, k, h)
				}
				working, err := New(k, smallOptions(k), m.servers(false)...)
				if err != nil {
					t.Fatal(err)
				}
				all, err := New(k, smallOptions(k), m.servers(true)...)
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range keys {
					n, track := h.Track(key)
					want, with := working.Name(working.Lookup(key)), all.Name(all.Lookup(key))
					if h.Lookup(key) != n || h.Name(n) != want || track != (want != with) {
						t.Fatalf("key %x: %q, track %v; rebuilt %q, with the horizon %q", key, h.Name(n), track, want, with)
					}
				}
			})
		})
	}
}

// The horizon's share is tracked: |H|/(|W|+|H|), 50 of 500 servers, within 2 %.
func TestTrackedShare(t *testing.T) {
	const n, horizon = 500, 50
	keys := someKeys(1 << 18)
	for _, k := range Kinds() {
		if k == KindMaglev {
			continue // which moves others, too
		}
		h, err := New(k, Options{}, servers(n)...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range horizon {
			if err := h.Park(fmt.Sprint("standby-", i), 1); err != nil {
				t.Fatal(k, err)
			}
		}
		tracked := 0
		for _, key := range keys {
			if _, track := h.Track(key); track {
				tracked++
			}
		}
		share, want := float64(tracked)/float64(len(keys)), float64(horizon)/(n+horizon)
		// Ring's own points and table-HRW's rows make it vary by 1/√50000
		// and 1/√24000 = 0.6 %; so do the keys.
		if share < want*.97 || share > want*1.03 {
			t.Errorf("%s: %.4f tracked, want %.4f", k, share, want)
		}
		t.Logf("%s: %.4f tracked, expected %.4f", k, share, want)
	}
}

// Errors say which, and change nothing.
func TestHashErrors(t *testing.T) {
	keys := someKeys(500)
	for _, k := range Kinds() {
		o := smallOptions(k)
		for _, bad := range []struct {
			servers []Server
			want    error
		}{
			{[]Server{{"a", 1}, {"a", 1}}, ErrDuplicate},
			{[]Server{{"a", 0}}, ErrWeight},
			{[]Server{{"a", MaxWeight + 1}}, ErrWeight},
		} {
			if _, err := New(k, o, bad.servers...); !errors.Is(err, bad.want) {
				t.Errorf("%s: New(%v): %v, want %v", k, bad.servers, err, bad.want)
			}
		}
		h, err := New(k, o, Server{"a", 1}, Server{"b", 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Park("c", 1); err != nil {
			t.Fatal(k, err)
		}
		before := ownersOf(h, keys)
		for what, c := range map[string]struct{ got, want error }{
			"add what works":          {h.Add("a", 1), ErrDuplicate},
			"park what is parked":     {h.Park("c", 1), ErrDuplicate},
			"remove an unknown":       {h.Remove("x"), ErrUnknown},
			"weigh an unknown":        {h.SetWeight("x", 1), ErrUnknown},
			"add without weight":      {h.Add("x", 0), ErrWeight},
			"park with weight -1":     {h.Park("a", -1), ErrWeight},
			"weight too great":        {h.SetWeight("a", MaxWeight+1), ErrWeight},
			"weight 0 for what works": {h.SetWeight("a", 0), ErrWeight},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%s: %s: %v, want %v", k, what, c.got, c.want)
			}
		}
		if w, o := h.Len(); w != 2 || o != 1 || !slices.Equal(ownersOf(h, keys), before) {
			t.Errorf("%s: changed by errors", k)
		}
		if h.Name(NoNode) != "" || h.Name(99) != "" {
			t.Errorf("%s: handles of nobody have names", k)
		}
	}
}

// With all down nobody is found, and whoever comes back gets everything.
func TestAllDown(t *testing.T) {
	keys := someKeys(500)
	for _, k := range Kinds() {
		h, err := New(k, smallOptions(k))
		if err != nil {
			t.Fatal(k, err)
		}
		for _, key := range keys {
			if n, track := h.Track(key); n != NoNode || h.Lookup(key) != NoNode || track {
				t.Fatalf("%s: %d, track %v without servers", k, n, track)
			}
		}
		for _, name := range []string{"a", "b"} {
			if err := h.Add(name, 3); err != nil {
				t.Fatal(k, err)
			}
		}
		for _, name := range []string{"a", "b"} {
			if err := h.Park(name, 3); err != nil {
				t.Fatal(k, err)
			}
		}
		for _, key := range keys {
			if n := h.Lookup(key); n != NoNode {
				t.Fatalf("%s: %q while all are down", k, h.Name(n))
			}
		}
		if err := h.Add("b", 3); err != nil {
			t.Fatal(k, err)
		}
		for i, name := range ownersOf(h, keys) {
			if name != "b" {
				t.Fatalf("%s: key %x to %q, want the only one that works", k, keys[i], name)
			}
		}
	}
}

// Handles of removed servers are used again, and those of others stay.
func TestHandles(t *testing.T) {
	const seed = 5
	for _, k := range Kinds() {
		r := rand.New(rand.NewPCG(seed, 0))
		h, err := New(k, smallOptions(k), servers(8)...)
		if err != nil {
			t.Fatal(err)
		}
		handles := map[string]Node{}
		for _, key := range someKeys(500) {
			handles[h.Name(h.Lookup(key))] = h.Lookup(key)
		}
		for i := range 200 {
			name := fmt.Sprint("server-", 4+r.IntN(8)) // those below 4 stay
			if h.Remove(name) != nil {
				if err := h.Add(name, 1); err != nil {
					t.Fatal(k, err)
				}
			}
			for _, key := range someKeys(50) {
				n := h.Lookup(key)
				if n >= 12 {
					t.Fatalf("%s, seed %d, change %d: handle %d of at most 12 servers", k, seed, i, n)
				}
				for j := range 4 {
					stays := fmt.Sprint("server-", j)
					if h.Name(n) == stays && handles[stays] != n {
						t.Fatalf("%s, seed %d: %s has handle %d, had %d", k, seed, stays, n, handles[stays])
					}
				}
			}
		}
	}
}
