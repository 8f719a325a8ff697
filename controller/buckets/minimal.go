package buckets

import (
	"cmp"
	"slices"
)

// Rules is how many contiguous ranges of buckets t has, each of one server:
// what a device needs rules for that matches on ranges.
func (t *Table) Rules() int {
	rules := 0
	for b, s := range t.Current {
		if b == 0 || s != t.Current[b-1] {
			rules++
		}
	}
	return rules
}

// Minimal is the way from t to a table in which every server has one
// contiguous range of as many buckets as it has now. Each step is to be
// applied alone, moves at most churn buckets (2 or more; at least 2 it takes)
// and leaves every server's load as it is. A bucket moves only if it last did
// at least the chain time ago: a step's buckets that move again in a later one
// must have got that old meanwhile. What is too young at o.Now, or of a server
// that drains or is not among servers, stays; later calls move it.
func (t *Table) Minimal(servers []Server, o Options, churn int) (steps [][]Move) {
	churn = max(churn, 2)
	order := t.order(servers)
	goal := t.Current
	if len(order) > 0 {
		goal = t.ranges(order)
	}
	var from [MaxServers + 1][]uint32 // buckets that are to leave each server
	for b, s := range t.Current {
		if goal[b] != s && uint64(t.Since[b])+uint64(o.ChainTime) <= uint64(o.Now) || goal[b] != s && t.Since[b] == 0 {
			from[s] = append(from[s], uint32(b))
		}
	}
	var step []Move
	flush := func() {
		if len(step) > 0 {
			steps = append(steps, step)
			step = nil
		}
	}
	// A cycle of servers, each giving a bucket to the next, changes no load.
	cycles(&from, goal, func(cycle []uint32) {
		// A bucket waits where the one before it leaves, until the cycle is
		// short enough: it costs a move more each time.
		first := t.Current[cycle[0]]
		for len(cycle) > churn {
			flush()
			for _, b := range cycle[:churn-1] {
				step = append(step, Move{b, goal[b]})
			}
			waits := cycle[churn-1]
			step = append(step, Move{waits, first})
			flush()
			cycle = cycle[churn-1:]
		}
		if len(step)+len(cycle) > churn {
			flush()
		}
		for _, b := range cycle {
			step = append(step, Move{b, goal[b]})
		}
	})
	flush()
	return steps
}

// order is the servers that get a range, by where their buckets are now on
// average, so that few have to move.
func (t *Table) order(servers []Server) []uint16 {
	var sum [MaxServers + 1]float64
	loads := t.loads()
	for b, s := range t.Current {
		sum[s] += float64(b)
	}
	var order []uint16
	for _, s := range servers {
		if s.Weight > 0 && loads[s.Number] > 0 {
			order = append(order, s.Number)
		}
	}
	slices.SortFunc(order, func(a, b uint16) int {
		return cmp.Or(cmp.Compare(sum[a]/float64(loads[a]), sum[b]/float64(loads[b])), cmp.Compare(a, b))
	})
	return order
}

// ranges is who shall have each bucket: the servers of order one range after
// the other, of what is not of other servers.
func (t *Table) ranges(order []uint16) []uint16 {
	loads := t.loads()
	ordered := make([]bool, MaxServers+1)
	for _, s := range order {
		ordered[s] = true
	}
	goal := slices.Clone(t.Current)
	i, left := 0, loads[order[0]]
	for b, s := range t.Current {
		if !ordered[s] {
			continue
		}
		if left == 0 {
			i++
			left = loads[order[i]]
		}
		goal[b] = order[i]
		left--
	}
	return goal
}

// cycles takes buckets out of from so that those of each cycle, moved to their
// goals, change no server's load, and hands the cycles out. What fits in none
// is left out.
func cycles(from *[MaxServers + 1][]uint32, goal []uint16, each func([]uint32)) {
	var path []uint32            // buckets, each leaving the server that the one before goes to
	var stops []uint16           // servers: stops[i] is where path[i] leaves
	var at [MaxServers + 1]int32 // where in stops a server is, plus 1; 0: not there
	for start := range from {
		for len(from[start]) > 0 {
			path, stops = path[:0], append(stops[:0], uint16(start))
			at[start] = 1
			for len(stops) > 0 {
				here := stops[len(stops)-1]
				n := len(from[here])
				if n == 0 {
					// Nothing leaves here, so what came stays where it was.
					at[here] = 0
					stops = stops[:len(stops)-1]
					path = path[:max(len(path)-1, 0)]
					continue
				}
				b := from[here][n-1]
				from[here] = from[here][:n-1]
				path = append(path, b)
				next := goal[b]
				i := int(at[next]) - 1
				if i < 0 {
					stops = append(stops, next)
					at[next] = int32(len(stops))
					continue
				}
				each(slices.Clone(path[i:]))
				for _, s := range stops[i+1:] {
					at[s] = 0
				}
				path, stops = path[:i], stops[:i+1]
			}
		}
	}
}
