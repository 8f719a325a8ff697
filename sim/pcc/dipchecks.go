package pcc

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// checks hold the curves against what the paper says of them, for its pool and
// its load. Those whose schemes, or whose rate, were not run are left out.
func (o *DIPUpdates) checks(f sim.Figure, tallies []*Tally) (checks []sim.Check) {
	if slices.Contains(o.Schemes, Cheetah) {
		checks = append(checks, cheetahCheck("all rates and seeds together", "0", tallies))
	}
	if !o.isPaper() {
		return checks
	}
	for _, name := range []string{Beamer1, Beamer1Any, Faild1} {
		if p, ok := pointAt(f, name, 80); ok {
			c := sim.NewCheck("broken under "+name+" at 80 updates a minute", "%", p.Mean, 0.3, 3, "almost 1 %")
			if name == Beamer1 {
				c.Why = o.oldestFirst(f)
			}
			checks = append(checks, c)
		}
	}
	for _, order := range [][2]string{
		{Hash, "ring"}, {Hash, "table-hrw"}, {Hash, "maglev"}, {Hash, "anchor"},
		{"ring", Beamer1}, {"table-hrw", Beamer1}, {"maglev", Beamer1}, {"anchor", Beamer1}, {"anchor", Faild1},
	} {
		if r, ok := leastRatio(f, order[0], order[1]); ok {
			checks = append(checks, sim.NewCheck(fmt.Sprintf("%s over %s, least ratio of all rates", order[0], order[1]), "", r, 2, sim.Unbounded, "one curve above the other"))
		}
	}
	return checks
}

// cheetahCheck is the statement on what broke under cheetah in some runs.
func cheetahCheck(which, reported string, tallies []*Tally) sim.Check {
	broken := int64(0)
	for _, t := range tallies {
		broken += t.Schemes[t.index(Cheetah)].Broken
	}
	c := sim.NewCheck("broken connections under cheetah, "+which, "", float64(broken), 0, 0, reported)
	c.Why = cookiesWhy
	return c
}

// oldestFirst says what choosing the oldest buckets is worth.
func (o *DIPUpdates) oldestFirst(f sim.Figure) string {
	oldest, ok := pointAt(f, Beamer1, 80)
	if any, both := pointAt(f, Beamer1Any, 80); ok && both {
		return fmt.Sprintf("The controller gives away the buckets that moved longest ago, as Beamer's authors' does; giving away any of a server's, as in beamer-1-any, breaks %.2f %% instead of %.2f %%", any.Mean, oldest.Mean)
	}
	return ""
}

// pointAt is our statistic of a series at a place.
func pointAt(f sim.Figure, series string, x float64) (sim.Stat, bool) {
	for _, p := range ours(f, series) {
		if p.X == x {
			return p.Y, true
		}
	}
	return sim.Stat{}, false
}

// mostRatio stands for the ratio to nothing at all.
const mostRatio = 1e6

// leastRatio is the least ratio of two of our series over all places, of which
// those do not count where both are 0. False: there is none.
func leastRatio(f sim.Figure, above, below string) (least float64, ok bool) {
	least = mostRatio
	for _, p := range ours(f, above) {
		q, found := pointAt(f, below, p.X)
		if !found || p.Y.Mean == 0 && q.Mean == 0 {
			continue
		}
		ok = true
		if q.Mean > 0 {
			least = min(least, p.Y.Mean/q.Mean)
		}
	}
	return least, ok
}
