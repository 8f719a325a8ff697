package pcc

import (
	"fmt"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

// cookies is cheetah: the cookie that a connection's packets carry, made and
// read by scheme/cheetah, names its server. Servers on standby have their slot
// already (Cheetah §3.1: AllServers is mostly static), so that balancers that
// do not yet know that a server works read its cookies, too. Round robin
// chooses, at each balancer for itself.
type cookies struct {
	setup  Setup
	layout cheetah.Layout
	key    cheetah.Key
	tables versions[[]uint32]
	turns  map[uint16]*policy.State // by balancer
}

// echoed is how old the timestamp is that a client sends back, in ms.
const echoed = 100

func newCookies(s Setup) *cookies {
	r := sim.Stream(s.Seed, "cookies")
	return &cookies{
		setup: s, layout: cheetah.Layout{Bits: cheetah.MaxBits},
		key: cheetah.Key{r.Uint64(), r.Uint64()}, turns: map[uint16]*policy.State{},
	}
}

func (k *cookies) Update(p *Pool, _ sim.Time) error {
	if n := len(p.State); n > k.layout.Slots() {
		return fmt.Errorf("%d servers: a cookie of %d bits names %d at most; take fewer", n, k.layout.Bits, k.layout.Slots())
	}
	members := make([]policy.Member, len(p.Working))
	for i, n := range p.Working {
		members[i] = policy.Member{Slot: n, Weight: 1, Name: k.setup.serverName(int(n))}
	}
	k.tables.put(policy.Table(policy.RR, members))
	return nil
}

func (k *cookies) Forget(oldest int) { k.tables.forget(oldest) }

func (k *cookies) hash(key uint64) uint64 {
	return cheetah.HashIPv4(&k.key, uint32(key), uint32(key>>32))
}

func (k *cookies) Open(c *Conns) {
	for i, key := range c.Key {
		turn := k.turns[c.Via[i]]
		if turn == nil {
			turn = &policy.State{}
			k.turns[c.Via[i]] = turn
		}
		e, _ := policy.Choose(policy.RR, k.tables.at(c.Held(i)), turn, nil)
		c.First[i] = policy.EntrySlot(e)
		c.Note[i] = k.layout.Encode(k.hash(key), uint32(c.First[i]), 0)
	}
}

// Serve: the server stamps each packet anew with the connection's cookie, so
// that the timestamp which the client sends back is never old.
func (k *cookies) Serve(c *Conns) {
	now := uint32(c.Now / sim.Millisecond)
	for i, key := range c.Key {
		ts := k.layout.WireTS(c.Note[i], now-echoed)
		c.At[i] = uint16(k.layout.Slot(k.hash(key), k.layout.Field(ts, now)))
	}
}

// cookiesWhy is what a statement on cheetah's 0 must be read with.
const cookiesWhy = "follows from what is assumed: each server keeps its slot for the whole run, and all balancers know all slots, as the controller has it; what runs is scheme/cheetah's encoding and decoding"
