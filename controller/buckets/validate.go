package buckets

import "fmt"

// Validate says what is wrong with t, naming the field, its value and the
// remedy.
func (t *Table) Validate() error {
	n := t.Len()
	switch {
	case n < 1 || n > Max:
		return fmt.Errorf("buckets: current: %d buckets; a table has 1 to %d", n, Max)
	case len(t.Since) != n:
		return fmt.Errorf("buckets: since: %d buckets, and current has %d; both must have as many", len(t.Since), n)
	case len(t.Previous) != n:
		return fmt.Errorf("buckets: previous: %d buckets, and current has %d; both must have as many", len(t.Previous), n)
	}
	return inParts(n, partOf, func(first, end int) error {
		for b := first; b < end; b++ {
			p, cur := &t.Previous[b], t.Current[b]
			if p[1] == None && p[2] == None && (p[0] == None || p[0] != cur && cur != None && t.Since[b] != 0) {
				continue // as nearly all are
			}
			if err := validRow(b, cur, t.Since[b], *p); err != nil {
				return err
			}
		}
		return nil
	})
}

// validRow: see Validate.
func validRow(b int, cur uint16, since uint32, previous [Chain]uint16) error {
	ended := false
	for i, s := range previous {
		if s == None {
			ended = true
			continue
		}
		switch {
		case ended:
			return fmt.Errorf("buckets: bucket %d: previous[%d] %d: stands behind an empty place; write them without gaps", b, i, s)
		case s == cur:
			return fmt.Errorf("buckets: bucket %d: previous[%d] %d: is its current server; remove it, a packet would go round", b, i, s)
		}
		for _, before := range previous[:i] {
			if before == s {
				return fmt.Errorf("buckets: bucket %d: previous[%d] %d: stands there twice; remove it, a packet would go round", b, i, s)
			}
		}
	}
	switch {
	case cur == None && previous != NoPrevious:
		return fmt.Errorf("buckets: bucket %d: current %d: none, but it has previous servers %v; name a current one", b, cur, previous)
	case since == 0 && previous != NoPrevious:
		return fmt.Errorf("buckets: bucket %d: since 0: it never moved, but it has previous servers %v; write when it moved", b, previous)
	}
	return nil
}

// ValidateServers says which number in t is not among servers.
func (t *Table) ValidateServers(servers []Server) error {
	known := make([]bool, MaxServers+1)
	known[None] = true
	for _, s := range servers {
		known[s.Number] = true
	}
	return inParts(t.Len(), partOf, func(first, end int) error {
		for b := first; b < end; b++ {
			if cur := t.Current[b]; !known[cur] {
				return fmt.Errorf("buckets: bucket %d: current %d: no server has this number; move the bucket to one that is there", b, cur)
			}
			if t.Previous[b][0] == None {
				continue
			}
			for i, s := range t.Previous[b] {
				if !known[s] {
					return fmt.Errorf("buckets: bucket %d: previous[%d] %d: no server has this number; remove it from the chain", b, i, s)
				}
			}
		}
		return nil
	})
}

// Follows says why next must not come after t for one VIP: another number of
// buckets, a generation that is not newer, or the same with another content.
func (t *Table) Follows(next *Table) error {
	switch {
	case next.Len() != t.Len():
		return fmt.Errorf("buckets: %d buckets, was %d: it is fixed for the VIP's life, since another number moves every connection; make a VIP of its own with %d",
			next.Len(), t.Len(), next.Len())
	case Newer(t.Generation, next.Generation):
		return fmt.Errorf("buckets: generation %d: runs backwards, %d is in force; servers would drop its packets as stale: hand out a table of generation %d or more",
			next.Generation, t.Generation, t.Generation+1)
	case next.Generation == t.Generation && !t.Equal(next):
		return fmt.Errorf("buckets: generation %d: is in force already with another content; hand out the change as generation %d", next.Generation, t.Generation+1)
	}
	return nil
}
