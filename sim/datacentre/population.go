package datacentre

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
)

// population is one VIP's connections, drawn when they are needed.
//
// Each balancer has a frontier, a time up to which its connections are known:
// those that live then stand side by side here. To bring a frontier on to a
// later time, those that end until then are taken out, and those that began in
// between and still live are drawn: of arrivals at a rate λ over a span d their
// number is Poisson with mean λ·∫P(L > a) da over ages a from 0 to d, and their
// ages have a density in proportion to P(L > a). What came and went in between
// is only counted: it met one version of one balancer's configuration and one
// balancer, so that no scheme can have broken it.
//
// Balancers have frontiers of their own since each hears of a change at a time
// of its own, and its connections matter at that time. A connection is drawn
// for the widest span, and kept if it began after its own balancer's frontier:
// that is a part of a Poisson process chosen by place, so Poisson again.
type population struct {
	rate      float64 // arrivals a nanosecond
	lifetimes *workload.Distribution
	random    *rand.Rand // ages and residual lives
	number    *rand.Rand // how many
	keys      uint64     // of the next connection
	eras      []era
	now       int // the era by which connections go
	// frontier by balancer; drawn is the era of which via says whose frontier a
	// connection fell under when it began. Whatever reshuffles happened after,
	// balancers agreed then.
	frontier []sim.Time
	drawn    int

	start, end []sim.Time
	key        []uint64
	via        []uint16
	sides      []side
	gone       []int32 // scratch

	// unseen is the mean number of those that came and went, opened how many
	// connections were drawn.
	unseen float64
	opened int64
}

// side is what one scheme knows of the connections.
type side struct {
	first, at []uint16
	note      []uint32
}

func newPopulation(s *site, vip, schemes int, random, number *rand.Rand, keys uint64) *population {
	p := &population{
		rate:      float64(s.Active) * s.share[vip] / s.Lifetimes.Mean(),
		lifetimes: s.Lifetimes.Distribution, random: random, number: number, keys: keys, eras: s.eras,
		frontier: make([]sim.Time, s.Balancers), sides: make([]side, schemes),
	}
	// The steady state at time 0: all that began within the longest lifetime.
	longest := p.lifetimes.Longest()
	for b := range p.frontier {
		p.frontier[b] = -longest
	}
	// Who was over by then does not count.
	p.unseen = -p.rate * (float64(longest) - p.lifetimes.Mean())
	return p
}

func (p *population) len() int { return len(p.key) }

func (p *population) next() uint64 {
	p.keys++
	return sim.SplitMix(p.keys)
}

func (p *population) add(start, end sim.Time, key uint64) {
	p.start, p.end = append(p.start, start), append(p.end, end)
	p.key, p.via = append(p.key, key), append(p.via, p.eras[p.now].via(key))
	p.opened++
}

// advance brings the frontiers on to next, by balancer, and returns the index
// of the first connection that was drawn: their first packets are still to be
// sent. Balancers whose frontier stays stay as they are.
func (p *population) advance(next []sim.Time) (from int) {
	p.expire(func(via uint16) sim.Time { return next[via] })
	widest := sim.Time(0)
	from = p.len()
	live := p.eras[p.now].live
	for _, b := range live {
		widest = max(widest, next[b])
	}
	oldest := widest
	for _, b := range p.eras[p.drawn].live {
		oldest = min(oldest, p.frontier[b])
	}
	if widest -= oldest; widest <= 0 {
		return from
	}
	n := workload.PoissonNumber(p.number, p.rate*p.lifetimes.AliveFor(widest))
	for range n {
		key := p.next()
		age, residual := p.lifetimes.Young(widest, p.random)
		via := p.eras[p.now].via(key)
		start := next[via] - age
		if start > p.frontier[p.began(via, key)] {
			p.add(start, next[via]+residual, key)
		}
	}
	for _, b := range live {
		// Of those that were not there before, somebody else's frontier counts:
		// all agreed then.
		if span := next[b] - p.frontier[b]; span > 0 {
			p.unseen += p.rate / float64(len(live)) * (float64(span) - p.lifetimes.AliveFor(span))
		}
	}
	copy(p.frontier, next)
	p.drawn = p.now
	p.grow()
	return from
}

// began is whose frontier a connection fell under when it began.
func (p *population) began(via uint16, key uint64) uint16 {
	if p.drawn == p.now {
		return via
	}
	return p.eras[p.drawn].via(key)
}

// expire takes out the connections that are over at a time.
func (p *population) expire(at func(via uint16) sim.Time) {
	// The last ones take the places of those that go: column by column, since
	// that is what processors like.
	p.gone = p.gone[:0]
	for i, end := range p.end {
		if end <= at(p.via[i]) {
			p.gone = append(p.gone, int32(i))
		}
	}
	if len(p.gone) == 0 {
		return
	}
	p.start, p.end, p.key, p.via = pcc.Drop(p.start, p.gone), pcc.Drop(p.end, p.gone), pcc.Drop(p.key, p.gone), pcc.Drop(p.via, p.gone)
	for k := range p.sides {
		s := &p.sides[k]
		s.first, s.note = pcc.Drop(s.first, p.gone), pcc.Drop(s.note, p.gone)
	}
}

// grow gives new connections their place on all sides.
func (p *population) grow() {
	for k := range p.sides {
		s := &p.sides[k]
		s.first, s.note, s.at = lengthen(s.first, p.len()), lengthen(s.note, p.len()), lengthen(s.at, p.len())
	}
}

// lengthen makes a column n long; what is new is 0.
func lengthen[T any](column []T, n int) []T {
	if n <= len(column) {
		return column[:n]
	}
	return append(column, make([]T, n-len(column))...)
}

// reshuffle has the next era begin, at which connections come to other
// balancers.
func (p *population) reshuffle() {
	p.now++
	e := &p.eras[p.now]
	for i, key := range p.key {
		p.via[i] = e.via(key)
	}
}

// conns is what a side sees of the connections from an index on.
func (p *population) conns(k, from int, now sim.Time, view []int) pcc.Conns {
	s, to := &p.sides[k], p.len()
	c := pcc.Conns{
		Now: now, Start: p.start[from:to], Key: p.key[from:to], Via: p.via[from:to],
		First: s.first[from:to], Note: s.note[from:to], At: s.at[from:to], View: view,
	}
	c.Version = view[p.eras[p.now].live[0]]
	for _, b := range p.eras[p.now].live {
		if view[b] != c.Version {
			c.Version = pcc.Mixed
		}
		c.Newest = max(c.Newest, view[b])
	}
	return c
}
