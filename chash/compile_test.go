package chash

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawMembers draws members in any mixture of states; free: of any weights.
func drawMembers(t *rapid.T, free bool) []Member {
	var members []Member
	for i := range rapid.IntRange(0, 20).Draw(t, "members") {
		m := Member{Name: fmt.Sprint("s", i), Number: i * rapid.IntRange(1, 2).Draw(t, "spread")}
		if slices.ContainsFunc(members, func(o Member) bool { return o.Number == m.Number }) {
			m.Number = 40 + i
		}
		w := 1
		if free {
			w = rapid.IntRange(1, 5).Draw(t, "weight")
		}
		switch rapid.SampledFrom([]string{"active", "active", "draining", "standby", "warming up", "weight changed", "in no set"}).Draw(t, "state") {
		case "active":
			m.New, m.Held, m.Horizon = w, w, w
		case "draining":
			m.Held, m.Horizon = w, w
		case "standby":
			m.Horizon = w
		case "warming up":
			m.New, m.Horizon = w, w
		case "weight changed":
			m.New, m.Held = w, rapid.IntRange(1, 5).Draw(t, "old weight")
			if !free {
				m.Held = 1
			}
			m.Horizon = max(m.New, m.Held)
		}
		members = append(members, m)
	}
	return members
}

func spec(k Kind) Spec { return Spec{Kind: k, Rows: 256, Capacity: 128} }

// A table's slot, held and track are those of three tables, one for each of
// the sets. (Anchor and Dx keep buckets for the sets' difference: their
// tables have their own tests.)
func TestCompileIsThreeSets(t *testing.T) {
	for _, k := range []Kind{KindTableHRW, KindRing, KindHRW, KindMaglev, KindBucket} {
		t.Run(string(k), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				// bucket's fold knows all members; who is in no set keeps its
				// place there by its neighbour's weight.
				members := drawMembers(t, k != KindBucket)
				table, err := Compile(spec(k), members)
				if err != nil {
					t.Fatal(err)
				}
				var sets [3]*Table
				for set := range sets {
					only := slices.Clone(members)
					for i, w := range weightsOf(members, set) {
						only[i].New, only[i].Held, only[i].Horizon = w, w, w
					}
					if k != KindBucket {
						only = slices.DeleteFunc(only, func(m Member) bool { return m.New == 0 })
					}
					if sets[set], err = Compile(spec(k), only); err != nil {
						t.Fatal(err)
					}
				}
				for row, e := range table.Entries {
					slot, held, all := EntrySlot(sets[0].Entries[row]), EntrySlot(sets[1].Entries[row]), EntrySlot(sets[2].Entries[row])
					if held == None {
						held = slot
					}
					track := slot != None && slot != held || held != None && held != all
					if EntryTrack(e) && k.Minimal() && reweighed(members, slot) {
						track = true // trackReweighed has reasons of its own
					}
					if want := Entry(slot, held, track); e != want {
						t.Fatalf("row %d: slot %d, held %d, track %v; want %d, %d, %v (all: %d)", row,
							EntrySlot(e), EntryHeld(e), EntryTrack(e), slot, held, track, all)
					}
				}
			})
		})
	}
}

// reweighed tells whether a slot's server has more than one weight.
func reweighed(members []Member, slot int) bool {
	return slices.ContainsFunc(members, func(m Member) bool {
		return m.Number == slot && min(m.New, m.Held) < max(m.New, m.Held, m.Horizon)
	})
}

// Every balancer computes the same table, whatever the order of members.
func TestCompileOrder(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				members := drawMembers(t, k.Weighted())
				a, err := Compile(spec(k), members)
				if err != nil {
					t.Fatal(err)
				}
				shuffled := rapid.Permutation(members).Draw(t, "order")
				b, err := Compile(spec(k), shuffled)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(a.Entries, b.Entries) {
					t.Fatal("tables differ")
				}
			})
		})
	}
}

// JET by tables: where nothing was to be tracked, the server that holds an old
// connection stays while standby servers become active, warm-ups end and new
// weights come into force, one by one in any order.
func TestCompileUntrackedStay(t *testing.T) {
	for _, k := range Kinds() {
		if !k.Minimal() {
			continue
		}
		t.Run(string(k), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				members := drawMembers(t, k.Weighted())
				if !slices.ContainsFunc(members, func(m Member) bool { return m.New > 0 && m.Held > 0 }) {
					return // who joins a pool in which nobody is warm holds all
				}
				before, err := Compile(spec(k), members)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range rapid.Permutation(indices(members)).Draw(t, "order") {
					m := &members[i]
					switch {
					case m.New == 0 && m.Held == 0 && m.Horizon > 0: // standby
						m.New, m.Held = m.Horizon, m.Horizon
					case m.New > 0: // warm, or the new weight alone
						m.Held = m.New
					}
					after, err := Compile(spec(k), members)
					if err != nil {
						t.Fatal(err)
					}
					for row, e := range before.Entries {
						now := after.Entries[row]
						if !EntryTrack(e) && EntryHeld(now) != EntryHeld(e) {
							t.Fatalf("row %d went from %d (held %d) to %d (held %d), untracked, with %v", row,
								EntrySlot(e), EntryHeld(e), EntrySlot(now), EntryHeld(now), members[i])
						}
					}
				}
			})
		})
	}
}

func indices(members []Member) []int {
	out := make([]int, len(members))
	for i := range out {
		out[i] = i
	}
	return out
}

func TestCompileErrors(t *testing.T) {
	weighed := func(name string, number, slot, held, horizon int) Member {
		return Member{Name: name, Number: number, New: slot, Held: held, Horizon: horizon}
	}
	a, b := weighed("a", 0, 1, 1, 1), weighed("b", 1, 1, 1, 1)
	for _, k := range Kinds() {
		for what, c := range map[string]struct {
			spec    Spec
			members []Member
			want    error
		}{
			"names":    {spec(k), []Member{a, weighed("a", 1, 1, 1, 1)}, ErrDuplicate},
			"numbers":  {spec(k), []Member{a, weighed("b", 0, 1, 1, 1)}, ErrDuplicate},
			"number":   {spec(k), []Member{a, weighed("b", MaxSlots, 1, 1, 1)}, ErrCapacity},
			"negative": {spec(k), []Member{a, weighed("b", -1, 1, 1, 1)}, ErrCapacity},
			"weight":   {spec(k), []Member{a, weighed("b", 1, -1, 1, 1)}, ErrWeight},
			"heavy":    {spec(k), []Member{a, weighed("b", 1, 1, 1, MaxWeight+1)}, ErrWeight},
			"rows":     {Spec{Kind: k, Rows: 1, Capacity: 9}, []Member{a, b}, ErrRows},
			"kind":     {Spec{Kind: "cheese", Rows: 64}, []Member{a, b}, ErrUnknown},
		} {
			if _, err := Compile(c.spec, c.members); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", k, what, err, c.want)
			}
		}
		// Nobody, and all in no set: rows without servers.
		for _, members := range [][]Member{nil, {weighed("a", 0, 0, 0, 0), weighed("b", 3, 0, 0, 0)}} {
			table, err := Compile(spec(k), members)
			if err != nil {
				t.Fatalf("%s, %v: %v", k, members, err)
			}
			for h := range uint64(64) {
				if slot, held, track := table.Place(h << 58); slot >= 0 || held >= 0 || track {
					t.Fatalf("%s, %v: %d, %d, %v for nobody", k, members, slot, held, track)
				}
			}
		}
	}
}

// Balancers of different releases serve the same connections, so tables may
// not change from release to release.
func TestTablesAreStable(t *testing.T) {
	want := map[Kind]uint32{KindRing: 0x7b0b0412, KindHRW: 0x655bf8b, KindMaglev: 0x5680bb4d, KindBucket: 0xd0ccce5f}
	const seed = 4
	for k, want := range want {
		r := rand.New(rand.NewPCG(seed, 0))
		var members []Member
		for i := range 30 {
			m := Member{Name: fmt.Sprint("server-", i), Number: i, New: r.IntN(3), Held: r.IntN(3), Horizon: r.IntN(3)}
			members = append(members, m)
		}
		table, err := Compile(Spec{Kind: k, Rows: 4096}, members)
		if err != nil {
			t.Fatal(err)
		}
		sum := crc32.NewIEEE()
		for _, e := range table.Entries {
			fmt.Fprintln(sum, e)
		}
		if got := sum.Sum32(); got != want {
			t.Errorf("%s: the table has changed: its sum is %#x, want %#x", k, got, want)
		}
	}
}
