package pcc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Contender is a scheme in a run.
type Contender struct {
	Name   string
	Scheme Scheme
	// Front is what its packets come through; nil: One.
	Front *Front
}

// Run is one load and one stream of changes, played against all contenders.
type Run struct {
	Arrivals workload.Arrivals
	// Working and Standby servers at time 0, MaxServers at most.
	Working, Standby int
	// Changes of the pool in the order of time (Changes).
	Changes    []Change
	Contenders []Contender
	// End of the run.
	End sim.Time
	// From and Until: only connections that begin in between are counted; all
	// are played. Until 0: all are, for what they live of the run. To count
	// whole lives in a pool that has been changing for as long, let both lie the
	// longest lifetime within the run.
	From, Until sim.Time
	// Room is for how many live connections tables of limited size have room, if
	// more than live when their balancer joins: a record begins with few. 0: as
	// many as live then.
	Room float64
	// Step is the longest time for which connections are opened, or closed,
	// together; 0: a second. Schemes with state of limited size see it.
	Step sim.Time
	// Silence is the longest time between two packets of a connection, which
	// tables of limited size see; 0: five seconds.
	Silence sim.Time
	// Tick is the time between two calls of Tick; 0: never.
	Tick sim.Time
}

// Tally is what a run counts.
type Tally struct {
	// Connections that are counted.
	Connections int64
	// Changes of the pool.
	Changes int64
	// Through counts live connections at changes of the pool: 0 says that
	// nothing could have been broken.
	Through int64
	// Active is the mean number of live connections at changes of the pool.
	Active float64
	// Schemes has one element a contender.
	Schemes []SchemeTally
}

// SchemeTally is what a run counts of a contender.
type SchemeTally struct {
	Name string
	// Broken connections of those that are counted.
	Broken int64
	// Lookups of live connections that something had changed for.
	Lookups int64
	// Dropped counts look-ups that ended in a silent drop, which breaks nothing.
	Dropped int64
}

// Share of connections that broke, in percent.
func (t *Tally) Share(contender int) float64 {
	return 100 * float64(t.Schemes[contender].Broken) / float64(max(1, t.Connections))
}

// index of a contender, -1 if it is not in the run.
func (t *Tally) index(name string) int {
	return slices.IndexFunc(t.Schemes, func(s SchemeTally) bool { return s.Name == name })
}

// Play carries the run out, once.
func (r *Run) Play(ctx context.Context) (*Tally, error) {
	if r.Working < 1 || r.Working+r.Standby > MaxServers {
		return nil, fmt.Errorf("%d servers and %d on standby: a cookie names %d at most, and one must work", r.Working, r.Standby, MaxServers)
	}
	p, err := newPlayer(r)
	if err != nil {
		return nil, err
	}
	for {
		at, e, ok := p.queue.Next()
		if !ok || at >= r.End {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.advance(at)
		if err := p.happen(e); err != nil {
			return nil, err
		}
	}
	p.advance(r.End)
	p.some = p.some[:0]
	for i := range p.key {
		p.some = append(p.some, int32(i))
	}
	p.countBroken(p.some)
	p.tally.Active = float64(p.tally.Through) / float64(max(1, p.tally.Changes))
	tally := p.tally // not a pointer to it, which would hold the population
	return &tally, nil
}

// event is what may happen in a run.
type event struct {
	what     what
	front    int // of player.fronts
	balancer uint16
	version  int
}

type what uint8

const (
	change what = iota // the next of Run.Changes
	hear               // a balancer hears of a version
	join               // a balancer joins
	leave              // a balancer leaves
	tick
)

// player is a run that is being played.
type player struct {
	Run
	tally  Tally
	queue  sim.Queue[event]
	now    sim.Time
	pool   *Pool
	fronts []*Front
	sides  []side
	done   int // of Changes

	// The population: live connections side by side, and the next to come.
	start, end []sim.Time
	key        []uint64
	next       workload.Connection
	more       bool

	ended []int32 // of the step
	some  []int32 // that something changed for
}

func newPlayer(r *Run) (*player, error) {
	p := &player{Run: *r, pool: NewPool(r.Working, r.Standby)}
	p.Step, p.Silence = cmp.Or(r.Step, sim.Second), cmp.Or(r.Silence, 5*sim.Second)
	for _, c := range r.Contenders {
		p.tally.Schemes = append(p.tally.Schemes, SchemeTally{Name: c.Name})
		p.sides = append(p.sides, side{scheme: c.Scheme, front: p.frontOf(c)})
	}
	for _, c := range r.Changes {
		p.queue.Put(c.At, event{what: change})
	}
	for i, f := range p.fronts {
		f.settle()
		for _, u := range f.o.Churn {
			e := event{what: leave, front: i}
			if u.Add {
				e.what = join
			}
			p.queue.Put(u.At, e)
		}
	}
	if r.Tick > 0 {
		p.queue.Put(r.Tick, event{what: tick})
	}
	p.next, p.more = r.Arrivals.Next()
	p.fill(0) // who lives already, so that it is known how many they are
	for i := range p.sides {
		s := &p.sides[i]
		if err := s.scheme.Update(p.pool, 0); err != nil {
			return nil, err
		}
		if t, ok := s.scheme.(Stateful); ok {
			f := p.fronts[s.front]
			for _, b := range f.alive {
				t.Join(int(b), p.expected(f))
			}
		}
	}
	p.open(0)
	return p, nil
}

// expected is about how many connections a balancer of a front will have at a
// time.
func (p *player) expected(f *Front) float64 {
	return max(p.Room, float64(len(p.key))) / float64(len(f.alive))
}

// frontOf is the index of a contender's front.
func (p *player) frontOf(c Contender) int {
	if c.Front == nil {
		c.Front = One()
	}
	for i, f := range p.fronts {
		if f == c.Front {
			return i
		}
	}
	p.fronts = append(p.fronts, c.Front)
	return len(p.fronts) - 1
}
