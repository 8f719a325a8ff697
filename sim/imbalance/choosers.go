package imbalance

import (
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/choose"
	"github.com/fairlead/fairlead/vip"
)

// chooser says which server a new connection goes to.
type chooser func(key uint64, at sim.Time) uint16

// The names of all choosers: those that go by the connection's hash, then the
// policies.
var (
	hashNames   = []string{nameHash, "ring", "table-hrw", "maglev", "anchor", "hrw", "dx"}
	policyNames = []string{policy.RR, policy.AWRR, policy.HashBit, policy.P2C, policy.LeastConn, nameLeastLoaded}
)

const (
	nameHash        = choose.Hash
	nameLeastLoaded = choose.LeastLoaded
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

// newChooser makes a chooser by its name, that sees the servers' connections.
// What it draws comes from a stream that has its name.
func (p pool) newChooser(name string, l *levels) (chooser, error) {
	r := sim.Stream(p.seed, name)
	open := func(server uint16) int32 { return l.open[server] }
	switch name {
	case nameHash:
		return func(key uint64, _ sim.Time) uint16 { return choose.Modulo(key, p.servers) }, nil
	case nameLeastLoaded:
		return func(uint64, sim.Time) uint16 { return leastLoaded(l, r) }, nil
	case policy.HashBit:
		h := choose.NewHashBit(choose.Table(name, p.servers, p.name), open)
		return func(key uint64, _ sim.Time) uint16 { return h.Choose(key) }, nil
	case policy.AWRR:
		a := choose.NewAWRR(p.servers, p.report, r, func(server int) float64 { return float64(l.open[server]) })
		return func(_ uint64, at sim.Time) uint16 { return a.Choose(at) }, nil
	}
	if vip.Policy(name).Row().Name != "" {
		c := choose.NewPolicy(name, choose.Table(name, p.servers, p.name), policy.State{Random: r.Uint64()}, open)
		return func(uint64, sim.Time) uint16 { return c.Choose() }, nil
	}
	return p.consistent(chash.Kind(name))
}

// consistent is a consistent hash, looked up key by key.
func (p pool) consistent(kind chash.Kind) (chooser, error) {
	h, err := choose.NewByKey(kind, p.servers, p.points, p.name)
	return func(key uint64, _ sim.Time) uint16 { return h.Choose(key) }, err
}

// compiled is a consistent hash as the data plane has it: a table of rows.
func (p pool) compiled(kind chash.Kind) (chooser, error) {
	t, err := choose.NewByRow(kind, p.servers, chash.Rows(p.servers), p.name)
	return func(key uint64, _ sim.Time) uint16 { return t.Choose(key) }, err
}

// leastLoaded knows at every moment how many connections every server has; of
// several with the fewest, any.
func leastLoaded(l *levels, r *rand.Rand) uint16 {
	idlest := l.idlest()
	return idlest[r.IntN(len(idlest))]
}
