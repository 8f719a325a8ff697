package spread

import (
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// leastP is how improbable the least probable of all counts may be, by pure
// chance and with regard to how many were looked at.
const leastP = 0.01

// checks hold the runs against what must be, and those of the default trace
// against the paper: a smaller one deviates more, by any scheme.
func (f *found) checks() (checks []sim.Check) {
	for i, scheme := range f.o.Schemes {
		if scheme == nameCRC16 {
			continue
		}
		checks = append(checks,
			f.evenness(i, "one router", func(u *uniform) map[int][]uint32 { return u.one }),
			f.evenness(i, "four routers", func(u *uniform) map[int][]uint32 { return u.row }))
	}
	checks = append(checks,
		sim.NewCheck("commonest digit that routers read over even, of radixes 2 to 16, all source ports", "×", mostUneven(f.seeds[0]), 1, 1.0005, ""))
	if d := New(); f.o.Flows.Record != nil || f.o.Packets != d.Packets || f.o.Mean != d.Mean || f.o.Skew != d.Skew || f.o.Span != d.Span {
		return checks
	}
	for i, scheme := range f.o.Schemes {
		if scheme != nameCRC16 {
			checks = append(checks, f.pair(i), f.range7(i, false), f.range7(i, true))
		}
	}
	return append(checks, f.compared()...)
}

// evenness is the smallest p of all numbers of hops and seeds, times how many
// there are (Bonferroni). It does not hold where there are too few flows for any.
func (f *found) evenness(scheme int, where string, of func(*uniform) map[int][]uint32) sim.Check {
	least, tests, cells := 1.0, 0, math.MaxInt
	for _, u := range f.uniform[scheme] {
		for _, counts := range of(u) {
			cells = min(cells, len(counts))
			if _, p := chi2(counts); !math.IsNaN(p) {
				least = min(least, p)
				tests++
			}
		}
	}
	if tests == 0 {
		least = math.NaN()
	}
	c := sim.NewCheck(fmt.Sprintf("p of %s's most uneven flows, %s, of %d counts", f.o.Schemes[scheme], where, tests), "",
		min(1, least*float64(tests)), leastP, 1, "")
	switch {
	case tests == 0:
		c.Why = fmt.Sprintf("too few flows to tell: %d at least are needed", leastExpected*cells)
	case !c.Holds:
		c.Why = "chance alone would not have made flows so uneven"
	}
	return c
}

// pair is figure 6a's text.
func (f *found) pair(scheme int) sim.Check {
	all := f.all(scheme, (*deviations).pairs)
	return sim.NewCheck(fmt.Sprintf("furthest second of %s, two next hops", f.o.Schemes[scheme]), "%", quantile(all, 1), 0, 4, "under 4 %")
}

// range7 is figure 7's text.
func (f *found) range7(scheme int, most bool) sim.Check {
	what, ours := "least", math.Inf(1)
	if most {
		what, ours = "greatest", math.Inf(-1)
	}
	for _, d := range f.deviated[scheme] {
		low, high := d.shares()
		if most {
			ours = max(ours, high)
		} else {
			ours = min(ours, low)
		}
	}
	return sim.NewCheck(fmt.Sprintf("%s share of a second of %s, four next hops", what, f.o.Schemes[scheme]), "%", ours, 22, 28, "within 22 and 28 %")
}

// compared are the figures' text on schemes against MD5, and CRC16's ways.
func (f *found) compared() (checks []sim.Check) {
	md5 := slices.Index(f.o.Schemes, nameMD5)
	if md5 < 0 {
		return nil
	}
	ratio := func(scheme int, of func(*deviations) []float64) float64 {
		return mean(f.all(scheme, of)) / mean(f.all(md5, of))
	}
	for i, scheme := range f.o.Schemes {
		if byCFLB(scheme) {
			checks = append(checks, sim.NewCheck(fmt.Sprintf("mean deviation of %s after four routers over md5's", scheme), "×",
				ratio(i, (*deviations).rows), 0, 1.15, "at least as good"))
		}
		if scheme == nameCRC16 {
			one := sim.NewCheck("mean deviation of crc16 at one router over md5's", "×", ratio(i, (*deviations).pairs), 1.2, sim.Unbounded, "rather poor")
			if !one.Holds {
				one.Why = "CRC16 of drawn addresses and ports is even; the paper's trace has its own structure, which CRCs, being linear, can take over: try --flows with yours"
			}
			row := sim.NewCheck("mean deviation of crc16 after four routers over md5's", "×", ratio(i, (*deviations).rows), 1.2, sim.Unbounded, "worse than md5")
			checks = append(checks, one, row)
		}
	}
	return checks
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}
