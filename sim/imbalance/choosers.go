package imbalance

import (
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// chooser says which server a new connection goes to.
type chooser interface {
	choose(key uint64, at sim.Time, l *levels) uint16
}

// The names of all choosers: those that go by the connection's hash, then the
// policies.
var (
	hashNames   = []string{nameHash, "ring", "table-hrw", "maglev", "anchor", "hrw", "dx"}
	policyNames = []string{policy.RR, policy.AWRR, policy.HashBit, policy.P2C, policy.LeastConn, nameLeastLoaded}
)

const (
	nameHash        = "hash"
	nameLeastLoaded = "least-loaded"
)

// pool is what choosers are made for.
type pool struct {
	servers int
	seed    uint64
	// points that a server has on the ring.
	points int
	// report is the time between two tables of awrr.
	report sim.Time
}

func (p pool) name(server int) string { return fmt.Sprintf("server %d of seed %d", server, p.seed) }

// newChooser makes a chooser by its name. What it draws comes from a stream
// that has its name.
func (p pool) newChooser(name string) (chooser, error) {
	r := sim.Stream(p.seed, name)
	switch name {
	case nameHash:
		return modulo(p.servers), nil
	case nameLeastLoaded:
		return &leastLoaded{r}, nil
	case policy.HashBit:
		return hashBit(p.table(policy.P2C)), nil
	case policy.AWRR:
		return &awrr{pool: p, random: r}, nil
	case policy.RR, policy.P2C, policy.LeastConn:
		return &byPolicy{name: name, table: p.table(name), state: policy.State{Random: r.Uint64()}}, nil
	}
	return p.consistent(chash.Kind(name))
}

// table is the data plane's table of a policy, all servers alike.
func (p pool) table(name string) []uint32 {
	members := make([]policy.Member, p.servers)
	for i := range members {
		members[i] = policy.Member{Slot: uint16(i), Weight: 1, Name: p.name(i)}
	}
	return policy.Table(name, members)
}

// modulo is what plain ECMP does, and how a paper's "uniform hash" is: every
// server has the same share of all keys.
type modulo uint32

func (m modulo) choose(key uint64, _ sim.Time, _ *levels) uint16 {
	return uint16(uint32(key>>32) % uint32(m))
}

// consistent is a consistent hash, looked up key by key.
func (p pool) consistent(kind chash.Kind) (chooser, error) {
	servers := make([]chash.Server, p.servers)
	numbers := make(map[string]uint16, p.servers)
	for i := range servers {
		servers[i] = chash.Server{Name: p.name(i), Weight: 1}
		numbers[servers[i].Name] = uint16(i)
	}
	o := chash.Options{Capacity: chash.DefaultCapacity(p.servers, 0), Replicas: p.points}
	if kind == chash.KindTableHRW {
		o.Rows = chash.Rows(p.servers)
	}
	h, err := chash.New(kind, o, servers...)
	if err != nil {
		return nil, err
	}
	c := &consistent{hash: h}
	for n := range p.servers {
		c.number = append(c.number, numbers[h.Name(chash.Node(n))])
	}
	return c, nil
}

type consistent struct {
	hash   chash.Hash
	number []uint16 // by Node
}

func (c *consistent) choose(key uint64, _ sim.Time, _ *levels) uint16 {
	return c.number[c.hash.Lookup(key)]
}

// compiled is a consistent hash as the data plane has it: a table of rows.
func (p pool) compiled(kind chash.Kind) (chooser, error) {
	members := make([]chash.Member, p.servers)
	for i := range members {
		members[i] = chash.Member{Name: p.name(i), Number: i, New: 1, Held: 1, Horizon: 1}
	}
	t, err := chash.Compile(chash.Spec{Kind: kind, Rows: chash.Rows(p.servers), Capacity: chash.DefaultCapacity(p.servers, 0)}, members)
	return (*rows)(t), err
}

type rows chash.Table

func (t *rows) choose(key uint64, _ sim.Time, _ *levels) uint16 {
	slot, _, _ := (*chash.Table)(t).Place(key)
	return uint16(slot)
}

// byPolicy is a policy as the data plane has it, at one balancer of one CPU,
// which so knows of all connections.
type byPolicy struct {
	name  string
	table []uint32
	state policy.State
}

func (b *byPolicy) choose(_ uint64, _ sim.Time, l *levels) uint16 {
	e, _ := policy.Choose(b.name, b.table, &b.state, func(slot uint16) int32 { return l.open[slot] })
	return policy.EntrySlot(e)
}

// hashBit is p2c between the two servers that the connection's hash names.
type hashBit []uint32

func (h hashBit) choose(key uint64, _ sim.Time, l *levels) uint16 {
	e, _, _ := policy.ChooseHashBit(key, h, func(slot uint16) int32 { return l.open[slot] })
	return policy.EntrySlot(e)
}

// awrr walks a table that is made anew from all servers' open connections as
// often as they report.
type awrr struct {
	pool   pool
	random *rand.Rand
	walk   byPolicy
	next   sim.Time // when the table is made anew
}

func (a *awrr) choose(key uint64, at sim.Time, l *levels) uint16 {
	if a.walk.table == nil || at >= a.next {
		reported := make([]policy.Reported, a.pool.servers)
		for i := range reported {
			reported[i] = policy.Reported{Slot: uint16(i), Load: float64(l.open[i])}
		}
		a.walk.name = policy.AWRR
		a.walk.table = policy.AWRRTable(reported, policy.AWRRAlpha, a.random.IntN)
		a.next = at - at%a.pool.report + a.pool.report
	}
	return a.walk.choose(key, at, l)
}

// leastLoaded knows at every moment how many connections every server has.
type leastLoaded struct{ random *rand.Rand }

func (c *leastLoaded) choose(_ uint64, _ sim.Time, l *levels) uint16 {
	idlest := l.idlest()
	return idlest[c.random.IntN(len(idlest))]
}
