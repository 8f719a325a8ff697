package fct

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/choose"
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
	nameHash        = choose.Hash
	nameCRC         = "hash-crc"
	nameRing        = "ring"
	nameLeastLoaded = choose.LeastLoaded
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
		return &hashed{r: r, salt: random.Uint64(), at: func(h uint64) uint16 { return choose.Modulo(h, n) }}, nil
	case nameCRC:
		return &crc{r: r}, nil
	case nameRing:
		return newRing(r, random)
	case policy.HashBit:
		return &hashed{r: r, salt: random.Uint64(), at: choose.NewHashBit(choose.Table(name, n, serverName), r.openAt).Choose}, nil
	case nameLeastLoaded:
		return &leastLoaded{r: r, random: random}, nil
	case policy.AWRR:
		return newAWRR(r, random), nil
	case policy.LeastReported:
		return &leastReported{Reports: policy.NewReports(n), random: random}, nil
	case policy.Probe:
		return &probing{r: r, pool: policy.NewProbes(n, random.IntN), latencies: make([]policy.Latencies, n)}, nil
	}
	state := policy.State{Random: random.Uint64()}
	return &walker{Policy: choose.NewPolicy(name, choose.Table(name, n, serverName), state, r.openAt)}, nil
}

func serverName(i int) string { return fmt.Sprint("server ", i) }

// openAt is how many requests a server has: what the balancer that sees all
// of them counts.
func (r *run) openAt(slot uint16) int32 { return r.each[slot].open }

// blind is the part of a chooser that listens to nobody.
type blind struct{}

func (blind) ended(sim.Time, int, int, sim.Time) {}
func (blind) reported(int, float64)              {}

// walker is a policy of the data plane: rr, p2c, least-conn.
type walker struct {
	blind
	*choose.Policy
}

func (w *walker) choose(sim.Time, int) int { return int(w.Choose()) }

// hashed goes by a uniform hash of the connection's tuple.
type hashed struct {
	blind
	r    *run
	salt uint64
	at   func(hash uint64) uint16
}

func (h *hashed) hash(request int) uint64 {
	t := h.r.q.from[request]
	return sim.SplitMix(h.salt + 0x9e3779b97f4a7c15*(uint64(t.client)<<16|uint64(t.port)))
}

func (h *hashed) choose(_ sim.Time, request int) int { return int(h.at(h.hash(request))) }

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
	names := make([]string, len(r.each))
	for i := range names {
		names[i] = fmt.Sprintf("server %d of %x", i, random.Uint64())
	}
	t, err := choose.NewByRow(chash.KindRing, len(names), chash.RowsUpTo(len(names), chash.MaxTableRows), func(i int) string { return names[i] })
	if err != nil {
		return nil, err
	}
	return &hashed{r: r, salt: random.Uint64(), at: t.Choose}, nil
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
