package choose

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

func serverName(i int) string { return fmt.Sprint("server ", i) }

// All ways to choose put connections on all servers, none on others.
func TestReach(t *testing.T) {
	const n, connections = 7, 7000
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	count := make([]int32, n)
	open := func(server uint16) int32 { return count[server] }
	all := map[string]func(key uint64) uint16{
		Hash:           func(key uint64) uint16 { return Modulo(key, n) },
		policy.HashBit: NewHashBit(Table(policy.HashBit, n, serverName), open).Choose,
	}
	for _, name := range []string{policy.RR, policy.P2C, policy.LeastConn} {
		p := NewPolicy(name, Table(name, n, serverName), policy.State{Random: 1}, open)
		all[name] = func(uint64) uint16 { return p.Choose() }
	}
	for _, kind := range []chash.Kind{chash.KindRing, chash.KindTableHRW, chash.KindMaglev, chash.KindAnchor, chash.KindHRW, chash.KindDx} {
		c, err := NewByKey(kind, n, 100, serverName)
		if err != nil {
			t.Fatal(err)
		}
		all[string(kind)] = c.Choose
		if kind == chash.KindAnchor {
			continue
		}
		rows, err := NewByRow(kind, n, chash.Rows(n), serverName)
		if err != nil {
			t.Fatal(err)
		}
		all["rows of "+string(kind)] = rows.Choose
	}
	for _, name := range slices.Sorted(maps.Keys(all)) { // one order, so that the seed is all
		clear(count)
		for range connections {
			count[all[name](r.Uint64())]++
		}
		for s, c := range count {
			if c < connections/n/3 || c > connections/n*3 {
				t.Errorf("seed %d, %s: server %d has %d of %d", seed, name, s, c, connections)
			}
		}
	}
}

// The bit in the cookie finds the server of hash-bit again.
func TestHashBitFound(t *testing.T) {
	const n = 5
	table := Table(policy.HashBit, n, serverName)
	count := make([]int32, n)
	h := NewHashBit(table, func(server uint16) int32 { return count[server] })
	for key := range uint64(1000) {
		hash := key * 0x9e3779b97f4a7c15
		_, second, _ := policy.ChooseHashBit(hash, table, h.open)
		s := h.Choose(hash)
		if e, ok := policy.HashBitEntry(hash, table, second); !ok || policy.EntrySlot(e) != s {
			t.Fatalf("hash %x on server %d: bit %v finds %d", hash, s, second, policy.EntrySlot(e))
		}
		count[s]++
	}
}

// awrr hears of loads once an interval: a server with three times the load has
// fewer entries from then on.
func TestAWRR(t *testing.T) {
	load := []float64{1, 1}
	a := NewAWRR(2, 100, rand.New(rand.NewPCG(1, 0)), func(server int) float64 { return load[server] })
	share := func(now sim.Time) (of0 int) {
		for range 1000 {
			if a.Choose(now) == 0 {
				of0++
			}
		}
		return of0
	}
	if n := share(0); n < 490 || n > 510 {
		t.Errorf("equal loads: %d of 1000", n)
	}
	load[0] = 3
	if n := share(99); n < 490 || n > 510 {
		t.Errorf("heard before the interval's end: %d of 1000", n)
	}
	if n := share(100); n > 450 {
		t.Errorf("three times the load: %d of 1000", n)
	}
}
