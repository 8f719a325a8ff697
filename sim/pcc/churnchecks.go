package pcc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// checks: what must be, and what separates the schemes. Those whose schemes or
// figures were not run are left out.
func (o *BalancerChurn) checks(figures []sim.Figure, tallies []*Tally) (checks []sim.Check) {
	if slices.Contains(o.Schemes, Cheetah) {
		checks = append(checks, cheetahCheck("all figures and seeds together", "", tallies))
	}
	modulo, resilient, flood := byName(figures, "churn-"+string(Modulo)), byName(figures, "churn-"+string(Resilient)), byName(figures, "flood")
	for _, name := range []string{FullCTECMP, JET, JETTableHRW} {
		if y, x, ok := last(modulo, name); ok && x > 0 {
			c := sim.NewCheck(fmt.Sprintf("%s, %g balancers leave or join a minute behind modulo ECMP", name, x), "%", y.Mean, 0.1, sim.Unbounded, "")
			c.Why = "State is at one balancer; a connection that comes to another goes where the hash points now"
			checks = append(checks, c)
			if z, _, ok := last(resilient, name); ok && z.Mean > 0 {
				checks = append(checks, sim.NewCheck(name+", modulo over resilient ECMP", "", y.Mean/z.Mean, 1.2, sim.Unbounded, ""))
			}
		}
	}
	for _, name := range []string{Beamer1, Faild1} {
		y, x, ok := last(modulo, name)
		z, both := pointAt(modulo, name, 0)
		if ok && both && x > 0 && z.Mean > 0 {
			checks = append(checks, sim.NewCheck(fmt.Sprintf("%s, %g balancers leave or join a minute over none", name, x), "", y.Mean/z.Mean, 0.5, 2, ""))
		}
	}
	if full, x, ok := last(flood, FullCTECMP); ok && x > 0 {
		if jet, _, ok := last(flood, JET); ok && jet.Mean > 0 {
			checks = append(checks, sim.NewCheck(fmt.Sprintf("full-ct-ecmp over jet under %s SYNs a second", sim.Grouped(x, 0)), "", full.Mean/jet.Mean, 5, sim.Unbounded, ""))
		}
	}
	return checks
}

// byName is a figure; an empty one if there is none.
func byName(figures []sim.Figure, name string) sim.Figure {
	if i := slices.IndexFunc(figures, func(f sim.Figure) bool { return f.Name == name }); i >= 0 {
		return figures[i]
	}
	return sim.Figure{}
}

// last is our statistic of a series at its greatest place.
func last(f sim.Figure, series string) (y sim.Stat, x float64, ok bool) {
	points := ours(f, series)
	if len(points) == 0 {
		return y, 0, false
	}
	p := slices.MaxFunc(points, func(a, b sim.Point) int { return cmp.Compare(a.X, b.X) })
	return p.Y, p.X, true
}

// ours are the points of our series of a name.
func ours(f sim.Figure, series string) []sim.Point {
	i := slices.IndexFunc(f.Series, func(s sim.Series) bool { return s.Name == series && s.By == sim.Ours })
	if i < 0 {
		return nil
	}
	return f.Series[i].Points
}
