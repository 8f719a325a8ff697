package tracking

import (
	"context"
	"math/rand/v2"

	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// eventsRun is the event simulation under one seed:
//
//	arrive   a connection looks its server up and may be tracked; the next
//	         arrival and its own end are put into the queue
//	end      its last packet is looked up; its entry goes with the FIN
//	kill     a server fails: its connections are over, it is expected back
//	back     it works again, or warms up where the horizon had let it go
//
// After each kill and each addition all live connections send a packet. They
// lie side by side, so that such a check is one pass over an array.
type eventsRun struct {
	o    JetEventsOptions
	seed uint64
	pool *pool
	ct   *tracking
	// flows is the program's flow table, in place of ct, for EvictState.
	flows *jet.Flows
	sum   EventsRun

	queue sim.Queue[happening]
	now   sim.Time
	end   sim.Time

	live []connection
	at   []int32 // by handle: index in live; none: over
	idle []int32 // handles to use again

	arrivals, lifetimes, kills, downtimes, which *rand.Rand

	activeSum, usedSum, neededSum float64
	progress                      func(done float64)
}

type connection struct {
	key    uint64
	handle int32
	server int32 // where its first packet went
	entry  int32 // in the tracking table; none
}

type happening struct {
	what happens
	id   int32 // a connection's handle, or a server
}

type happens uint8

const (
	arrive happens = iota
	end
	kill
	back
	warm
)

func newEventsRun(o JetEventsOptions, seed uint64, entries int) (*eventsRun, error) {
	p, err := newPool(o, seed)
	if err != nil {
		return nil, err
	}
	e := &eventsRun{
		o: o, seed: seed, pool: p, ct: newTracking(entries), end: sim.Time(o.Seconds) * sim.Second,
		sum:       EventsRun{Seed: seed},
		arrivals:  sim.Stream(seed, "arrivals"),
		lifetimes: sim.Stream(seed, "lifetimes"),
		kills:     sim.Stream(seed, "kills"),
		downtimes: sim.Stream(seed, "downtimes"),
		which:     sim.Stream(seed, "which server"),
	}
	if o.Evict == EvictState && entries > 0 {
		e.flows = jet.NewFlows((entries + jet.Ways - 1) / jet.Ways)
	}
	return e, nil
}

func (e *eventsRun) run(ctx context.Context) error {
	e.queue.Put(workload.Exponential(e.arrivals, e.gap()), happening{what: arrive})
	if e.o.Kills > 0 {
		e.queue.Put(workload.Exponential(e.kills, e.killGap()), happening{what: kill})
	}
	for {
		at, h, ok := e.queue.Next()
		if !ok || at > e.end {
			return nil
		}
		e.now = at
		switch h.what {
		case arrive:
			e.arrive()
		case end:
			e.finish(h.id)
		default:
			if err := e.change(h); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if e.progress != nil {
				e.progress(float64(at) / float64(e.end))
			}
		}
	}
}

// gap is the mean time between arrivals that keeps o.Active alive (Little).
func (e *eventsRun) gap() float64 { return workload.Hadoop.Mean() / float64(e.o.Active) }

func (e *eventsRun) killGap() float64 { return 60 * float64(sim.Second) / e.o.Kills }

func (e *eventsRun) arrive() {
	e.queue.Put(e.now+workload.Exponential(e.arrivals, e.gap()), happening{what: arrive})
	// The key is the connection's number, so that no other draw moves it.
	key := sim.SplitMix(sim.SplitMix(e.seed+0x9e3779b97f4a7c15) + uint64(e.sum.Connections))
	e.sum.Connections++
	var handle int32
	if n := len(e.idle); n > 0 {
		handle, e.idle = e.idle[n-1], e.idle[:n-1]
	} else {
		handle = int32(len(e.at))
		e.at = append(e.at, none)
	}
	e.at[handle] = int32(len(e.live))
	e.live = append(e.live, connection{key, handle, e.pool.server(key), none})
	e.queue.Put(e.now+workload.Hadoop.Draw(e.lifetimes), happening{end, handle})
	e.track(&e.live[len(e.live)-1])
}

// finish is a connection's end: its last packet, then the FIN.
func (e *eventsRun) finish(handle int32) {
	i := e.at[handle]
	e.idle = append(e.idle, handle)
	if i == none {
		return // broken, or killed with its server
	}
	if !e.packet(&e.live[i]) {
		e.sum.Broken++
	}
	e.drop(i)
}

// drop takes a connection out of the live ones, and its entry with it, by its
// FIN: clients of a server that is gone give up, too. In the program's table
// the entry fades.
func (e *eventsRun) drop(i int32) {
	c := e.live[i]
	if c.entry != none {
		e.ct.remove(c.entry)
	}
	if entry := e.find(&c); entry != nil {
		jet.Touch(entry, e.unit(), true, jet.Close, 0)
	}
	last := int32(len(e.live) - 1)
	e.live[i] = e.live[last]
	e.at[e.live[i].handle] = i
	e.live = e.live[:last]
	e.at[c.handle] = none
}

// unit is the time as the program's flow table counts it.
func (e *eventsRun) unit() uint16 { return uint16(e.now / (jet.Unit * sim.Millisecond)) }

// find is the connection's entry in the program's flow table.
func (e *eventsRun) find(c *connection) *jet.Entry {
	if e.flows == nil {
		return nil
	}
	return e.flows.Find(c.key, e.unit(), true)
}

// packet looks a connection up as the scheme does; false: it breaks.
func (e *eventsRun) packet(c *connection) bool {
	if c.entry != none {
		e.ct.touch(c.entry)
		return true
	}
	if entry := e.find(c); entry != nil {
		jet.Touch(entry, e.unit(), true, jet.Data, 0)
		return entry.Slot() == int(c.server)
	}
	if e.pool.server(c.key) != c.server {
		return false
	}
	e.track(c)
	return true
}

// track makes an entry for a connection without one, where the scheme wants
// one and the table has room or something that may go.
func (e *eventsRun) track(c *connection) {
	if e.ct.capacity == 0 {
		return
	}
	r := rankPlaced
	if e.o.Scheme == SchemeJET {
		if r = e.pool.rank(c.key, c.server); r == rankPlaced {
			return
		}
	}
	if e.flows != nil {
		e.insert(c)
		return
	}
	lru := e.o.Evict == EvictLRU
	if lru {
		r = rankPlaced
	}
	if e.ct.full() {
		v := e.ct.victim(r, !lru)
		if v == none {
			e.sum.Refused++
			return
		}
		e.evict(v)
	}
	c.entry = e.ct.insert(c.handle, r)
}

// insert makes an entry in the program's flow table.
func (e *eventsRun) insert(c *connection) {
	insert := e.flows.Insert
	if e.o.Scheme == SchemeFullCT {
		insert = e.flows.InsertLRU
	}
	switch insert(c.key, int(c.server), e.unit(), jet.First(true)) {
	case jet.Replaced:
		e.sum.EvictedState++
	case jet.Full:
		e.sum.Refused++
	}
}

func (e *eventsRun) evict(v int32) {
	t := e.ct.entries[v]
	switch {
	case e.o.Evict == EvictLRU:
		e.sum.EvictedLRU++
	case t.rank == rankPlaced:
		e.sum.EvictedPlaced++
	case t.rank == rankStandby:
		e.sum.EvictedStandby++
	case t.rank == rankReturning:
		e.sum.EvictedReturning++
	default:
		e.sum.EvictedMoved++
	}
	e.live[e.at[t.connection]].entry = none
	e.ct.remove(v)
}

// change carries out a change of the pool and checks all live connections.
func (e *eventsRun) change(h happening) error {
	switch h.what {
	case kill:
		e.queue.Put(e.now+workload.Exponential(e.kills, e.killGap()), happening{what: kill})
		if len(e.pool.working) < 2 {
			return nil // the last one stays
		}
		server := e.pool.working[e.which.IntN(len(e.pool.working))]
		if err := e.pool.fail(server); err != nil {
			return err
		}
		e.sum.Kills++
		e.queue.Put(e.now+workload.Downtime.Draw(e.downtimes), happening{back, server})
		for i := int32(len(e.live)) - 1; i >= 0; i-- {
			if e.live[i].server == server {
				e.sum.Killed++
				e.drop(i)
			}
		}
	case back, warm:
		if h.what == back && !e.pool.foreseen(h.id) {
			e.sum.Unforeseen++
			if err := e.pool.warm(h.id); err != nil {
				return err
			}
			e.queue.Put(e.now+sim.Time(e.o.WarmUp)*sim.Second, happening{warm, h.id})
			break
		}
		if err := e.pool.add(h.id); err != nil {
			return err
		}
		e.sum.Additions++
	}
	e.check()
	return nil
}

// check has every live connection send a packet.
func (e *eventsRun) check() {
	if e.o.Evict == EvictRank {
		e.rerank()
	}
	e.sum.Checks++
	for i := int32(len(e.live)) - 1; i >= 0; i-- {
		if !e.packet(&e.live[i]) {
			e.sum.Broken++
			e.drop(i)
		}
	}
	e.activeSum += float64(len(e.live))
	used := e.ct.used
	if e.flows != nil {
		used, _, _ = e.flows.Sweep(0, len(e.flows.Buckets), e.unit())
	}
	e.usedSum += float64(used)
	for i := range e.live {
		c := &e.live[i]
		if (c.entry != none || e.find(c) != nil) && e.pool.server(c.key) != c.server {
			e.neededSum++
		}
	}
}

// rerank asks the hash again about every entry, in the order of use.
func (e *eventsRun) rerank() {
	var order []int32
	for _, l := range e.ct.lists {
		for i := l.first; i != none; i = e.ct.entries[i].next {
			order = append(order, i)
		}
	}
	for _, i := range order {
		c := &e.live[e.at[e.ct.entries[i].connection]]
		e.ct.setRank(i, e.pool.rank(c.key, c.server))
	}
}

func (e *eventsRun) result() EventsRun {
	n := float64(max(1, e.sum.Checks))
	e.sum.Active, e.sum.Used, e.sum.Needed = e.activeSum/n, e.usedSum/n, e.neededSum/n
	return e.sum
}
