package pcc

import (
	"fmt"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

// cookies is cheetah: the cookie that a connection's packets carry, made and
// read by scheme/cheetah, names its server's slot. Slots are given, kept and
// used again as the controller does it (slots). Keys do not change during a
// run. Round robin chooses, at each balancer for itself.
type cookies struct {
	setup  Setup
	layout cheetah.Layout
	key    hash.Key
	tables Versions[[]uint32]
	turns  map[uint16]*policy.State // by balancer
	slots  slots
	// working are the servers of the newest version: a packet whose cookie
	// names no slot goes to one of them, by its hash.
	working []uint16
}

// echoed is how old the timestamp is that a client sends back, in ms.
const echoed = 100

func newCookies(s Setup) *cookies {
	r := sim.Stream(s.Seed, "cookies")
	return &cookies{
		setup: s, layout: cheetah.Layout{Bits: cheetah.MaxBits},
		key: hash.Key{r.Uint64(), r.Uint64()}, turns: map[uint16]*policy.State{}, slots: newSlots(s),
	}
}

func (k *cookies) Update(p *Pool, now sim.Time) error {
	if n := len(p.State); n > k.layout.Slots() {
		return fmt.Errorf("%d servers: a cookie of %d bits names %d at most; take fewer", n, k.layout.Bits, k.layout.Slots())
	}
	members := make([]policy.Member, len(p.Working))
	for i, n := range p.Working {
		members[i] = policy.Member{Slot: n, Weight: 1, Name: k.setup.serverName(int(n))}
	}
	k.tables.Put(policy.Table(policy.RR, members))
	k.working = p.Working
	k.slots.update(p, now)
	return nil
}

func (k *cookies) Forget(oldest int) { k.tables.Forget(oldest) }

func (k *cookies) hash(key uint64) uint64 {
	return hash.IPv4(&k.key, uint32(key), uint32(key>>32))
}

func (k *cookies) Open(c *Conns) {
	for i, key := range c.Key {
		turn := k.turns[c.Via[i]]
		if turn == nil {
			turn = &policy.State{}
			k.turns[c.Via[i]] = turn
		}
		e, _ := policy.Choose(policy.RR, k.tables.At(c.Held(i)), turn, nil)
		c.First[i] = policy.EntrySlot(e)
		slot := k.slots.open(c.First[i])
		c.Note[i] = k.layout.Encode(k.hash(key), uint32(slot), 0)
	}
}

// Serve: the server stamps each packet anew with the connection's cookie, so
// that the timestamp which the client sends back is never old.
func (k *cookies) Serve(c *Conns) {
	now := uint32(c.Now / sim.Millisecond)
	for i, key := range c.Key {
		ts := k.layout.WireTS(c.Note[i], now-echoed)
		owner, ok := k.slots.owner(k.layout.Value(k.hash(key), k.layout.Field(ts, now)))
		if !ok {
			owner = k.working[key%uint64(len(k.working))]
		}
		c.At[i] = owner
	}
}

// Close: agents count the connections that live.
func (k *cookies) Close(c *Conns) {
	for i, key := range c.Key {
		k.slots.close(k.layout.Value(k.hash(key), c.Note[i]))
	}
}

// cookiesWhy is what a statement on cheetah's 0 must be read with.
const cookiesWhy = "servers get a slot when they are added, and it is another's only after its rest and when no connection of it lives, as the controller has it; that all balancers know a slot before any gives it connections (state joining) is assumed, and keys do not change"
