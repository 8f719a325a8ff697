package effective

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// BucketRow is one bucket's row, as daemons of a kind tell each other.
type BucketRow struct {
	Bucket uint32
	buckets.Row
}

// Rows are at most limit rows, of buckets from first on, that another daemon
// of the same kind cannot know from the table alone: those with a chain, and
// those whose server is a deputy. Their Since is when the bucket moved here,
// whatever owners put off since. next is where to go on; 0: there are no more.
func (e *Table) Rows(first, limit int) (rows []BucketRow, next int) {
	at, _ := slices.BinarySearchFunc(e.open, first, func(c chained, b int) int { return cmp.Compare(int(c.bucket), b) })
	for _, c := range e.open[at:] {
		b := int(c.bucket)
		if e.Previous[b][0] == buckets.None && e.Current[b] == e.table.Current[b] {
			continue
		}
		if len(rows) >= limit {
			return rows, b
		}
		r := BucketRow{c.bucket, e.At(b)}
		r.Since = c.moved
		rows = append(rows, r)
	}
	return rows, 0
}

// Learn takes rows of another daemon of the same kind, as its Rows gives them.
// With the next Update whoever has or had a bucket there and has no place here
// gets one in its chain, behind those who have one, if the chain time is not
// over since. While another server has the bucket there than here, that one
// stays in the chain, for it gets new connections. Rows that say nothing new
// cost next to nothing.
func (e *Table) Learn(rows []BucketRow) {
	for _, r := range rows {
		b := int(r.Bucket)
		if b >= e.Len() || len(e.heard) > 4*e.Len() {
			continue
		}
		own := e.At(b)
		if r.Current == own.Current && !slices.ContainsFunc(r.Previous[:], func(s uint16) bool {
			return s != buckets.None && s != own.Current && !slices.Contains(own.Previous[:], s)
		}) {
			continue
		}
		e.heard = append(e.heard, r)
	}
}

// told is a server that another daemon's row names, and when it had the bucket
// last there. Who has it there comes first in the chain here, who had it comes
// last, so that two daemons do not push each other's servers out for ever.
type told struct {
	number uint16
	left   uint32
	has    bool
}

// begin takes over what was open and heard before.
func (u *update) begin() {
	e := u.Table
	u.open, u.heard = e.open, e.heard
	slices.SortStableFunc(u.heard, func(a, b BucketRow) int { return cmp.Compare(a.Bucket, b.Bucket) })
	visits := len(u.open) + len(u.heard)
	if u.all {
		visits = len(u.heard)
		for b := range u.t.Current[:min(u.t.Len(), rowsAtOnce)] { // more are counted in parts
			if !u.settled(b) {
				visits++
			}
		}
	}
	e.open, e.heard = make([]chained, 0, visits), nil
}

// told takes what was heard of c's bucket, which was as in was and whose server
// is current now: who is to have a place in its chain, beside those who have.
func (u *update) told(c *chained, was *buckets.Row, current uint16) (servers []told) {
	for len(u.heard) > 0 && u.heard[0].Bucket < c.bucket {
		u.heard = u.heard[1:]
	}
	now := u.v.Now
	for ; len(u.heard) > 0 && u.heard[0].Bucket == c.bucket; u.heard = u.heard[1:] {
		r := &u.heard[0]
		since := min(r.Since, now)
		if r.Current != buckets.None && r.Current != current {
			// It gets new connections there until now: no report counts. The
			// time of the packets need not change each time.
			if i := slices.Index(was.Previous[:], r.Current); i >= 0 {
				c.left[i] = now
			}
			servers = append(servers, told{r.Current, now, true})
			if uint64(now) >= uint64(c.moved)+uint64(u.v.ChainTime+1)/2 {
				c.moved = now
			}
		}
		if uint64(since)+uint64(u.v.ChainTime) <= uint64(now) {
			continue
		}
		for _, s := range r.Previous {
			if s == buckets.None || s == current || slices.Contains(was.Previous[:], s) {
				continue
			}
			servers = append(servers, told{s, since, false})
			c.moved = max(c.moved, since)
		}
	}
	return servers
}
