package datacentre

import (
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// tracking is jet, full-ct and full-ct-ecmp over AnchorHash as bpf/lb walks it,
// with flow tables that never forget: one for each of 500 balancers and 2,000
// VIPs would be millions, and packages pcc and tracking show what forgetting
// costs. (memory.go says how large a table must be so that this holds, and
// fills one.) A connection's note names the balancers that know it, the last
// two that made an entry of it.
type tracking struct {
	tables pcc.Versions[*chash.AnchorTable]
	all    bool // full-ct: every connection is remembered, else those that jet must
	one    bool // one balancer that everything goes through
	// live is how many of the connections that the last call of Serve saw had
	// an entry at their balancer afterwards.
	live int
}

// tracks are the schemes that track.
var tracks = map[string]tracking{pcc.JET: {}, pcc.FullCTECMP: {all: true}, pcc.FullCT: {all: true, one: true}}

func (t *tracking) entries() []uint32 { return t.tables.Newest().Entries }

// Update: vip.update makes one table for all that track.
func (t *tracking) Update(*pcc.Pool, sim.Time) error { return nil }

func (t *tracking) Forget(oldest int) { t.tables.Forget(oldest) }

func (t *tracking) Open(c *pcc.Conns) {
	for i, key := range c.Key {
		slot, _, track := t.tables.At(c.Held(i)).Place(key)
		c.First[i], c.Note[i] = uint16(slot), 0
		if track || t.all {
			c.Note[i] = known(0, t.via(c, i))
		}
	}
}

// Serve: a balancer that knows the connection sends it where it is. For one that
// does not jet takes it for a connection that nobody had to track, and held says
// where such are; full-ct has nothing but where new ones go.
func (t *tracking) Serve(c *pcc.Conns) {
	t.live = 0
	for i, key := range c.Key {
		first, via := c.First[i], t.via(c, i)
		if first == pcc.Broken {
			continue
		}
		if knows(c.Note[i], via) {
			c.At[i] = first
			t.live++
			continue
		}
		slot, held, track := t.tables.At(c.Held(i)).Place(key)
		if !t.all {
			slot = held
		}
		c.At[i] = uint16(slot)
		if track || t.all {
			c.Note[i] = known(c.Note[i], via)
			t.live++
		}
	}
}

func (t *tracking) via(c *pcc.Conns, i int) uint16 {
	if t.one {
		return 0
	}
	return c.Via[i]
}

// leave: balancers that are gone know nothing any more.
func (t *tracking) leave(note []uint32, gone []uint16) {
	if t.one {
		return
	}
	for _, b := range gone {
		for i, n := range note {
			if n&0xffff == uint32(b)+1 {
				note[i] = n &^ 0xffff
			}
			if n>>16 == uint32(b)+1 {
				note[i] &= 0xffff
			}
		}
	}
}

// known is a note in which one more balancer knows the connection.
func known(note uint32, balancer uint16) uint32 { return note<<16 | uint32(balancer) + 1 }

// knows: the balancer has an entry of the connection.
func knows(note uint32, balancer uint16) bool {
	b := uint32(balancer) + 1
	return note&0xffff == b || note>>16 == b
}
