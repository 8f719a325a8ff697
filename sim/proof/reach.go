package proof

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
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
	name  string
	hash  chash.Hash
	names []string // by slot
	table []uint32
	state policy.State
	conns []int32
}

func newChooser(name string, servers int, r *rand.Rand) (*chooser, error) {
	c := &chooser{name: name, conns: make([]int32, servers), state: policy.State{Seed: r.Uint64}}
	var members []policy.Member
	for s := range servers {
		c.names = append(c.names, strconv.Itoa(s))
		members = append(members, policy.Member{Slot: uint16(s), Weight: 1, Name: c.names[s]})
	}
	if c.table = policy.Table(name, members); name == policy.HashBit {
		c.table = policy.Table(policy.P2C, members)
	}
	if name != policy.Hash {
		return c, nil
	}
	working := make([]chash.Server, servers)
	for s := range working {
		working[s] = chash.Server{Name: members[s].Name, Weight: 1}
	}
	var err error
	c.hash, err = chash.New(chash.KindAnchor, chash.Options{}, working...)
	return c, err
}

// open puts a new connection on a server and returns its slot.
func (c *chooser) open(identifier uint64) int {
	key := sim.SplitMix(identifier)
	var slot int
	switch c.name {
	case policy.Hash:
		slot = slices.Index(c.names, c.hash.Name(c.hash.Lookup(key)))
	case policy.HashBit:
		entry, _, _ := policy.ChooseHashBit(key, c.table, c.load)
		slot = int(policy.EntrySlot(entry))
	default:
		entry, _ := policy.Choose(c.name, c.table, &c.state, c.load)
		slot = int(policy.EntrySlot(entry))
	}
	c.conns[slot]++
	return slot
}

// load is how many connections a slot has.
func (c *chooser) load(slot uint16) int32 { return c.conns[slot] }

// close ends a connection of the slot, if it has one.
func (c *chooser) close(slot int) { c.conns[slot] = max(0, c.conns[slot]-1) }
