package fct

import "github.com/fairlead/fairlead/sim"

// reporter has every server report once an interval, one after the other, and
// hands each report over when it arrives. A report is the share of time that
// the server was busy since its last one.
type reporter struct {
	every, delay sim.Time
	made         int64 // reports so far: the next is server made mod n's
	arrived      int64
	busy         []sim.Time // of each server at its last report
	carried      []float64  // loads of the reports on their way, a ring
}

func newReporter(every, delay sim.Time, n int) *reporter {
	onWay := n * (int(delay/every) + 2)
	return &reporter{every: every, delay: delay, busy: make([]sim.Time, n), carried: make([]float64, onWay)}
}

// at is when the k-th report is made: servers take turns within an interval,
// the first round begins behind the first one.
func (r *reporter) at(k int64) sim.Time {
	n := int64(len(r.busy))
	return r.every*sim.Time(1+k/n) + r.every*sim.Time(k%n)/sim.Time(n)
}

// next is when there is something to do.
func (r *reporter) next() sim.Time {
	if r == nil {
		return never
	}
	if r.arrived < r.made {
		return min(r.at(r.made), r.at(r.arrived)+r.delay)
	}
	return r.at(r.made)
}

// take makes the next report, or hands over the one that arrives.
func (r *reporter) take(s *servers, to chooser) {
	n := int64(len(r.busy))
	if r.arrived < r.made && r.at(r.arrived)+r.delay <= r.at(r.made) {
		to.reported(int(r.arrived%n), r.carried[r.arrived%int64(len(r.carried))])
		r.arrived++
		return
	}
	i, now := int(r.made%n), r.at(r.made)
	busy := s.busyUntil(now, i)
	since := r.every
	if r.made < n {
		since = now
	}
	r.carried[r.made%int64(len(r.carried))] = float64(busy-r.busy[i]) / float64(since)
	r.busy[i] = busy
	r.made++
}
