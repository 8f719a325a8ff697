package pcc

import "github.com/fairlead/fairlead/sim"

// happen has an event happen.
func (p *player) happen(e event) error {
	switch e.what {
	case change:
		return p.change()
	case tick:
		p.queue.Put(p.now+p.Tick, e)
		return p.tickAll()
	case hear:
		f := p.fronts[e.front]
		if f.view[e.balancer] < e.version {
			f.view[e.balancer] = e.version
			p.heard(e.front, func(via uint16) bool { return via == e.balancer })
		}
		return nil
	case join:
		return p.join(e.front)
	default:
		return p.leave(e.front)
	}
}

// change carries out the next change of the pool. Balancers hear of it at once
// or later.
func (p *player) change() error {
	p.pool.Apply(p.Changes[p.done])
	p.done++
	p.tally.Changes++
	p.tally.Through += int64(len(p.key))
	for i := range p.sides {
		if err := p.sides[i].scheme.Update(p.pool, p.now); err != nil {
			return err
		}
	}
	for i, f := range p.fronts {
		if f.o.Stale == 0 {
			for _, b := range f.alive {
				f.view[b] = p.pool.Version
			}
			p.heard(i, nil)
			continue
		}
		for _, b := range f.alive {
			delay := sim.Time(f.delays.Int64N(int64(f.o.Stale)))
			p.queue.Put(p.now+delay, event{hear, i, b, p.pool.Version})
		}
	}
	return nil
}

// heard has those look themselves up whose balancer holds another version now;
// nil: all.
func (p *player) heard(front int, who func(via uint16) bool) {
	f := p.fronts[front]
	f.settle()
	p.some = p.some[:0]
	if who != nil {
		for i, via := range f.via {
			if who(via) {
				p.some = append(p.some, int32(i))
			}
		}
	}
	p.forget(front)
	p.serve(front, who == nil)
}

// forget has the schemes behind a front forget versions that nobody holds.
func (p *player) forget(front int) {
	oldest := p.fronts[front].oldest()
	for i := range p.sides {
		if p.sides[i].front == front {
			p.sides[i].scheme.Forget(oldest)
		}
	}
}

func (p *player) join(front int) error {
	f := p.fronts[front]
	b, err := f.join(p.pool.Version)
	if err != nil {
		return err
	}
	for i := range p.sides {
		if t, ok := p.sides[i].scheme.(Stateful); ok && p.sides[i].front == front {
			t.Join(int(b), p.expected(f))
		}
	}
	p.reshuffle(front)
	return nil
}

func (p *player) leave(front int) error {
	b, ok, err := p.fronts[front].leave()
	if err != nil || !ok {
		return err
	}
	p.reshuffle(front)
	for i := range p.sides {
		if t, ok := p.sides[i].scheme.(Stateful); ok && p.sides[i].front == front {
			t.Leave(int(b))
		}
	}
	return nil
}

// reshuffle has all connections come to the balancers that there are now.
func (p *player) reshuffle(front int) {
	f := p.fronts[front]
	f.settle()
	p.some = p.some[:0]
	for i, key := range p.key {
		if via := f.route(key); via != f.via[i] {
			f.via[i] = via
			p.some = append(p.some, int32(i))
		}
	}
	p.forget(front)
	p.serve(front, false)
}

// serve has connections behind a front look themselves up: all, or some.
func (p *player) serve(front int, all bool) {
	for i := range p.sides {
		if s := &p.sides[i]; s.front == front {
			p.serveSide(i, all)
		}
	}
}

func (p *player) serveSide(i int, all bool) {
	s, t := &p.sides[i], &p.tally.Schemes[i]
	c := p.conns(s, 0, len(p.key))
	if all {
		s.served = p.now
	} else {
		c = p.gather(s)
	}
	s.scheme.Serve(&c)
	t.Lookups += int64(c.Len())
	_, dropped := Judge(&c) // broken ones are counted at their end
	t.Dropped += dropped
	if !all {
		p.scatter(s, &c)
	}
}

// Judge marks what is broken, and counts it and what was dropped in silence.
func Judge(c *Conns) (broken, dropped int64) {
	first := c.First[:len(c.At)]
	for i, at := range c.At {
		switch was := first[i]; {
		case at == was || was == Broken:
		case at == Dropped:
			dropped++
		default:
			first[i] = Broken
			broken++
		}
	}
	return broken, dropped
}

func (p *player) tickAll() error {
	for i := range p.sides {
		t, ok := p.sides[i].scheme.(Ticker)
		if !ok {
			continue
		}
		c := p.conns(&p.sides[i], 0, len(p.key))
		changed, err := t.Tick(&c)
		if err != nil {
			return err
		}
		if changed {
			p.serveSide(i, true)
		}
	}
	return nil
}
