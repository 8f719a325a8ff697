package lb

import (
	"math"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
)

// Scheme beamer: what packets go by is decided in tables.Chains, which is kept
// from Apply to Apply; a daemon that starts anew, and an Apply that failed, read
// it from the rows in force.

// SetOwned tells of which buckets of a VIP the server in a slot has a
// connection: a bit a bucket, lowest first; those behind the end have none.
// at is when the server looked. The next Apply goes by it: chains end early
// where nobody owns anything any more, and last longer where somebody does. A
// report that is older than the one before is ignored.
func (l *LB) SetOwned(vipID uint32, slot uint16, owned []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chains.Report(vipID, slot, owned, uint32(l.sharedMS(at)/1000))
}

// SetEndAfter says from when on a report that a server owns nothing of a bucket
// ends its chain: since every balancer has the newest table, and nobody gives
// that server connections of the bucket any more. Reports from before still
// say whom a full chain drops. The zero time is no bound, one far ahead keeps
// all chains for their whole time. The next Apply goes by it.
func (l *LB) SetEndAfter(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := uint32(0)
	if !t.IsZero() {
		after = uint32(min((l.sharedMS(t)+999)/1000, math.MaxUint32))
	}
	l.chains.SetEndAfter(after)
}

// ChainRows are the rows of a VIP in force that its assignment alone does not
// tell (tables.Chains.Rows).
func (l *LB) ChainRows(vip uint32, first, limit int) (rows []effective.BucketRow, generation uint32, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return nil, 0, 0
	}
	return l.chains.Rows(vip, first, limit)
}

// LearnChains takes note of a peer's rows, as its ChainRows gives them; after
// news another Apply makes a difference (tables.Chains.Learn).
func (l *LB) LearnChains(vip uint32, rows []effective.BucketRow) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set != nil && l.chains.Learn(vip, rows, l.moment())
}

func (l *LB) moment() tables.Moment {
	now := l.now()
	return tables.Moment{Now: now, SharedMS: l.sharedMS(now)}
}

// sharedMS is the moment t of the wall clock in ms since 1970 on the shared
// clock, which is not stepped when the wall clock is: the times that hops carry
// are of that one.
func (l *LB) sharedMS(t time.Time) uint64 {
	wall := uint64(max(t.UnixMilli(), 0))
	if !l.clockSet {
		return wall
	}
	now := uint32(time.Now().UnixMilli())
	return wall + uint64(int64(int32(uint32(kernel.MonotonicMS())+l.clockD-now)))
}

// readBuckets takes the bucket tables from the rows by which packets go.
func (l *LB) readBuckets() error {
	o := l.running()
	control, err := o.readControl()
	if err != nil {
		return err
	}
	entries, err := o.readVIPs(control.Active & 1)
	if err != nil {
		return err
	}
	return l.chains.Adopt(entries, o.mapEntries, l.moment().SharedMS)
}

// undoBuckets lets the tables be again what packets go by, after an Apply that
// failed.
func (l *LB) undoBuckets() {
	if !l.chains.Ahead() {
		return
	}
	if err := l.readBuckets(); err != nil {
		l.log.Error("read the bucket tables in force", "error", err)
	}
}
