package threshold

import (
	"strconv"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/choose"
)

// cookies are Cheetah's, of one run.
type cookies struct {
	layout cheetah.Layout
	key    hash.Key
	field  []uint32 // by connection
}

func newCookies(conns int, seed uint64) *cookies {
	r := sim.Stream(seed, "cookies")
	return &cookies{layout: cheetah.Layout{Bits: cheetah.MaxBits}, key: hash.Key{r.Uint64(), r.Uint64()}, field: make([]uint32, conns)}
}

func (k *cookies) hash(key uint64) uint64 {
	return hash.IPv4(&k.key, uint32(key), uint32(key>>32))
}

func (k *cookies) give(id int32, key uint64, slot uint16) {
	k.field[id] = k.layout.Encode(k.hash(key), uint32(slot), 0)
}

func (k *cookies) read(id int32, key uint64) uint16 {
	return uint16(k.layout.Value(k.hash(key), k.field[id]))
}

// chosen is Cheetah with a policy that knows the servers' connections: nobody
// has to be taken out.
type chosen struct {
	*servers
	policy *choose.Policy
	cookies
	first []uint16
	key   []uint64
	counts
}

func newChosen(conns int, name string, seed uint64, s *servers) *chosen {
	state := policy.State{Seed: sim.Stream(seed, "policy "+name).Uint64}
	open := func(server uint16) int32 { return s.conns[server] }
	return &chosen{
		servers: s, policy: choose.NewPolicy(name, choose.Table(name, len(s.conns), strconv.Itoa), state, open),
		cookies: *newCookies(conns, seed), first: make([]uint16, conns), key: make([]uint64, conns),
	}
}

func (c *chosen) begin(id int32, key uint64, _ sim.Time) {
	c.first[id], c.key[id] = c.policy.Choose(), key
	c.give(id, key, c.first[id])
	c.open(c.first[id])
}

// finish: the last packet's cookie is what all before it were.
func (c *chosen) finish(id int32, _ sim.Time) {
	c.Lookups++
	if c.read(id, c.key[id]) != c.first[id] {
		c.Broken[cookie]++
	}
	c.close(c.first[id])
}

func (c *chosen) look(sim.Time) { c.sample() }
