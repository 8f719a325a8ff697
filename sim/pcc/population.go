package pcc

import "github.com/fairlead/fairlead/sim"

// side is a contender's part of the population: columns beside the player's.
type side struct {
	scheme Scheme
	front  int
	first  []uint16
	note   []uint32
	at     []uint16
	served sim.Time // when all were, last

	// Columns of some connections, gathered from everywhere.
	some struct {
		start     []sim.Time
		key       []uint64
		via       []uint16
		first, at []uint16
		note      []uint32
	}
}

// advance moves time on to the next event: step by step connections come and
// end.
func (p *player) advance(to sim.Time) {
	for p.now < to {
		p.now = min(p.now+p.Step, to)
		from := len(p.key)
		p.fill(p.now)
		p.open(from)
		p.close()
		p.talk()
	}
}

// talk has connections send a packet though nothing has changed for them:
// tables with state go by when an entry was used last.
func (p *player) talk() {
	for i := range p.sides {
		s := &p.sides[i]
		if _, ok := s.scheme.(Stateful); ok && p.now-s.served >= p.Silence {
			p.serveSide(i, true)
		}
	}
}

// fill appends the connections that start until now.
func (p *player) fill(now sim.Time) {
	for p.more && p.next.Start <= now {
		c := p.next
		if p.counts(c.Start) {
			p.tally.Connections++
		}
		p.start, p.end, p.key = append(p.start, c.Start), append(p.end, c.End()), append(p.key, c.Key)
		for _, f := range p.fronts {
			f.via = append(f.via, f.route(c.Key))
		}
		p.next, p.more = p.Arrivals.Next()
	}
	for i := range p.sides {
		s := &p.sides[i]
		for len(s.first) < len(p.key) {
			s.first, s.note, s.at = append(s.first, 0), append(s.note, 0), append(s.at, 0)
		}
	}
}

// counts tells whether a connection that begins at a time is counted.
func (p *player) counts(start sim.Time) bool {
	return p.Until == 0 || start >= p.From && start < p.Until
}

// countBroken counts the broken of some connections, which are over.
func (p *player) countBroken(which []int32) {
	for k := range p.sides {
		for _, i := range which {
			if p.sides[k].first[i] == Broken && p.counts(p.start[i]) {
				p.tally.Schemes[k].Broken++
			}
		}
	}
}

// open sends the first packets of the connections from an index on.
func (p *player) open(from int) {
	if from == len(p.key) {
		return
	}
	for i := range p.sides {
		c := p.conns(&p.sides[i], from, len(p.key))
		p.sides[i].scheme.Open(&c)
	}
}

// close takes out the connections that are over.
func (p *player) close() {
	p.ended = p.ended[:0]
	for i, end := range p.end {
		if end <= p.now {
			p.ended = append(p.ended, int32(i))
		}
	}
	if len(p.ended) == 0 {
		return
	}
	p.some, p.ended = p.ended, p.some
	p.countBroken(p.some)
	for i := range p.sides {
		if t, ok := p.sides[i].scheme.(Closer); ok {
			c := p.gather(&p.sides[i])
			t.Close(&c)
		}
	}
	p.start, p.end, p.key = Drop(p.start, p.some), Drop(p.end, p.some), Drop(p.key, p.some)
	for _, f := range p.fronts {
		f.via = Drop(f.via, p.some)
	}
	for i := range p.sides {
		s := &p.sides[i]
		s.first, s.note, s.at = Drop(s.first, p.some), Drop(s.note, p.some), Drop(s.at, p.some)
	}
}

// Drop takes elements out of a column, given by ascending index: the last ones
// take their places.
func Drop[T any](column []T, which []int32) []T {
	last := len(column)
	for k := len(which) - 1; k >= 0; k-- {
		last--
		column[which[k]] = column[last]
	}
	return column[:last]
}

// conns is what a side sees of connections from an index to another.
func (p *player) conns(s *side, from, to int) Conns {
	f := p.fronts[s.front]
	return Conns{
		Now: p.now, Start: p.start[from:to], Key: p.key[from:to], Via: f.via[from:to],
		First: s.first[from:to], Note: s.note[from:to], At: s.at[from:to],
		Version: f.version, View: f.view, Newest: f.newest,
	}
}

// gather is what a side sees of player.some.
func (p *player) gather(s *side) Conns {
	f, g := p.fronts[s.front], &s.some
	g.start, g.key = pick(g.start, p.start, p.some), pick(g.key, p.key, p.some)
	g.via, g.first, g.note = pick(g.via, f.via, p.some), pick(g.first, s.first, p.some), pick(g.note, s.note, p.some)
	g.at = pick(g.at, s.at, p.some)
	return Conns{
		Now: p.now, Start: g.start, Key: g.key, Via: g.via, First: g.first, Note: g.note, At: g.at,
		Version: f.version, View: f.view, Newest: f.newest,
	}
}

func pick[T any](to, column []T, which []int32) []T {
	to = to[:0]
	for _, i := range which {
		to = append(to, column[i])
	}
	return to
}

// scatter writes back what gather gathered and a scheme may have changed.
func (p *player) scatter(s *side, c *Conns) {
	for k, i := range p.some {
		s.first[i], s.note[i] = c.First[k], c.Note[k]
	}
}
