package proof

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

// Every encoder and every decoder, one by one and without symmetry: the same
// numbers as with classes.
func TestCountWithoutSymmetry(t *testing.T) {
	for servers := 2; servers <= 4; servers++ {
		for cookies := 1; cookies <= servers+1; cookies++ {
			got, err := NewCount(context.Background(), servers, cookies)
			if err != nil {
				t.Fatal(err)
			}
			want := Count{Servers: servers, Cookies: cookies}
			for e := range sequences(servers, cookies) {
				want.Encoders++
				survivors, decoders := int64(0), int64(0)
				for d := range sequences(cookies, servers) {
					decoders++
					kept := 0
					for s := range servers {
						if d[e[s]] == s {
							kept++
						}
					}
					if kept == servers {
						survivors++
					}
					want.Best = max(want.Best, kept)
				}
				want.Decoders = decoders
				want.Survivors += survivors
				if survivors > 0 {
					want.FullSet++
				}
				if everySet(e, cookies, numbers(servers)) {
					want.EverySet++
				}
			}
			if got != want {
				t.Errorf("%+v, without symmetry %+v", got, want)
			}
		}
	}
}

// Whole decoders, a server for each pair of cookie and active set: an encoder
// has one that survives every change if and only if it has one for each set.
func TestWholeDecoders(t *testing.T) {
	for _, x := range []struct{ servers, cookies int }{{2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}} {
		sets := subsets(x.servers)
		for e := range sequences(x.servers, x.cookies) {
			survives := false
			for d := range sequences(x.cookies*len(sets), x.servers) {
				if keepsAll(d, e, sets, x.cookies) {
					survives = true
					break
				}
			}
			if got := everySet(e, x.cookies, numbers(x.servers)); got != survives {
				t.Errorf("%+v, encoder %v: everySet %v, of whole decoders %v", x, e, got, survives)
			}
		}
	}
}

// keepsAll: under each set d names active servers for the cookies of active
// servers' connections, and those are their own.
func keepsAll(d, e []int, sets [][]int, cookies int) bool {
	for i, set := range sets {
		for _, s := range set {
			if d[i*cookies+e[s]] != s {
				return false
			}
		}
	}
	return true
}

// Two identifiers do not help each other: of all encoders and decoders of both
// together, as many survive as the square of one's.
func TestTwoIdentifiers(t *testing.T) {
	for cookies := 1; cookies <= 3; cookies++ {
		const servers = 2
		survivors := int64(0)
		for e := range sequences(2*servers, cookies) { // identifier, first server
			for d := range sequences(2*cookies, servers) { // identifier, cookie
				ok := true
				for r := range 2 {
					for s := range servers {
						ok = ok && d[r*cookies+e[r*servers+s]] == s
					}
				}
				if ok {
					survivors++
				}
			}
		}
		one, err := NewCount(context.Background(), servers, cookies)
		if err != nil {
			t.Fatal(err)
		}
		if survivors != one.Survivors*one.Survivors {
			t.Errorf("%d values: %d survive for two identifiers, %d for one", cookies, survivors, one.Survivors)
		}
	}
}

// A cover by boxes is what enumeration of all balancers with so many states of
// memory finds.
func TestStates(t *testing.T) {
	for _, x := range []struct{ servers, cookies, connections int }{
		{2, 1, 1}, {2, 1, 2}, {2, 2, 2}, {3, 1, 1}, {3, 2, 1}, {3, 3, 1}, {3, 2, 2}, {2, 1, 3},
	} {
		if got, want := States(x.servers, x.cookies, x.connections), statesByDecoders(x.servers, x.cookies, x.connections); got != want {
			t.Errorf("%+v: %d states, enumeration of decoders %d", x, got, want)
		}
	}
}

func statesByDecoders(servers, cookies, connections int) int {
	for n := 1; ; n++ {
		one := cookies * connections // entries of a state's decoder
	next:
		for d := range sequences(n*one, servers) {
			for past := range sequences(connections, servers) {
				if !slices.ContainsFunc(numbers(n), func(state int) bool {
					for r, s := range past {
						at := state*one + r*cookies
						if !slices.Contains(d[at:at+cookies], s) {
							return false
						}
					}
					return true
				}) {
					continue next
				}
			}
			return n
		}
	}
}

func TestReach(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, name := range policies {
		on, err := reach(name, 3, r.Uint64(), histories, r)
		if err != nil {
			t.Fatal(err)
		}
		least, most := 3, 3
		switch name {
		case policy.Hash:
			least, most = 1, 1
		case policy.HashBit:
			least, most = 1, 2 // both hashes may name one server
		}
		if len(on) < least || len(on) > most {
			t.Errorf("seed %d: %s puts one connection on %v of 3 servers, want %d to %d of them", seed, name, on, least, most)
		}
	}
}

func TestRun(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 1, 2} {
		o := &Options{Servers: 4, Identifiers: 4}
		r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 2, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			if !c.Holds {
				t.Errorf("%s: %g, want %g to %g", c.What, c.Ours, c.Low, c.High)
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if string(first) != string(b) {
			t.Errorf("%d workers: not the same bytes", workers)
		}
	}
}

func TestCheck(t *testing.T) {
	for flag, o := range map[string]Options{
		"--servers 1": {Servers: 1, Identifiers: 1}, "--servers 8": {Servers: 8, Identifiers: 1}, "--identifiers 0": {Servers: 2},
	} {
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), flag+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := Kinds[0].New()
	if r, err := o.Run(ctx, sim.Common{Seed: 1, Seeds: 1}); err == nil || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}
