package tracking

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// site is one pool of servers that fail and come back, with the hash over
// them, and the schemes that this pool stands behind (lanes): all that differ
// in their tables alone. The hash is asked once for all lanes, and only when
// its answer may be another one: for a connection that arrives, and for all
// live ones after a change.
type site struct {
	o     siteOptions
	pool  *pool
	lanes []*lane

	// By a connection's handle; server is none where it is over.
	keys   []uint64
	server []int32 // where its first packet went
	ranks  []rank  // what the hash says of it now

	queue   sim.Queue[happening]
	now     sim.Time
	pending happening // the next of queue, at
	at      sim.Time
	more    bool // there is one

	order []int32 // live handles in the order in which they speak, if it is random

	kills, downtimes, which, speaks *rand.Rand

	sum siteSum
}

// siteOptions are what makes a site, besides the connections.
type siteOptions struct {
	pool   poolOptions
	kills  float64 // a minute, in the mean
	away   *workload.Distribution
	warmUp sim.Time
	random bool // the order in which connections speak is drawn anew each time
	seed   uint64
}

// siteSum is what happened to the pool.
type siteSum struct {
	connections int
	// kills and additions of servers; unforeseen is how many of these were not
	// in the horizon when they came back, and so warmed up.
	kills, additions, unforeseen int
	checks                       int // how many times all live connections were looked up
	// wanted connections were to be tracked when they arrived; expected is how
	// many |H| / (|W| + |H|) of each were.
	wanted   int
	expected float64
}

// happening is what befalls a server.
type happening struct {
	what   happens
	server int32
}

type happens uint8

const (
	kill happens = iota
	back
	warm
)

func newSite(o siteOptions) (*site, error) {
	p, err := newPool(o.pool, o.seed)
	if err != nil {
		return nil, err
	}
	s := &site{
		o: o, pool: p,
		kills:     sim.Stream(o.seed, "kills"),
		downtimes: sim.Stream(o.seed, "downtimes"),
		which:     sim.Stream(o.seed, "which server"),
		speaks:    sim.Stream(o.seed, "who speaks"),
	}
	if o.kills > 0 {
		s.queue.Put(s.nextKill(), happening{what: kill})
	}
	s.advance()
	return s, nil
}

func (s *site) nextKill() sim.Time {
	return s.now + workload.Exponential(s.kills, 60*float64(sim.Second)/s.o.kills)
}

func (s *site) advance() { s.at, s.pending, s.more = s.queue.Next() }

// play has the events happen, and the pool's own changes among them.
func (s *site) play(events []event) error {
	share := s.pool.horizonShare()
	for i := range events {
		e := &events[i]
		if s.more && s.at <= e.at {
			if err := s.changeUntil(e.at); err != nil {
				return err
			}
			share = s.pool.horizonShare()
		}
		s.now = e.at
		if e.ends {
			s.finish(e.handle)
			continue
		}
		s.arrive(e.handle, e.key)
		s.sum.expected += share
	}
	return nil
}

// changeUntil has the pool change as it does until a time.
func (s *site) changeUntil(end sim.Time) error {
	for s.more && s.at <= end {
		s.now = s.at
		if err := s.change(s.pending); err != nil {
			return err
		}
		s.advance()
	}
	return nil
}

func (s *site) arrive(handle int32, key uint64) {
	for int(handle) >= len(s.keys) {
		s.keys, s.server, s.ranks = append(s.keys, 0), append(s.server, none), append(s.ranks, rankPlaced)
	}
	server, r := s.pool.place(key)
	s.keys[handle], s.server[handle], s.ranks[handle] = key, server, r
	s.sum.connections++
	if r != rankPlaced {
		s.sum.wanted++
	}
	for _, l := range s.lanes {
		l.arrive(handle)
	}
}

// finish is a connection's end: its last packet, then the FIN.
func (s *site) finish(handle int32) {
	if s.server[handle] == none {
		return // killed with its server
	}
	for _, l := range s.lanes {
		l.finish(handle)
	}
	s.server[handle] = none
}

// change carries out a change of the pool and checks all live connections.
func (s *site) change(h happening) error {
	var err error
	switch {
	case h.what == kill:
		s.queue.Put(s.nextKill(), happening{what: kill})
		if len(s.pool.working) < 2 {
			return nil // the last one stays
		}
		err = s.kill(s.pool.working[s.which.IntN(len(s.pool.working))])
	case h.what == back && !s.pool.foreseen(h.server):
		s.sum.unforeseen++
		err = s.pool.warm(h.server)
		s.queue.Put(s.now+s.o.warmUp, happening{warm, h.server})
	default:
		s.sum.additions++
		err = s.pool.add(h.server)
	}
	if err == nil {
		s.check()
	}
	return err
}

// kill has a server fail. Its own connections are over: they count for no
// scheme.
func (s *site) kill(server int32) error {
	if err := s.pool.fail(server); err != nil {
		return err
	}
	s.sum.kills++
	s.queue.Put(s.now+s.o.away.Draw(s.downtimes), happening{back, server})
	for _, l := range s.lanes {
		l.kill(server)
	}
	for handle, at := range s.server {
		if at == server {
			s.server[handle] = none
		}
	}
	return nil
}

// check asks the hash about all connections anew and has each that lives send
// a packet.
func (s *site) check() {
	s.sum.checks++
	for handle, server := range s.server {
		if server != none {
			s.ranks[handle] = s.pool.rank(s.keys[handle], server)
		}
	}
	if s.o.random {
		s.shuffle()
	}
	for _, l := range s.lanes {
		l.check()
	}
}

// shuffle draws the order in which the live connections speak.
func (s *site) shuffle() {
	s.order = s.order[:0]
	for handle, server := range s.server {
		if server != none {
			s.order = append(s.order, int32(handle))
		}
	}
	s.speaks.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
}
