package tracking

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/vip"
)

// What the authors' public program breaks with 468 servers, a horizon of 47, a
// table of 10 % of 10,000 active connections and 10 failures a minute.
const (
	authorsConnections = 468_667
	authorsJet         = 30
	authorsFullCT      = 899
)

const reportedNote = "Marks: one run of the authors' public program, which takes no seed, on the kind of machine that Fairlead is developed on. " +
	"The plot of the slides has no numbers in its text."

// reportedBroken are the authors' points for those of the names that they have.
func reportedBroken(names []string) []sim.Series {
	var list []sim.Series
	for _, name := range names {
		broken, ok := map[string]float64{SchemeJET: authorsJet, SchemeFullCT: authorsFullCT}[name]
		if ok {
			list = append(list, sim.Series{Name: name, By: sim.ByData, Points: []sim.Point{{Label: "anchor", Y: sim.Value(broken)}}})
		}
	}
	return list
}

// checks hold the result against the slides' statements and the authors' run.
func (j *Jet) checks(found outcomes) []sim.Check {
	var list []sim.Check
	for _, c := range j.curves() {
		switch c.row().Tracks {
		case vip.Foreseen:
			if j.asAuthors() && c.unusual() == "" {
				list = append(list, j.checkStandard(found, c))
			}
			list = append(list, j.checkTracked(found, c))
			list = append(list, j.checkOrder(found, c, SchemeFullCT, jetToFullCT)...)
		case vip.All:
			if j.asAuthors() && c.hash == chash.KindAnchor && c.unusual() == "" {
				list = append(list, j.checkAuthors(found, c))
			}
			list = append(list, j.checkOrder(found, c, SchemeStateless, fullCTToStateless)...)
		}
	}
	return list
}

// checkStandard: at the authors' point JET breaks nothing.
func (j *Jet) checkStandard(found outcomes, c curve) sim.Check {
	reported := fmt.Sprintf("%d of %s (one run of the authors' program)", authorsJet, sim.Grouped(authorsConnections, 0))
	return sim.NewCheck("broken under "+c.name()+" at the standard point, a run", "", sim.StatOf(found[j.standard(c)], brokenCount).Mean, 0, 0, reported)
}

// checkAuthors: full tracking breaks as many as in the authors' program, whose
// one run is as good as any of ours.
func (j *Jet) checkAuthors(found outcomes, c curve) sim.Check {
	const factor = 2
	return sim.NewCheck("broken under "+c.name()+" at the standard point, a run", "", sim.StatOf(found[j.standard(c)], brokenCount).Mean,
		authorsFullCT/factor, authorsFullCT*factor, fmt.Sprintf("%d (one run of the authors' program)", authorsFullCT))
}

// checkTracked: the share of tracked connections is |H| / (|W| + |H|).
func (j *Jet) checkTracked(found outcomes, c curve) sim.Check {
	s := j.sweep("horizon")
	worst := 1.0
	for _, x := range s.values {
		list := found[j.at(c, s, x)]
		expected := sim.StatOf(list, expectedShare).Mean
		if expected == 0 {
			continue // no horizon
		}
		if ratio := sim.StatOf(list, wantedShare).Mean / expected; math.Abs(ratio-1) > math.Abs(worst-1) {
			worst = ratio
		}
	}
	return sim.NewCheck("tracked under "+c.name()+" over |H| / (|W| + |H|), the horizon where it is furthest from 1", "", worst, 0.9, 1.1, "|H| / (|W| + |H|)")
}

// order is what a pair of curves must show at each point.
type order struct {
	most float64
	says string
	// alike is why both may break the same.
	alike string
}

var (
	jetToFullCT       = order{most: 0.5, says: "JET ≪ full CT"}
	fullCTToStateless = order{
		most: 0.5, says: "full CT ≪ no memory",
		alike: "a table too small for all has lost each entry before its connection speaks again, where all speak after each change; figure table-ratio-silent has what it is worth where none does",
	}
)

// fewToCompare is how many a run must be broken under a scheme for another to
// break far fewer.
const fewToCompare = 10

// checkOrder: at no point at which another scheme over the same hash breaks
// fewToCompare does the curve break more than a share of that.
func (j *Jet) checkOrder(found outcomes, c curve, scheme string, o order) []sim.Check {
	other := curve{scheme, c.hash, defaultEvict(scheme)}
	if _, ok := found[j.standard(other)]; !ok {
		return nil
	}
	most, where := -1.0, point{}
	for _, s := range j.sweeps() {
		for _, x := range s.values {
			p := j.at(c, s, x)
			if ratio, ok := brokenRatio(found[p], found[j.at(other, s, x)]); ok && ratio > most {
				most, where = ratio, p
			}
		}
	}
	if most < 0 {
		return nil // the other breaks too few everywhere
	}
	check := sim.NewCheck(fmt.Sprintf("broken under %s over broken under %s, the most at any point", c.name(), other.name()), "", most, 0, o.most, o.says)
	switch {
	case most > 0.9 && o.alike != "":
		check.Why = o.alike
	case most > 0:
		check.Why = fmt.Sprintf("the most is at %s", where.text())
		if refused := sim.StatOf(found[where], func(o outcome) float64 { return float64(o.refused) }).Mean; refused > 0 {
			check.Why += fmt.Sprintf(", where %s entries a run found no place in the table", sim.Grouped(refused, 0))
		}
	}
	return []sim.Check{check}
}

// brokenRatio is how many a breaks for each that b does; false: b breaks fewer
// than fewToCompare a run.
func brokenRatio(a, b []outcome) (ratio float64, ok bool) {
	x, y := sim.StatOf(a, brokenCount).Mean, sim.StatOf(b, brokenCount).Mean
	return x / max(y, 1), y >= fewToCompare
}

// text is the point without its curve.
func (p point) text() string {
	text := fmt.Sprintf("%g failures a minute, %s active", p.kills, sim.Grouped(float64(p.active), 0))
	if !p.row().Forgets() {
		text += fmt.Sprintf(", a table of %g", p.ratio)
	}
	if p.row().Foresees() {
		text += fmt.Sprintf(", a horizon of %d", p.horizon)
	}
	return text
}
