package policy

import "math"

// AWRR is automatic weighted round robin: weights follow the load that
// servers report. The data plane does not have it yet, so the configuration
// does not offer it; the simulator runs it.
const AWRR = "awrr"

// What Cheetah (NSDI'20, §4.1) sets for AWRR: entries of a server whose load
// is the average, the most of one without load, the least of one with any, and
// how far a weight leans on the average instead of on the server's own load
// (0 to 1; 1 makes all weights alike).
const (
	AWRREntries = 10
	AWRRMost    = 30
	AWRRLeast   = 2
	AWRRAlpha   = 0.5
)

// Reported is a server with the load that it reported last: any measure of 0
// or more that is the same for all (share of time busy, open requests).
type Reported struct {
	Slot uint16
	Load float64
	// Draining servers take no new connections, and their load does not count
	// in the average.
	Draining bool
}

// AWRRShares is how many entries each server gets (Cheetah §4.1):
//
//	N = round(10·avg / ((1−α)·load + α·avg)), at least 2, at most 30
//
// and 30 where the load is 0 (so that all have 30 when nobody has any). A load
// that is negative or not a number counts as 0: a report that makes no sense
// must not keep a server from work for ever. α is bounded to 0..1.
// Without the special case of 0 no server would have more than 10/α entries.
func AWRRShares(servers []Reported, alpha float64) []int {
	alpha = min(max(alpha, 0), 1)
	sum, active := 0.0, 0.0
	for _, s := range servers {
		if !s.Draining {
			sum += max(finite(s.Load), 0)
			active++
		}
	}
	average := sum / max(active, 1)
	shares := make([]int, len(servers))
	for i, s := range servers {
		load := finite(s.Load)
		switch {
		case s.Draining:
		case load <= 0:
			shares[i] = AWRRMost
		default:
			n := math.Round(AWRREntries * average / ((1-alpha)*load + alpha*average))
			shares[i] = int(min(max(n, AWRRLeast), AWRRMost))
		}
	}
	return shares
}

func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// AWRRTable is the table that Choose walks under AWRR: each server's entries,
// shuffled so that those of one do not come in a row. It is made anew and
// swapped in every 5 to 100 ms (Cheetah's published code). below(n) is a random number
// from 0 to n-1. Empty if all servers drain. O(entries).
func AWRRTable(servers []Reported, alpha float64, below func(n int) int) []uint32 {
	var table []uint32
	for i, n := range AWRRShares(servers, alpha) {
		for range n {
			table = append(table, Entry(servers[i].Slot, 1))
		}
	}
	for i := len(table) - 1; i > 0; i-- {
		j := below(i + 1)
		table[i], table[j] = table[j], table[i]
	}
	return table
}
