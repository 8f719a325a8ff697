package fct

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/stateless"
	"github.com/fairlead/fairlead/sim"
)

// chooser is a policy at the balancer.
type chooser interface {
	// choose a server for a request.
	choose(now sim.Time, request int) int
	// ended: a request that met so many others at server i ended now and took
	// so long.
	ended(now sim.Time, i, met int, took sim.Time)
	// reported: server i's report has arrived; load is the share of time that
	// it was busy since the one before, 0 to 1.
	reported(i int, load float64)
}

// Names that are not policies of package policy.
const (
	nameHash        = policy.Hash
	nameCRC         = "hash-crc"
	nameRing        = "ring"
	nameLeastLoaded = "least-loaded"
)

// names are all choosers: in this order they are shown.
var names = []string{
	policy.RR, nameHash, nameCRC, nameRing, policy.P2C, policy.HashBit, policy.LeastConn, nameLeastLoaded,
	policy.AWRR, policy.LeastReported, policy.Probe,
}

// newChooser makes one by its name, for a run. What it draws comes from a
// stream of its name.
func newChooser(name string, seed uint64, r *run) (chooser, error) {
	random := sim.Stream(seed, "policy "+name)
	n := len(r.each)
	switch name {
	case nameHash:
		return &hashed{r: r, salt: random.Uint64(), at: func(h uint64) int { return stateless.Scale(uint32(h>>32), n) }}, nil
	case nameCRC:
		return &crc{r: r}, nil
	case nameRing:
		return newRing(r, random)
	case policy.HashBit:
		return &hashBit{hashed: hashed{r: r, salt: random.Uint64()}, table: tableOf(policy.P2C, n)}, nil
	case nameLeastLoaded:
		return &leastLoaded{r: r, random: random}, nil
	case policy.AWRR:
		return newAWRR(r, random), nil
	case policy.LeastReported:
		return &leastReported{Reports: policy.NewReports(n), random: random}, nil
	case policy.Probe:
		return &probing{r: r, pool: policy.NewProbes(n, random.IntN), latencies: make([]policy.Latencies, n)}, nil
	}
	t := &table{name: name, entries: tableOf(name, n), open: r.openAt}
	t.state.Random = random.Uint64()
	return t, nil
}

// tableOf is the data plane's table of a policy, all servers alike.
func tableOf(name string, n int) []uint32 {
	members := make([]policy.Member, n)
	for i := range members {
		members[i] = policy.Member{Slot: uint16(i), Weight: 1, Name: fmt.Sprint("server ", i)}
	}
	return policy.Table(name, members)
}

// openAt is how many requests a server has: what the balancer that sees all
// of them counts.
func (r *run) openAt(slot uint16) int32 { return r.each[slot].open }

// blind is the part of a chooser that listens to nobody.
type blind struct{}

func (blind) ended(sim.Time, int, int, sim.Time) {}
func (blind) reported(int, float64)              {}

// table is a policy of the data plane: rr, p2c, least-conn.
type table struct {
	blind
	name    string
	entries []uint32
	state   policy.State
	open    func(slot uint16) int32
}

func (t *table) choose(sim.Time, int) int {
	e, _ := policy.Choose(t.name, t.entries, &t.state, t.open)
	return int(policy.EntrySlot(e))
}

// hashed goes by a uniform hash of the connection.
type hashed struct {
	blind
	r    *run
	salt uint64
	at   func(hash uint64) int
}

func (h *hashed) hash(request int) uint64 {
	t := h.r.q.from[request]
	return sim.SplitMix(h.salt + 0x9e3779b97f4a7c15*(uint64(t.client)<<16|uint64(t.port)))
}

func (h *hashed) choose(_ sim.Time, request int) int { return h.at(h.hash(request)) }

// crc is CRC-32C of the tuple, which DPDK's hash is, modulo the servers.
type crc struct {
	blind
	r *run
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *crc) choose(_ sim.Time, request int) int {
	t := c.r.q.from[request]
	// Client 10.0.0.x asks 10.0.1.1, port 80.
	packet := [...]byte{10, 0, 0, t.client, 10, 0, 1, 1, 0, 0, 0, 80}
	binary.BigEndian.PutUint16(packet[8:], t.port)
	return int(crc32.Checksum(packet[:], castagnoli) % uint32(len(c.r.each)))
}

// newRing is consistent hashing with the data plane's ring.
func newRing(r *run, random *rand.Rand) (chooser, error) {
	members := make([]chash.Member, len(r.each))
	for i := range members {
		members[i] = chash.Member{Name: fmt.Sprintf("server %d of %x", i, random.Uint64()), Number: i, New: 1, Held: 1}
	}
	t, err := chash.Compile(chash.Spec{Kind: chash.KindRing, Rows: chash.RowsUpTo(len(members), chash.MaxTableRows)}, members)
	if err != nil {
		return nil, err
	}
	return &hashed{r: r, salt: random.Uint64(), at: func(h uint64) int {
		slot, _, _ := t.Place(h)
		return slot
	}}, nil
}

// hashBit is p2c between two hashes.
type hashBit struct {
	hashed
	table []uint32
}

func (h *hashBit) choose(_ sim.Time, request int) int {
	e, _, _ := policy.ChooseHashBit(h.hash(request), h.table, h.r.openAt)
	return int(policy.EntrySlot(e))
}

// leastLoaded knows at every moment which server has the fewest requests; of
// several, any.
type leastLoaded struct {
	blind
	r      *run
	random *rand.Rand
}

func (l *leastLoaded) choose(sim.Time, int) int {
	n := len(l.r.each)
	first := l.random.IntN(n)
	best := first
	for i := first + 1; i < first+n; i++ {
		at := i
		if at >= n {
			at -= n
		}
		if l.r.each[at].open < l.r.each[best].open {
			best = at
		}
	}
	return best
}
