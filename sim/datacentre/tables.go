package datacentre

import (
	"fmt"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// placer is chash.Table and chash.AnchorTable.
type placer interface {
	Place(h uint64) (slot, held int, track bool)
}

// compiled is a stateless scheme by the table that a balancer's data plane
// would be given, made anew for each version. (Package pcc brings the hash up to
// date server by server, which takes too long where a twentieth of 7,000
// servers leaves at once.)
type compiled struct {
	spec   chash.Spec
	names  []string
	tables pcc.Versions[placer]
}

func (t *compiled) Update(p *pcc.Pool, _ sim.Time) error {
	if p.Version > 0 && len(p.Last) == 0 {
		t.tables.Put(t.tables.Newest())
		return nil
	}
	members := make([]chash.Member, len(p.Working))
	for i, n := range p.Working {
		members[i] = chash.Member{Name: t.names[n], Number: int(n), New: 1, Held: 1, Horizon: 1}
	}
	table, err := chash.Compile(t.spec, members)
	t.tables.Put(table)
	return err
}

func (t *compiled) Forget(oldest int)  { t.tables.Forget(oldest) }
func (t *compiled) Open(c *pcc.Conns)  { t.look(c, c.First) }
func (t *compiled) Serve(c *pcc.Conns) { t.look(c, c.At) }

// entries of the newest table.
func (t *compiled) entries() []uint32 {
	if t, ok := t.tables.Newest().(*chash.Table); ok {
		return t.Entries
	}
	return t.tables.Newest().(*chash.AnchorTable).Entries
}

func (t *compiled) look(c *pcc.Conns, at []uint16) {
	at = at[:len(c.Key)]
	if c.Version == pcc.Mixed {
		for i, key := range c.Key {
			slot, _, _ := t.tables.At(c.Held(i)).Place(key)
			at[i] = uint16(slot)
		}
		return
	}
	switch table := t.tables.At(c.Version).(type) {
	case *chash.Table:
		for i, key := range c.Key {
			slot, _, _ := table.Place(key)
			at[i] = uint16(slot)
		}
	case *chash.AnchorTable:
		for i, key := range c.Key {
			slot, _, _ := table.Place(key)
			at[i] = uint16(slot)
		}
	}
}

// anchor is the stateless scheme over AnchorHash: servers that do not work are
// removed ones, and connections go where new ones do.
type anchor struct {
	compiled
	capacity int
}

func (t *anchor) Update(p *pcc.Pool, _ sim.Time) error {
	states := make([]chash.BucketState, len(p.State))
	for n, s := range p.State {
		if states[n] = chash.Horizon; s == pcc.Working {
			states[n] = chash.Working
		}
	}
	table, err := chash.NewAnchorTable(t.capacity, states)
	t.tables.Put(table)
	return err
}

// capacity of AnchorHash for so many servers, and the horizon that jet has.
func (d *Datacentre) capacity(servers int) int {
	return chash.DefaultCapacity(servers, d.spare(servers))
}

// spare is how many servers more than it has jet is ready for at a VIP.
func (d *Datacentre) spare(servers int) int { return int(float64(servers)*d.Horizon/100 + 0.5) }

func serverNames(vip, n int, seed uint64) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("server %d of VIP %d of seed %d", i, vip, seed)
	}
	return names
}
