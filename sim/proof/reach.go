package proof

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/choose"
)

// policies whose servers are counted in a pool that never changes.
var policies = []string{policy.Hash, policy.HashBit, policy.RR, policy.P2C, policy.LeastConn}

// reach is on which of the slots 0 to servers-1 a policy may put one and the
// same connection identifier, whatever came before: histories of other
// connections, which come and go at random, are played, each with its own
// number of them.
func reach(name string, servers int, identifier uint64, histories int, r *rand.Rand) ([]int, error) {
	var seen []int
	for range histories {
		chooser, err := newChooser(name, servers, r)
		if err != nil {
			return nil, err
		}
		for range r.IntN(4 * servers) {
			chooser.open(r.Uint64())
			if r.IntN(2) == 0 {
				chooser.close(r.IntN(servers))
			}
		}
		if s := chooser.open(identifier); !slices.Contains(seen, s) {
			seen = append(seen, s)
		}
	}
	slices.Sort(seen)
	return seen, nil
}

// chooser is a balancer that chooses servers by a policy.
type chooser struct {
	choose func(key uint64) uint16
	conns  []int32 // by slot
}

func newChooser(name string, servers int, r *rand.Rand) (*chooser, error) {
	c := &chooser{conns: make([]int32, servers)}
	load := func(slot uint16) int32 { return c.conns[slot] }
	switch name {
	case policy.Hash: // a consistent one, as the program has it
		h, err := choose.NewByKey(chash.KindAnchor, servers, 0, strconv.Itoa)
		if err != nil {
			return nil, err
		}
		c.choose = h.Choose
	case policy.HashBit:
		c.choose = choose.NewHashBit(choose.Table(name, servers, strconv.Itoa), load).Choose
	default:
		p := choose.NewPolicy(name, choose.Table(name, servers, strconv.Itoa), policy.State{Seed: r.Uint64}, load)
		c.choose = func(uint64) uint16 { return p.Choose() }
	}
	return c, nil
}

// open puts a new connection on a server and returns its slot.
func (c *chooser) open(identifier uint64) int {
	slot := int(c.choose(sim.SplitMix(identifier)))
	c.conns[slot]++
	return slot
}

// close ends a connection of the slot, if it has one.
func (c *chooser) close(slot int) { c.conns[slot] = max(0, c.conns[slot]-1) }
