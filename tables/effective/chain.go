package effective

import (
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// candidates are servers that may stand in a chain, once each, and when each
// had the bucket last: here, and at all daemons.
type candidates struct {
	all           [6*buckets.Chain + 2]uint16
	left, settled [6*buckets.Chain + 2]uint32
	n             int
}

func (c *candidates) add(s uint16, left, settled uint32) {
	if s != buckets.None && c.n < len(c.all) && !slices.Contains(c.all[:c.n], s) {
		c.all[c.n], c.left[c.n], c.settled[c.n] = s, left, settled
		c.n++
	}
}

// sort puts those first that had the bucket last.
func (c *candidates) sort() {
	for i := 1; i < c.n; i++ {
		for j := i; j > 0 && c.left[j] > c.left[j-1]; j-- {
			c.all[j], c.all[j-1] = c.all[j-1], c.all[j]
			c.left[j], c.left[j-1] = c.left[j-1], c.left[j]
			c.settled[j], c.settled[j-1] = c.settled[j-1], c.settled[j]
		}
	}
}

// chain fills in r.Previous and c.left from the candidates, and what time does
// to them.
func (u *update) chain(c *chained, r *buckets.Row, from *candidates, moved bool) {
	e := u.Table
	var kept candidates
	var worths [len(kept.all)]buckets.Worth
	owned := uint64(0)
	// Of those who are down, whoever has spoken since stands first: one whose
	// checks fail passes on what it does not own, and one that is dead
	// swallows it.
	standing := func(s uint16) int {
		switch {
		case !e.down.has(s):
			return 0
		case u.spoke(s, int(c.bucket)):
			return 1
		case u.v.Datagrams:
			return -1
		}
		return 2
	}
	for place := range 3 {
		for i, s := range from.all[:from.n] {
			if s == r.Current || !e.known.has(s) || standing(s) != place {
				continue
			}
			until, w := u.o.Until(s, int(c.bucket), c.moved, from.left[i], from.settled[i])
			if until <= uint64(u.v.Now) {
				continue
			}
			u.due = min(u.due, until)
			if at := until - uint64(u.v.ChainTime); at > uint64(c.moved) {
				owned = max(owned, at)
			}
			worths[kept.n] = w
			kept.add(s, 0, 0)
		}
	}
	n := buckets.Fit(kept.all[:kept.n], worths[:kept.n])
	if moved {
		e.Forgotten += uint64(kept.n - n)
	}
	for i, s := range kept.all[:n] {
		r.Previous[i] = s
		// fit may have moved it up.
		c.left[i] = from.left[slices.Index(from.all[:from.n], s)]
	}
	// Who owns something is passed packets for as long as it does: they carry
	// a time that is renewed when half of the chain time has gone by, not
	// with each report.
	if half := uint64(r.Since) + uint64(u.v.ChainTime+1)/2; owned > uint64(r.Since) && uint64(u.v.Now) >= half {
		r.Since = uint32(owned)
	} else if owned > uint64(r.Since) {
		u.due = min(u.due, half)
	}
}
