package pcc

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/sim"
)

// bucketed is beamer: the controller's own table of buckets, of which packets
// carry the previous servers; a server that does not have a packet's
// connection passes it on. Nothing is reported of who owns what.
//
// Agents know the newest generation that any balancer holds, since its packets
// show it. What comes by an older table and finds no owner is dropped.
type bucketed struct {
	chain     int // previous servers that packets carry
	buckets   int
	chainTime sim.Time
	tables    Versions[*buckets.Table]
	// any is the source for a table whose buckets are moved greedily, nil: the
	// controller moves those that moved longest ago.
	any *rand.Rand
}

// epoch is what is added to times in seconds: a table's 0 stands for "from the
// beginning".
const epoch = 1_000_000_000

// newAnyBeamer is beamer with one previous server and Faild's way to reassign:
// what choosing the oldest buckets is worth.
func newAnyBeamer(s Setup) *bucketed {
	b := newBeamer(s, 1)
	b.any = sim.Stream(s.Seed, Beamer1Any)
	return b
}

func newBeamer(s Setup, chain int) *bucketed {
	return &bucketed{chain: chain, buckets: s.Buckets * s.Working, chainTime: s.ChainTime}
}

func (b *bucketed) Update(p *Pool, now sim.Time) error {
	servers := make([]buckets.Server, len(p.State))
	for n, s := range p.State {
		servers[n].Number = uint16(n)
		if s == Working {
			servers[n].Weight = 1
		}
	}
	if p.Version == 0 {
		b.tables.Put(buckets.New(b.buckets, servers))
		return nil
	}
	if len(p.Last) == 0 {
		b.tables.Put(b.tables.Newest())
		return nil
	}
	o := buckets.Options{Now: epoch + uint32(now/sim.Second), ChainTime: uint32(b.chainTime / sim.Second)}
	t := b.tables.Newest()
	var moves []buckets.Move
	if b.any != nil {
		moves = greedy(t.Current, p, b.any)
	} else {
		moves = t.Assign(servers, o)
	}
	next, _ := t.Apply(moves, o)
	if b.chain < buckets.Chain {
		for i := range next.Previous {
			copy(next.Previous[i][b.chain:], buckets.NoPrevious[:])
		}
	}
	b.tables.Put(next)
	return nil
}

func (b *bucketed) Forget(oldest int) { b.tables.Forget(oldest) }

func (b *bucketed) Open(c *Conns) {
	for i, key := range c.Key {
		t := b.tables.At(c.Held(i))
		c.First[i] = t.Current[beamer.Bucket(key, len(t.Current))]
	}
}

// Serve is scheme/beamer's Way and, at each server on it, Decide, for a
// connection that First owns: held to them by a test.
func (b *bucketed) Serve(c *Conns) {
	// The first second, whose moves are followed now, by the servers' clock of
	// milliseconds.
	now := epoch*1000 + int64(c.Now/sim.Millisecond)
	since := uint32(max(0, (now-int64(b.chainTime/sim.Millisecond)+999)/1000))
	for i, key := range c.Key {
		held := c.Held(i)
		t := b.tables.At(held)
		at := beamer.Bucket(key, len(t.Current))
		first := c.First[i]
		c.At[i] = t.Current[at]
		if t.Current[at] == first {
			continue
		}
		if p := &t.Previous[at]; t.Since[at] >= since && (p[0] == first || p[1] == first || p[2] == first) {
			c.At[i] = first
		} else if held < c.Newest {
			c.At[i] = Dropped
		}
	}
}
