package chash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Properties of every Hash whose kind is Minimal, over histories that a twin
// repeats, spare horizons of anchor and dx included. rapid prints the seed of
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

func randomKeys(seed uint64, n int) []uint64 {
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

// Track is what looking up in a twin with the same history says in which the
// whole horizon was added; and whoever is added of it, in whatever order,
// moves only tracked keys. On the way there no key moves but to or from the
// changed server.
func TestTrackIsExact(t *testing.T) {
	keys := randomKeys(2, 1000)
	perKind(t, minimalKinds(), func(t *rapid.T, k Kind) {
		w := drawWorld(t, k)
		at := where(w.h, keys)
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
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

// The order in which New gets servers does not matter, for any kind.
func TestOrderOfServersDoesNotMatter(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	keys := randomKeys(seed, 2000)
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

// What New refuses.
func TestNewErrors(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		options Options
		servers []Server
		want    error
	}{
		{"crush", Options{}, nil, ErrUnknown},
		{KindAnchor, Options{Horizon: -1}, nil, ErrCapacity},
		{KindAnchor, Options{}, []Server{{"a", 1}, {"b", 2}}, ErrWeight},
		{KindDx, Options{}, []Server{{"a", 1}, {"b", 2}}, ErrWeight},
		{KindTableHRW, Options{Rows: 1}, nil, ErrRows},
		{KindTableHRW, Options{Rows: 1000}, nil, ErrRows},
		{KindTableHRW, Options{Rows: MaxTableRows * 2}, nil, ErrRows},
	} {
		if _, err := New(c.kind, c.options, c.servers...); !errors.Is(err, c.want) {
			t.Errorf("%s %+v %v: %v, want %v", c.kind, c.options, c.servers, err, c.want)
		}
	}
	for _, k := range []Kind{KindAnchor, KindDx} {
		h, err := New(k, Options{}, Server{"a", 3}, Server{"b", 3})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"add": h.Add("c", 2), "park": h.Park("c", 2), "weigh": h.SetWeight("a", 2)} {
			if !errors.Is(err, ErrWeight) {
				t.Errorf("%s: %s with another weight: %v", k, what, err)
			}
		}
	}
}

// Room for the horizon, a quarter more and at least 16.
func TestDefaultCapacity(t *testing.T) {
	for _, c := range []struct{ servers, horizon, want int }{{1, 1, 17}, {100, 10, 125}, {100, 50, 150}, {0, 0, 16}} {
		if got := DefaultCapacity(c.servers, c.horizon); got != c.want {
			t.Errorf("%d servers, horizon %d: %d, want %d", c.servers, c.horizon, got, c.want)
		}
	}
	for _, k := range Kinds() {
		if k.Buckets() != (k == KindAnchor || k == KindDx) || k.SpareNumbers() && !k.Buckets() {
			t.Errorf("%s: buckets %t, spare numbers %t", k, k.Buckets(), k.SpareNumbers())
		}
		if !k.Buckets() {
			continue
		}
		h, err := New(k, Options{Horizon: 50}, servers(100)...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if err := h.Add(fmt.Sprintf("new%d", i), 1); err != nil {
				t.Fatalf("%s: new server %d of 50 in the horizon: %v", k, i, err)
			}
		}
		if err := h.Add("one more", 1); !errors.Is(err, ErrCapacity) {
			t.Errorf("%s: a 151st server: %v", k, err)
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
