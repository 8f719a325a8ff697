package l2

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Everybody has the same order, whatever order he knows the names in; without one of
// them the others are as they were; and each is first as often as any other.
func TestOrder(t *testing.T) {
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "four") {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
		}
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")))
	})
	rapid.Check(t, func(t *rapid.T) {
		a := address.Draw(t, "address")
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`lb[0-9]{1,3}`), 1, 8, rapid.ID).Draw(t, "names")
		is := Order(a, names)
		if again := Order(a, rapid.Permutation(names).Draw(t, "otherwise")); !slices.Equal(is, again) {
			t.Fatalf("%v and %v", is, again)
		}
		gone := rapid.SampledFrom(names).Draw(t, "gone")
		without := func(all []string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == gone })
		}
		if rest := Order(a, without(names)); !slices.Equal(rest, without(is)) {
			t.Fatalf("without %s %v, before %v", gone, rest, is)
		}
	})
	first := map[string]int{}
	for i := range 3000 {
		first[Order(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), []string{"lb1", "lb2", "lb3"})[0]]++
	}
	for name, n := range first {
		if n < 900 || n > 1100 {
			t.Errorf("%s is first for %d of 3000", name, n)
		}
	}
}

// What each thing that a balancer knows makes it do.
func TestDecide(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.10")
	all := []string{"lb1", "lb2", "lb3"}
	turns := Order(a, all)
	first, second, third := turns[0], turns[1], turns[2]
	const long = time.Hour
	well := func(me, holder string) known {
		return known{address: a, me: me, fit: true, since: long, fits: all, holder: holder, free: long, leased: true, claimed: long, mayMove: true,
			answers: me == holder, missed: map[string]int{}}
	}
	with := func(k known, change func(*known)) known { change(&k); return k }
	unheard := func(n int) func(*known) {
		return func(k *known) { k.missed[k.holder] = n; k.mayMove = false }
	}
	for what, c := range map[string]struct {
		k    known
		want verdict
	}{
		"the holder goes on":                           {well(second, second), verdict{answer: true}},
		"under a new lease":                            {with(well(second, second), func(k *known) { k.stale = true }), verdict{answer: true, write: take}},
		"another holds":                                {well(third, second), verdict{}},
		"another took it":                              {with(well(third, second), func(k *known) { k.answers = true }), verdict{}},
		"the first one has it moved":                   {well(first, second), verdict{write: take, moves: true}},
		"not while others move":                        {with(well(first, second), func(k *known) { k.mayMove = false }), verdict{}},
		"not before it has settled":                    {with(well(first, second), func(k *known) { k.since = settled - 1 }), verdict{}},
		"nobody's: the first one":                      {with(well(first, ""), func(k *known) { k.free = 0 }), verdict{write: take}},
		"nobody's: the second waits":                   {with(well(second, ""), func(k *known) { k.free = freeStep - 1 }), verdict{}},
		"nobody's: not for long":                       {with(well(second, ""), func(k *known) { k.free = freeStep }), verdict{write: take}},
		"nobody's, and it answers":                     {with(well(third, ""), func(k *known) { k.answers, k.free = true, 0 }), verdict{answer: true, write: take}},
		"the store does not know that it may":          {with(well("lb4", ""), func(k *known) {}), verdict{}},
		"silent":                                       {with(well(first, second), unheard(missed)), verdict{answer: true, write: take, urgent: true}},
		"not yet silent":                               {with(well(first, second), unheard(missed-1)), verdict{}},
		"silent, and the next is before it":            {with(well(third, first), unheard(missed)), verdict{}},
		"silent for longer":                            {with(well(third, first), unheard(missed+missedMore)), verdict{answer: true, write: take, urgent: true}},
		"silent, with more patience":                   {with(with(well(first, second), unheard(missed)), func(k *known) { k.patience = map[string]int{second: 8} }), verdict{}},
		"not fit, another may":                         {with(well(second, second), func(k *known) { k.fit, k.since = false, 0 }), verdict{answer: true, write: leave}},
		"not fit, and nobody takes it":                 {with(well(second, ""), func(k *known) { k.fit, k.since, k.answers = false, parting, true }), verdict{}},
		"not fit, and another has it":                  {with(well(second, first), func(k *known) { k.fit, k.since, k.answers = false, 0, true }), verdict{}},
		"no store: the holder goes on":                 {with(well(second, second), func(k *known) { k.leased = false }), verdict{answer: true}},
		"no store: until it hears another":             {with(well(second, second), func(k *known) { k.leased, k.claimed, k.claimant = false, 0, third }), verdict{}},
		"no store: nothing moves":                      {with(well(first, second), func(k *known) { k.leased = false }), verdict{}},
		"no store: silent":                             {with(with(well(first, second), unheard(missed)), func(k *known) { k.leased = false }), verdict{answer: true, write: take, urgent: true}},
		"no store: silent, and another was heard":      {with(with(well(first, second), unheard(missed)), func(k *known) { k.leased, k.claimed = false, 0 }), verdict{}},
		"no store: what it took it keeps":              {with(with(well(third, first), unheard(missed)), func(k *known) { k.leased, k.answers, k.taken = false, true, true }), verdict{answer: true}},
		"no store: two took it, and it is before":      {with(with(well(second, first), unheard(missed)), func(k *known) { k.leased, k.answers, k.taken, k.claimed, k.claimant = false, true, true, 0, third }), verdict{answer: true}},
		"no store: two took it, and it is behind":      {with(with(well(third, first), unheard(missed)), func(k *known) { k.leased, k.answers, k.taken, k.claimed, k.claimant = false, true, true, 0, second }), verdict{}},
		"no store: took it, and a stranger was heard":  {with(with(well(third, first), unheard(missed)), func(k *known) { k.leased, k.answers, k.taken, k.claimed = false, true, true, 0 }), verdict{}},
		"no store: nobody's stays with whom it is":     {with(well(third, ""), func(k *known) { k.leased, k.answers = false, true }), verdict{answer: true}},
		"no store: not fit, the store is told nothing": {with(well(second, second), func(k *known) { k.fit, k.since, k.leased = false, long, false }), verdict{}},
	} {
		if is := decide(c.k); is != c.want {
			t.Errorf("%s: %+v, want %+v", what, is, c.want)
		}
	}
}

// Of all that know the same, at most one takes an address at any moment, and one does
// in the end.
func TestOneTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "address")})
		var names []string
		for i := range rapid.IntRange(1, 6).Draw(t, "balancers") {
			names = append(names, fmt.Sprint("lb", i))
		}
		holder := rapid.SampledFrom(append(names, "")).Draw(t, "holder")
		silent := holder != "" && rapid.Bool().Draw(t, "silent")
		var takers []string
		for step := 0; step < 40 && len(takers) == 0; step++ {
			for _, me := range names {
				if me == holder {
					continue
				}
				k := known{address: a, me: me, fit: true, since: time.Hour, fits: names, holder: holder, free: time.Duration(step) * askInterval,
					leased: true, claimed: time.Hour, mayMove: true, missed: map[string]int{}}
				if silent {
					k.missed[holder] = step
				}
				if decide(k).write == take {
					takers = append(takers, me)
				}
			}
		}
		want := 1
		switch {
		case len(names) == 1 && holder != "":
			want = 0 // nobody is left
		case holder != "" && !silent && Order(a, names)[0] == holder:
			want = 0 // all is well
		}
		if len(takers) != want {
			t.Fatalf("%v take what %q holds, silent %t, want %d", takers, holder, silent, want)
		}
	})
}
