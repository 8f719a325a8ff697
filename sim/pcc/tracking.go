package pcc

import (
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
)

// tracking is jet and full-ct by the program's own parts: AnchorHash as
// bpf/lb walks it, and its flow table, one at each balancer. jet remembers
// the connections that a change of the pool could move, if a standby server is
// added or a working one drains; full-ct remembers all, and has nothing else to
// find a connection by than where new ones go.
type tracking struct {
	setup  Setup
	jet    bool
	tables versions[*chash.AnchorTable]
	flows  []*jet.Flows // by balancer; nil: gone
}

func newTracking(s Setup, jet bool) *tracking { return &tracking{setup: s, jet: jet} }

// bucketStates are the states as chash knows them.
var bucketStates = [...]chash.BucketState{Standby: chash.Horizon, Working: chash.Working, Draining: chash.Draining}

func (t *tracking) Update(p *Pool, _ sim.Time) error {
	states := make([]chash.BucketState, len(p.State))
	for n, s := range p.State {
		states[n] = bucketStates[s]
	}
	table, err := chash.NewAnchorTable(len(states), states)
	t.tables.put(table)
	return err
}

func (t *tracking) Forget(oldest int) { t.tables.forget(oldest) }

func (t *tracking) Join(balancer int, connections float64) {
	for len(t.flows) <= balancer {
		t.flows = append(t.flows, nil)
	}
	t.flows[balancer] = jet.NewFlows(int(connections*t.setup.Entries/jet.Ways) + 1)
}

func (t *tracking) Leave(balancer int) { t.flows[balancer] = nil }

// unit is the time as flow tables have it.
func unit(now sim.Time) uint16 { return uint16(now / (jet.Unit * sim.Millisecond)) }

func (t *tracking) Open(c *Conns) {
	u := unit(c.Now)
	for i, key := range c.Key {
		flows := t.flows[c.Via[i]]
		slot, held, track := t.tables.at(c.Held(i)).Place(key)
		if !t.enter(flows, key, slot, u, track) {
			slot = held
		}
		flows.Lookup(key, u) // the handshake's last packet confirms it
		c.First[i] = uint16(slot)
	}
}

// enter makes an entry, if the connection needs one. False: there was no room.
func (t *tracking) enter(flows *jet.Flows, key uint64, slot int, u uint16, track bool) bool {
	switch {
	case !t.jet:
		flows.InsertLRU(key, slot, u, jet.New)
	case track:
		return flows.Insert(key, slot, u, jet.New) != jet.Full
	}
	return true
}

func (t *tracking) Serve(c *Conns) {
	u := unit(c.Now)
	for i, key := range c.Key {
		if c.First[i] == Broken {
			continue
		}
		flows := t.flows[c.Via[i]]
		if slot := flows.Lookup(key, u); slot >= 0 {
			c.At[i] = uint16(slot)
			continue
		}
		slot, held, track := t.tables.at(c.Held(i)).Place(key)
		if t.jet {
			slot = held
		}
		t.enter(flows, key, slot, u, track)
		c.At[i] = uint16(slot)
	}
}

// Close is FIN: entries fade.
func (t *tracking) Close(c *Conns) {
	u := unit(c.Now)
	for i, key := range c.Key {
		if c.First[i] == Broken {
			continue
		}
		if e := t.flows[c.Via[i]].Find(key, u, true); e != nil {
			jet.Touch(e, u, true, jet.Close, 0)
		}
	}
}
