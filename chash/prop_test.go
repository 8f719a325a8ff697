package chash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Properties of every Hash whose kind is Minimal. rapid prints the seed of
// what fails.

func minimalKinds() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return !k.Minimal() })
}

// optionsFor are sizes that leave the drawn histories room.
func optionsFor(k Kind, servers int) Options {
	o := Options{Capacity: servers + 24}
	if k == KindTableHRW || k == KindBucket {
		o.Rows = 1024
	}
	return o
}

func someKeys(seed uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(seed, 1))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	return keys
}

// step is one change, as a history that can be replayed.
type step struct {
	verb   string
	name   string
	weight int
}

func (s step) do(h Hash) error {
	switch s.verb {
	case "add":
		return h.Add(s.name, s.weight)
	case "park":
		return h.Park(s.name, s.weight)
	case "remove":
		return h.Remove(s.name)
	}
	return h.SetWeight(s.name, s.weight)
}

// world is a hash and what is known of it.
type world struct {
	kind    Kind
	start   []Server
	options Options
	h       Hash
	history []step
	working map[string]int
	parked  map[string]int
}

func drawWorld(t *rapid.T, k Kind) *world {
	n := rapid.IntRange(0, 30).Draw(t, "servers")
	w := &world{kind: k, options: optionsFor(k, n), working: map[string]int{}, parked: map[string]int{}}
	for i := range n {
		s := Server{fmt.Sprintf("s%d", i), w.drawWeight(t)}
		w.start = append(w.start, s)
		w.working[s.Name] = s.Weight
	}
	if !k.Weighted() {
		w.options.Horizon = rapid.IntRange(0, 6).Draw(t, "horizon")
	}
	w.h = w.fresh(t)
	return w
}

func (w *world) fresh(t interface{ Fatal(...any) }) Hash {
	h, err := New(w.kind, w.options, w.start...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (w *world) drawWeight(t *rapid.T) int {
	if !w.kind.Weighted() {
		return 7
	}
	return rapid.SampledFrom([]int{1, 1, 2, 3, 10}).Draw(t, "weight")
}

// drawStep draws a change that is in order and carries it out.
func (w *world) drawStep(t *rapid.T) step {
	s := step{
		verb:   rapid.SampledFrom([]string{"add", "park", "remove", "weigh"}).Draw(t, "verb"),
		weight: w.drawWeight(t),
	}
	known := append(sortedNames(w.working), sortedNames(w.parked)...)
	var from []string
	switch s.verb {
	case "add":
		from = append(sortedNames(w.parked), fmt.Sprintf("new%d", len(w.history)))
	case "park":
		from = append(sortedNames(w.working), fmt.Sprintf("new%d", len(w.history)))
	default:
		from = known
	}
	if len(from) == 0 {
		s.verb, from = "add", []string{fmt.Sprintf("new%d", len(w.history))}
	}
	s.name = rapid.SampledFrom(from).Draw(t, "name")
	if err := s.do(w.h); err != nil {
		if errors.Is(err, ErrCapacity) || errors.Is(err, ErrHorizon) {
			t.Skip(err)
		}
		t.Fatalf("%+v: %v", s, err)
	}
	w.history = append(w.history, s)
	switch s.verb {
	case "add":
		delete(w.parked, s.name)
		w.working[s.name] = s.weight
	case "park":
		delete(w.working, s.name)
		w.parked[s.name] = s.weight
	case "remove":
		delete(w.parked, s.name)
		delete(w.working, s.name)
	default:
		if _, ok := w.working[s.name]; ok {
			w.working[s.name] = s.weight
		} else {
			w.parked[s.name] = s.weight
		}
	}
	return s
}

func sortedNames(m map[string]int) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func where(h Hash, keys []uint64) []string {
	at := make([]string, len(keys))
	for i, k := range keys {
		at[i] = h.Name(h.Lookup(k))
	}
	return at
}

func perKind(t *testing.T, kinds []Kind, f func(t *rapid.T, k Kind)) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { f(t, k) }) })
	}
}

// No key moves but to or from the changed server, whatever was changed
// before.
func TestDisruptionIsLeast(t *testing.T) {
	keys := someKeys(1, 1000)
	perKind(t, minimalKinds(), func(t *rapid.T, k Kind) {
		w := drawWorld(t, k)
		at := where(w.h, keys)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			s := w.drawStep(t)
			now := where(w.h, keys)
			for i := range keys {
				if at[i] != now[i] && at[i] != s.name && now[i] != s.name {
					t.Fatalf("%+v moved key %#x from %q to %q", s, keys[i], at[i], now[i])
				}
			}
			at = now
			working, horizon := w.h.Len()
			spare := horizon - len(w.parked)
			if working != len(w.working) || spare < 0 || spare > w.options.Horizon {
				t.Fatalf("Len %d, %d, want %d, %d", working, horizon, len(w.working), len(w.parked))
			}
		}
	})
}

// Track is what looking up in a twin with the same history says in which the
// whole horizon was added; and whoever is added of it, in whatever order,
// moves only tracked keys.
func TestTrackIsExact(t *testing.T) {
	keys := someKeys(2, 1000)
	perKind(t, minimalKinds(), func(t *rapid.T, k Kind) {
		w := drawWorld(t, k)
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			w.drawStep(t)
		}
		twin := w.fresh(t)
		for _, s := range w.history {
			if err := s.do(twin); err != nil {
				t.Fatal(err)
			}
		}
		_, horizon := w.h.Len()
		add := rapid.Permutation(sortedNames(w.parked)).Draw(t, "order")
		for i := range horizon - len(add) {
			w.parked[fmt.Sprintf("spare%d", i)] = 7
			add = append(add, fmt.Sprintf("spare%d", i))
		}
		at := where(w.h, keys)
		tracked := make([]bool, len(keys))
		for i, key := range keys {
			var n Node
			n, tracked[i] = w.h.Track(key)
			if w.h.Name(n) != at[i] {
				t.Fatalf("key %#x: Track says %q, Lookup %q", key, w.h.Name(n), at[i])
			}
		}
		for _, name := range add {
			if err := twin.Add(name, w.parked[name]); err != nil {
				t.Fatal(err)
			}
			for i, now := range where(twin, keys) {
				if !tracked[i] && now != at[i] {
					t.Fatalf("adding %q moved key %#x from %q to %q, not tracked", name, keys[i], at[i], now)
				}
			}
		}
		for i, now := range where(twin, keys) {
			if tracked[i] != (now != at[i]) {
				t.Fatalf("key %#x: track %v, but %q becomes %q", keys[i], tracked[i], at[i], now)
			}
		}
	})
}

// The kinds whose hash is a function of the sets alone: however they came
// about, they equal a hash made at once.
func TestHistoryDoesNotMatter(t *testing.T) {
	keys := someKeys(3, 1000)
	perKind(t, []Kind{KindTableHRW, KindRing, KindHRW}, func(t *rapid.T, k Kind) {
		w := drawWorld(t, k)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.drawStep(t)
		}
		var working []Server
		for _, name := range rapid.Permutation(sortedNames(w.working)).Draw(t, "order") {
			working = append(working, Server{name, w.working[name]})
		}
		fresh, err := New(k, w.options, working...)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range rapid.Permutation(sortedNames(w.parked)).Draw(t, "order") {
			if err := fresh.Park(name, w.parked[name]); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range keys {
			a, ta := w.h.Track(key)
			b, tb := fresh.Track(key)
			if w.h.Name(a) != fresh.Name(b) || ta != tb {
				t.Fatalf("key %#x: %q %v, made at once %q %v", key, w.h.Name(a), ta, fresh.Name(b), tb)
			}
		}
	})
}

// The order in which New gets servers does not matter, for any kind.
func TestOrderOfServersDoesNotMatter(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	keys := someKeys(seed, 2000)
	for _, k := range Kinds() {
		given := servers(40)
		h, err := New(k, optionsFor(k, 40), given...)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		want := where(h, keys)
		for range 3 {
			r.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
			h, err := New(k, optionsFor(k, 40), given...)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range where(h, keys) {
				if name != want[i] {
					t.Fatalf("%s, seed %d: key %#x: %q, want %q", k, seed, keys[i], name, want[i])
				}
			}
		}
	}
}

// What is wrong says so, and changes nothing.
func TestErrors(t *testing.T) {
	keys := someKeys(5, 500)
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			h, err := New(k, optionsFor(k, 2), Server{"a", 1}, Server{"b", 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Park("p", 1); err != nil {
				t.Fatal(err)
			}
			before := where(h, keys)
			for _, c := range []struct {
				what string
				err  error
				want error
			}{
				{"add working", h.Add("a", 1), ErrDuplicate},
				{"park parked", h.Park("p", 1), ErrDuplicate},
				{"remove unknown", h.Remove("x"), ErrUnknown},
				{"weigh unknown", h.SetWeight("x", 1), ErrUnknown},
				{"add with 0", h.Add("x", 0), ErrWeight},
				{"add parked with 0", h.Add("p", 0), ErrWeight},
				{"park with -1", h.Park("x", -1), ErrWeight},
				{"park working with 65536", h.Park("a", 65536), ErrWeight},
				{"weigh 0", h.SetWeight("a", 0), ErrWeight},
			} {
				if !errors.Is(c.err, c.want) {
					t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
				}
			}
			if !k.Weighted() {
				if err := h.Add("x", 2); !errors.Is(err, ErrWeight) {
					t.Errorf("unequal weight: %v", err)
				}
				if err := h.SetWeight("a", 2); !errors.Is(err, ErrWeight) {
					t.Errorf("unequal weight: %v", err)
				}
			}
			if w, hz := h.Len(); w != 2 || hz != 1 {
				t.Errorf("Len %d, %d after errors", w, hz)
			}
			if !slices.Equal(before, where(h, keys)) {
				t.Error("an error moved keys")
			}
			for _, c := range []struct {
				servers []Server
				want    error
			}{
				{[]Server{{"a", 1}, {"a", 1}}, ErrDuplicate},
				{[]Server{{"a", 0}}, ErrWeight},
				{[]Server{{"a", -1}}, ErrWeight},
				{[]Server{{"a", 65536}}, ErrWeight},
			} {
				if _, err := New(k, optionsFor(k, 2), c.servers...); !errors.Is(err, c.want) {
					t.Errorf("%v: %v, want %v", c.servers, err, c.want)
				}
			}
		})
	}
	if _, err := New("crush", Options{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown kind: %v", err)
	}
	if _, err := New(KindAnchor, Options{Horizon: -1}); !errors.Is(err, ErrCapacity) {
		t.Errorf("negative horizon: %v", err)
	}
	for _, rows := range []int{1, 1000, MaxTableRows * 2} {
		if _, err := New(KindTableHRW, Options{Rows: rows}); !errors.Is(err, ErrRows) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

// Capacity and horizon of the kinds that have buckets.
func TestCapacity(t *testing.T) {
	for _, k := range []Kind{KindAnchor, KindDx} {
		t.Run(string(k), func(t *testing.T) {
			if _, err := New(k, Options{Capacity: 2}, servers(3)...); !errors.Is(err, ErrCapacity) {
				t.Errorf("3 in 2: %v", err)
			}
			if _, err := New(k, Options{Capacity: 4, Horizon: 2}, servers(3)...); !errors.Is(err, ErrHorizon) {
				t.Errorf("3 and a horizon of 2 in 4: %v", err)
			}
			h, err := New(k, Options{Capacity: 4, Horizon: 1}, servers(2)...)
			if err != nil {
				t.Fatal(err)
			}
			steps := []struct {
				step
				want error
			}{
				{step{"park", "p", 1}, nil},          // 2 work, p and a spare
				{step{"park", "q", 1}, ErrHorizon},   // none is left
				{step{"add", "x", 1}, nil},           // takes the spare
				{step{"add", "y", 1}, ErrHorizon},    // p holds the last
				{step{"park", "server-0", 1}, nil},   // 2 work, 2 parked
				{step{"add", "p", 1}, nil},           // 3, 1
				{step{"add", "server-0", 1}, nil},    // 4
				{step{"add", "z", 1}, ErrCapacity},   // full
				{step{"park", "z", 1}, ErrCapacity},  // full
				{step{"remove", "server-1", 0}, nil}, // 3
				{step{"add", "z", 1}, nil},           // 4
				{step{"remove", "server-1", 0}, ErrUnknown},
			}
			for _, s := range steps {
				if err := s.do(h); !errors.Is(err, s.want) {
					// Dx does not tell a full horizon from full buckets.
					if k == KindDx && errors.Is(err, ErrCapacity) && s.want == ErrHorizon {
						continue
					}
					t.Fatalf("%+v: %v, want %v", s.step, err, s.want)
				}
			}
			if w, hz := h.Len(); w != 4 || hz != 0 {
				t.Errorf("Len %d, %d, want 4, 0", w, hz)
			}
		})
	}
}

// With nobody working there is no server, but a horizon that would take all.
func TestAllDown(t *testing.T) {
	for _, k := range Kinds() {
		h, err := New(k, optionsFor(k, 2), servers(2)...)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		check := func(track bool) {
			t.Helper()
			for _, key := range someKeys(6, 50) {
				if n := h.Lookup(key); n != NoNode {
					t.Fatalf("%s: Lookup finds %d", k, n)
				}
				if n, got := h.Track(key); n != NoNode || got != track {
					t.Fatalf("%s: Track finds %d, %v, want none, %v", k, n, got, track)
				}
			}
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
		}
		do(h.Park("server-0", 1))
		do(h.Park("server-1", 1))
		check(true)
		do(h.Remove("server-0"))
		do(h.Remove("server-1"))
		check(false)
		do(h.Add("back", 1))
		for _, name := range where(h, someKeys(6, 50)) {
			if name != "back" {
				t.Fatalf("%s: %q, want back", k, name)
			}
		}
		if h, err = New(k, optionsFor(k, 0)); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		check(false)
	}
}
