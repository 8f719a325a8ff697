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
// followed for ever, and never known for old. A nexthop of a host that drains
// goes to the host with the fewest; one that is added takes some of those with
// the most, any of theirs (which ones the paper does not say; stream "faild").
type faildTable struct {
	r      *rand.Rand
	n      int
	tables versions[faildRows]
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
		f.tables.put(rows)
		return nil
	}
	old := f.tables.newest()
	rows := faildRows{slices.Clone(old.current), slices.Clone(old.previous)}
	for _, c := range p.Last {
		if c.Add {
			f.refill(rows, p, c.Server)
		} else {
			f.drain(rows, p, c.Server)
		}
	}
	f.tables.put(rows)
	return nil
}

// move gives a nexthop to another host.
func (rows faildRows) move(i int, to uint16) {
	rows.previous[i], rows.current[i] = rows.current[i], to
}

// counts are how many nexthops each host has.
func (rows faildRows) counts(servers int) []int {
	counts := make([]int, servers)
	for _, s := range rows.current {
		counts[s]++
	}
	return counts
}

// drain reassigns the nexthops of a host greedily.
func (f *faildTable) drain(rows faildRows, p *Pool, host uint16) {
	counts := rows.counts(len(p.State))
	var mine []int
	for i, s := range rows.current {
		if s == host {
			mine = append(mine, i)
		}
	}
	for _, i := range mine {
		fewest := p.Working[0]
		for _, s := range p.Working {
			if counts[s] < counts[fewest] {
				fewest = s
			}
		}
		counts[fewest]++
		rows.move(i, fewest)
	}
}

// refill gives a host its share.
func (f *faildTable) refill(rows faildRows, p *Pool, host uint16) {
	counts := rows.counts(len(p.State))
	order := f.r.Perm(f.n)
	most := slices.Max(counts)
	for counts[host] < f.n/len(p.Working) {
		taken := false
		for _, i := range order {
			s := rows.current[i]
			if s == host || counts[s] < most {
				continue
			}
			counts[s]--
			counts[host]++
			rows.move(i, host)
			taken = true
			if counts[host] == f.n/len(p.Working) {
				break
			}
		}
		if most--; !taken && most == 0 {
			return
		}
	}
}

func (f *faildTable) Forget(oldest int) { f.tables.forget(oldest) }

func (f *faildTable) Open(c *Conns) {
	for i, key := range c.Key {
		rows := f.tables.at(c.Held(i))
		c.First[i] = rows.current[beamer.Bucket(key, f.n)]
	}
}

// Serve is scheme/faild's MAC and Read and scheme/beamer's Decide: held to
// them by a test.
func (f *faildTable) Serve(c *Conns) {
	for i, key := range c.Key {
		rows := f.tables.at(c.Held(i))
		at := beamer.Bucket(key, f.n)
		c.At[i] = rows.current[at]
		if first := c.First[i]; rows.previous[at] == first {
			c.At[i] = first
		}
	}
}
