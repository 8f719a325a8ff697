package pcc

import (
	"math"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// tracking is jet and full-ct by the program's own parts: a consistent hash as
// bpf/lb has it (placer), and its flow table, one at each balancer. jet
// remembers the connections that a change of the pool could move, if a standby
// server is added or a working one drains; full-ct remembers all, and has
// nothing else to find a connection by than where new ones go.
//
// A connection that was found in a table a short while ago need not be looked
// for again, if nothing gave way there since: its Note says where and when.
type tracking struct {
	setup  Setup
	jet    bool
	tables placers
	flows  []flowTable // by balancer
	// sent is up to which SYN of Setup.Flood was sent.
	sent uint64
}

type flowTable struct {
	*jet.Flows
	// lost is the last time, in units, at which a live entry gave way.
	lost int64
}

// fresh is for how long, in units of the table, a connection that was found is
// not looked for again: short beside what it takes to fill a line of the table
// anew, so that entries of live connections are never the oldest.
const fresh = 10

func newTracking(s Setup, jet bool, kind chash.Kind) *tracking {
	return &tracking{setup: s, jet: jet, tables: placers{setup: s, kind: kind}}
}

func (t *tracking) Update(p *Pool, _ sim.Time) error { return t.tables.update(p) }

func (t *tracking) Forget(oldest int) { t.tables.Forget(oldest) }

// Join: a table has room for Setup.Entries of each connection that will be in
// it.
func (t *tracking) Join(balancer int, connections float64) {
	for len(t.flows) <= balancer {
		t.flows = append(t.flows, flowTable{})
	}
	if t.jet {
		connections *= float64(t.setup.Standby) / float64(t.setup.Working+t.setup.Standby)
	}
	t.flows[balancer] = flowTable{jet.NewFlows(int(math.Ceil(connections * t.setup.Entries / jet.Ways))), -1}
}

func (t *tracking) Leave(balancer int) { t.flows[balancer] = flowTable{} }

// units is the time as flow tables have it, but without an end.
func units(now sim.Time) int64 { return int64(now / (jet.Unit * sim.Millisecond)) }

// found notes that connection i was found at its balancer.
func found(c *Conns, i int, now int64) { c.Note[i] = uint32(c.Via[i])<<16 | uint32(uint16(now)) }

// there: connection i was found at its balancer lately, and nothing gave way
// there since.
func (f *flowTable) there(c *Conns, i int, now int64) bool {
	age := int64(uint16(now) - uint16(c.Note[i]))
	return uint16(c.Note[i]>>16) == c.Via[i] && age < fresh && now-age > f.lost
}

func (t *tracking) Open(c *Conns) {
	t.flood(c)
	now := units(c.Now)
	for i, key := range c.Key {
		f := &t.flows[c.Via[i]]
		slot, held, track := t.tables.At(c.Held(i)).Place(key)
		if !t.enter(f, key, slot, now, track) {
			slot = held
		}
		c.First[i] = uint16(slot)
		if f.Lookup(key, uint16(now)) >= 0 { // the handshake's last packet confirms it
			found(c, i, now)
		} else {
			c.Note[i] = uint32(c.Via[i])<<16 | uint32(uint16(now-fresh))
		}
	}
}

// flood is the SYNs of an attack since the last call: they come to all
// balancers alike. Where they are many times what the tables hold, only the
// last ones are sent: nothing is left of those before.
func (t *tracking) flood(c *Conns) {
	from, to := t.sent, t.setup.Flood.Sent(c.Now)
	if t.sent = to; to == from {
		return
	}
	var alive []int
	entries := 0
	for b, f := range t.flows {
		if f.Flows != nil {
			alive = append(alive, b)
			entries += len(f.Sets) * jet.Ways
		}
	}
	most := floodRounds * entries
	if t.jet { // which remembers the smaller part of them
		most *= (t.setup.Working + t.setup.Standby) / t.setup.Standby
	}
	from = max(from, to-min(to, uint64(most)))
	now := units(c.Now)
	for n := from; n < to; n++ {
		b := alive[n%uint64(len(alive))]
		key := workload.FloodKey(t.setup.Seed, n)
		version := c.Version
		if version == Mixed {
			version = c.View[b]
		}
		slot, _, track := t.tables.At(version).Place(key)
		t.enter(&t.flows[b], key, slot, now, track)
	}
}

// floodRounds is how many times over a flood fills the tables, at most, from
// one call to the next: the chance of a line of seven entries that fewer than
// seven of so many come to it is 10^-15.
const floodRounds = 8

// enter makes an entry, if the connection needs one. False: there was no room.
func (t *tracking) enter(f *flowTable, key uint64, slot int, now int64, track bool) bool {
	if t.jet && !track {
		return true
	}
	at := &f.Sets[f.Index(key)]
	before := *at
	var became jet.Inserted
	if t.jet {
		became = f.Insert(key, slot, uint16(now), jet.New)
	} else {
		became = f.InsertLRU(key, slot, uint16(now), jet.New)
	}
	if became == jet.Replaced {
		for i, e := range before.Entry {
			if at.Entry[i] != e && e.State() == jet.Confirmed {
				f.lost = now
			}
		}
	}
	return became != jet.Full
}

func (t *tracking) Serve(c *Conns) {
	now := units(c.Now)
	for i, key := range c.Key {
		f := &t.flows[c.Via[i]]
		if c.First[i] == Broken || f.there(c, i, now) {
			c.At[i] = c.First[i]
			continue
		}
		if slot := f.Lookup(key, uint16(now)); slot >= 0 {
			c.At[i] = uint16(slot)
			found(c, i, now)
			continue
		}
		slot, held, track := t.tables.At(c.Held(i)).Place(key)
		if t.jet {
			slot = held
		}
		t.enter(f, key, slot, now, track)
		c.At[i] = uint16(slot)
	}
}

// Close is FIN: entries fade.
func (t *tracking) Close(c *Conns) {
	now := uint16(units(c.Now))
	for i, key := range c.Key {
		if c.First[i] == Broken {
			continue
		}
		if e := t.flows[c.Via[i]].Find(key, now, true); e != nil {
			jet.Touch(e, now, true, jet.Close, 0)
		}
	}
}
