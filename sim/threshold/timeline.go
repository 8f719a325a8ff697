package threshold

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// timeline is a load whose starts and ends are in the order of time. Where a
// connection goes depends on the load of servers, so that others' ends count
// one by one; but when they start and end does not, and all contenders share
// one timeline.
type timeline struct {
	conns []workload.Connection // by start
	byEnd []int32
	end   sim.Time
}

// newTimeline takes all connections that start before end.
func newTimeline(a workload.Arrivals, end sim.Time) *timeline {
	t := &timeline{end: end}
	for c, more := a.Next(); more && c.Start < end; c, more = a.Next() {
		t.conns = append(t.conns, c)
	}
	slices.SortStableFunc(t.conns, func(a, b workload.Connection) int { return cmp.Compare(a.Start, b.Start) })
	t.byEnd = make([]int32, len(t.conns))
	for i := range t.byEnd {
		t.byEnd[i] = int32(i)
	}
	slices.SortStableFunc(t.byEnd, func(a, b int32) int { return cmp.Compare(t.conns[a].End(), t.conns[b].End()) })
	return t
}

// contender is what happens on a timeline to one way to balance.
type contender interface {
	// begin, finish: the first, the last packet of a connection.
	begin(id int32, key uint64, now sim.Time)
	finish(id int32, now sim.Time)
	// look: another interval is over.
	look(now sim.Time)
}

// play has everything happen in the order of time, looks at multiples of every
// among it. Of one time, starts come before ends.
func (t *timeline) play(ctx context.Context, c contender, every sim.Time) error {
	next, over, at := 0, 0, every
	for {
		starts, ends := t.end, t.end
		if next < len(t.conns) {
			starts = t.conns[next].Start
		}
		if over < len(t.byEnd) {
			ends = t.conns[t.byEnd[over]].End()
		}
		var err error
		switch {
		case at <= min(starts, ends) && at < t.end:
			if err = ctx.Err(); err == nil {
				c.look(at)
			}
			at += every
		case min(starts, ends) >= t.end:
			return nil
		case starts <= ends:
			c.begin(int32(next), t.conns[next].Key, starts)
			next++
		default:
			c.finish(t.byEnd[over], ends)
			over++
		}
		if err != nil {
			return err
		}
	}
}
