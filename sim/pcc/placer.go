package pcc

import (
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// placer is a consistent hash as balancers of this program have it: a table
// that follows from the servers' states alone, whatever happened before, so
// that all balancers have the same. It says where new connections go, where
// those are that nobody remembers, and whom to remember.
type placer interface {
	Place(hash uint64) (slot, held int, track bool)
}

// placers keeps one a version.
type placers struct {
	setup Setup
	kind  chash.Kind
	Versions[placer]
}

// bucketStates are the states as AnchorHash's table knows them, weights those
// of the three sets of other tables: standby servers are the horizon.
var (
	bucketStates = [...]chash.BucketState{Standby: chash.Horizon, Working: chash.Working, Draining: chash.Draining}
	weights      = [...]chash.Member{Standby: {Horizon: 1}, Working: {New: 1, Held: 1, Horizon: 1}, Draining: {Held: 1, Horizon: 1}}
)

func (t *placers) update(p *Pool) error {
	if t.kind == chash.KindAnchor {
		states := make([]chash.BucketState, len(p.State))
		for n, s := range p.State {
			states[n] = bucketStates[s]
		}
		table, err := chash.NewAnchorTable(len(states), states)
		t.Put(table)
		return err
	}
	members := make([]chash.Member, len(p.State))
	for n, s := range p.State {
		members[n] = weights[s]
		members[n].Name, members[n].Number = t.setup.serverName(n), n
	}
	table, err := chash.Compile(chash.Spec{Kind: t.kind, Rows: chash.Rows(len(members)), Capacity: len(members)}, members)
	t.Put(table)
	return err
}

// placed goes by such a table and nothing else, where new connections go.
type placed struct{ tables placers }

func newPlaced(s Setup, kind chash.Kind) *placed {
	return &placed{placers{setup: s, kind: kind}}
}

func (l *placed) Update(p *Pool, _ sim.Time) error { return l.tables.update(p) }

func (l *placed) Forget(oldest int) { l.tables.Forget(oldest) }

func (l *placed) Open(c *Conns) { l.look(c, c.First) }

func (l *placed) Serve(c *Conns) { l.look(c, c.At) }

func (l *placed) look(c *Conns, at []uint16) {
	for i, key := range c.Key {
		slot, _, _ := l.tables.At(c.Held(i)).Place(key)
		at[i] = uint16(slot)
	}
}
