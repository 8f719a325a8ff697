package pcc

import (
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// placer is a consistent hash as balancers of this program have it
// (tables.Hash): it follows from the servers' states alone, whatever happened
// before, so that all balancers have the same. It says where new connections
// go, where those are that nobody remembers, and whom to remember.
type placer interface {
	Place(hash uint64) (slot, held int, track bool)
}

// placers keeps one a version.
type placers struct {
	setup Setup
	kind  chash.Kind
	Versions[placer]
}

// states are servers' in an assignment.
var states = [...]controller.State{Standby: controller.Standby, Working: controller.Active, Draining: controller.Draining}

func (t *placers) update(p *Pool) error {
	n := len(p.State)
	v := controller.VIP{Settings: vip.Settings{Scheme: vip.JET, Protocol: vip.TCP, Hash: vip.Hash(t.kind), Capacity: n}, HashRows: chash.Rows(n)}
	for n, s := range p.State {
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(n), Server: t.setup.serverName(n), Weight: 1, State: states[s]})
	}
	hash, err := tables.HashOf(&v, time.Time{})
	t.Put(hash)
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
