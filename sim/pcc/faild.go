package pcc

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

// faildTable is Faild's (NSDI'18, §4.1): a switch's nexthops with one previous
// host each, without time and generation, so that a switch's old entries are
// followed for ever, and never known for old. They are reassigned greedily
// (stream "faild").
type faildTable struct {
	r      *rand.Rand
	n      int
	tables Versions[faildRows]
}

type faildRows struct{ current, previous []uint16 }

func newFaild(s Setup) (*faildTable, error) {
	if n := s.Working + s.Standby; n > wire.FaildMaxSlot+1 {
		return nil, fmt.Errorf("%s: %d servers: a MAC address names %d at most; take fewer, or leave %s out", Faild1, n, wire.FaildMaxSlot+1, Faild1)
	}
	return &faildTable{r: sim.Stream(s.Seed, "faild"), n: s.Buckets * s.Working}, nil
}

func (f *faildTable) Update(p *Pool, _ sim.Time) error {
	if p.Version == 0 {
		rows := faildRows{make([]uint16, f.n), make([]uint16, f.n)}
		for i := range rows.current {
			rows.current[i] = p.Working[i%len(p.Working)]
			rows.previous[i] = wire.NoServer
		}
		f.tables.Put(rows)
		return nil
	}
	old := f.tables.Newest()
	rows := faildRows{slices.Clone(old.current), slices.Clone(old.previous)}
	for _, m := range greedy(old.current, p, f.r) {
		rows.previous[m.Bucket], rows.current[m.Bucket] = rows.current[m.Bucket], m.To
	}
	f.tables.Put(rows)
	return nil
}

func (f *faildTable) Forget(oldest int) { f.tables.Forget(oldest) }

func (f *faildTable) Open(c *Conns) {
	for i, key := range c.Key {
		rows := f.tables.At(c.Held(i))
		c.First[i] = rows.current[beamer.Bucket(key, f.n)]
	}
}

// Serve is scheme/faild's MAC and Read and scheme/beamer's Decide: held to
// them by a test.
func (f *faildTable) Serve(c *Conns) {
	for i, key := range c.Key {
		rows := f.tables.At(c.Held(i))
		at := beamer.Bucket(key, f.n)
		c.At[i] = rows.current[at]
		if first := c.First[i]; rows.previous[at] == first {
			c.At[i] = first
		}
	}
}
