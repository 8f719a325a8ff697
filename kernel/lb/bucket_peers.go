package lb

import (
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// What balancers tell each other of their chains. Each has deputies and times
// of its own, by what it saw of health; a connection that a router moves to
// another balancer must find the same servers asked there.

// ChainRows are the rows of a VIP that its assignment alone does not tell:
// those with a chain, and those whose server is a deputy. At most limit, of
// the buckets from first on; next is the bucket to go on from, 0: these are
// all. generation is that of the table in force. A VIP without a bucket table
// in force has no rows.
func (l *LB) ChainRows(vip uint32, first, limit int) (rows []buckets.BucketRow, generation uint32, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, generation, ok := l.chains(vip)
	if !ok {
		return nil, 0, 0
	}
	rows, next = e.Rows(first, limit)
	return rows, generation, next
}

// LearnChains takes note of a peer's rows, as its ChainRows gives them: the
// next Apply has the servers that they name asked, too, for as long as the
// chain time since their moves lasts. news says that some row names a server
// that is not asked yet and of which no report says that it owns nothing, so
// that an Apply makes a difference.
func (l *LB) LearnChains(vip uint32, rows []buckets.BucketRow) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, _, ok := l.chains(vip)
	if !ok {
		return false
	}
	e.Learn(rows)
	over := uint32(l.sharedMS(l.now())/1000) - l.buckets.moved[vip].chainTime
	for _, r := range rows {
		if int(r.Bucket) >= e.Len() {
			continue
		}
		own := e.At(int(r.Bucket))
		asked := func(s uint16) bool {
			return s == buckets.None || s == own.Current || slices.Contains(own.Previous[:], s)
		}
		if !asked(r.Current) {
			return true // it gets new connections there
		}
		if r.Since <= over {
			continue
		}
		for _, s := range r.Previous {
			if !asked(s) && !l.buckets.disowned(vip, s, r) {
				return true
			}
		}
	}
	return false
}

// chains is the bucket table of a VIP, if packets go by it.
func (l *LB) chains(vip uint32) (e *buckets.Effective, generation uint32, ok bool) {
	generation, ok = l.buckets.inForce[vip]
	e = l.buckets.tables[vip]
	return e, generation, ok && e != nil && l.set != nil
}

// disowned says that a slot's agent reported, late enough, that it owns nothing
// of a peer's row.
func (b *bucketTables) disowned(vip uint32, slot uint16, r buckets.BucketRow) bool {
	of := b.reports[vip]
	if int(slot) >= len(of) || of[slot].at == 0 {
		return false
	}
	return !of[slot].buckets.Has(int(r.Bucket)) && of[slot].at >= r.Since+buckets.ReportAfter && of[slot].at >= b.endAfter
}
