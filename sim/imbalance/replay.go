package imbalance

import (
	"context"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// moment is a connection's start or end.
type moment struct {
	at  sim.Time
	key uint64 // of a start
	// slot is where the connection is remembered while it lives; ^slot is its
	// end.
	slot int32
}

// timeline turns arrivals into moments in their order, a batch at a time, so
// that all choosers can go through the same ones while they are in the cache.
type timeline struct {
	arrivals workload.Arrivals
	next     workload.Connection
	more     bool
	ends     sim.Queue[int32]
	idle     []int32 // slots to use again
	slots    int32
	started  int64 // connections
	batch    []moment
}

// batchSize of moments: 96 KiB.
const batchSize = 4096

func newTimeline(a workload.Arrivals) *timeline {
	t := &timeline{arrivals: a, batch: make([]moment, 0, batchSize)}
	t.next, t.more = a.Next()
	return t
}

// read is the next moments until the end; none: there are no more. They are
// valid until the next read. What lives at time 0 starts then.
func (t *timeline) read(end sim.Time) []moment {
	t.batch = t.batch[:0]
	for len(t.batch) < batchSize {
		over, some := t.ends.Peek()
		start := max(0, t.next.Start)
		switch {
		case some && (!t.more || over <= start):
			if over >= end {
				return t.batch
			}
			_, slot, _ := t.ends.Next()
			t.batch = append(t.batch, moment{at: over, slot: ^slot})
			t.idle = append(t.idle, slot)
		case t.more && start < end:
			slot := t.slot()
			t.started++
			t.batch = append(t.batch, moment{start, t.next.Key, slot})
			t.ends.Put(max(start, t.next.End()), slot)
			t.next, t.more = t.arrivals.Next()
		default:
			return t.batch
		}
	}
	return t.batch
}

func (t *timeline) slot() int32 {
	if n := len(t.idle); n > 0 {
		slot := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return slot
	}
	t.slots++
	return t.slots - 1
}

// contender is a chooser with the connections that it placed.
type contender struct {
	name    string
	chooser chooser
	levels  *levels
	server  []uint16 // by slot
	active  int32
	last    sim.Time
	sum     sums
	// upTo[i] is the sums up to the replay's i-th bound.
	upTo []sums
}

// sums over the time at which there were connections, weighted with it (ns).
type sums struct {
	time   float64
	excess float64 // of max/mean - 1
	most   float64 // of the most loaded server's connections
	active float64 // of all connections
}

func (s sums) minus(t sums) sums {
	return sums{s.time - t.time, s.excess - t.excess, s.most - t.most, s.active - t.active}
}

// newContender is for a pool, with these levels, whose connections nobody has
// placed yet.
func newContender(name string, c chooser, l *levels) *contender {
	return &contender{name: name, chooser: c, levels: l}
}

// play goes through moments in their order, and measures up to bounds, which
// ascend.
func (c *contender) play(moments []moment, bounds []sim.Time) {
	for i := range moments {
		m := &moments[i]
		if m.at > c.last {
			c.pass(m.at, bounds)
		}
		if m.slot < 0 {
			c.levels.closed(c.server[^m.slot])
			c.active--
			continue
		}
		if int(m.slot) >= len(c.server) {
			c.server = append(c.server, 0) // slots are numbered one by one
		}
		s := c.chooser(m.key, m.at)
		c.server[m.slot] = s
		c.levels.opened(s)
		c.active++
	}
}

// pass has time pass in which nothing happens.
func (c *contender) pass(to sim.Time, bounds []sim.Time) {
	for len(c.upTo) < len(bounds) && bounds[len(c.upTo)] <= to {
		c.stay(bounds[len(c.upTo)])
		c.upTo = append(c.upTo, c.sum)
	}
	c.stay(to)
}

func (c *contender) stay(to sim.Time) {
	if c.active > 0 {
		d, most := float64(to-c.last), float64(c.levels.most())
		c.sum.time += d
		c.sum.excess += d * (most*float64(len(c.levels.open))/float64(c.active) - 1)
		c.sum.most += d * most
		c.sum.active += d * float64(c.active)
	}
	c.last = to
}

// replay has all contenders go through the same connections, up to the last of
// bounds. placed counts the connections.
func replay(ctx context.Context, a workload.Arrivals, contenders []*contender, bounds []sim.Time) (placed int64, err error) {
	t := newTimeline(a)
	end := bounds[len(bounds)-1]
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		moments := t.read(end)
		if len(moments) == 0 {
			break
		}
		for _, c := range contenders {
			c.play(moments, bounds)
		}
		sim.Done(ctx, float64(moments[len(moments)-1].at)/float64(end))
	}
	for _, c := range contenders {
		c.pass(end, bounds)
	}
	return t.started, nil
}
