package imbalance

import (
	"fmt"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// pair is two schemes of which the paper says how much better one is.
type pair struct {
	worse, better string
	reported      float64
	// why says what an experiment found out about the ratio. There are checks
	// with the default seconds alone, so runs have a steady state.
	why func(*found, pair) string
}

func (p pair) label() string { return p.worse + " / " + p.better }

// pairs are in the paper's order.
var pairs = []pair{
	{"ring", nameHash, 2, (*found).whyRing},
	{nameHash, policy.RR, 1.2, (*found).whyRR},
	{nameHash, policy.P2C, 10, (*found).whyP2C},
	{policy.P2C, nameLeastLoaded, 4, (*found).whyLeastLoaded},
}

// within is how far a ratio may be from the paper's, as a share.
const within = 0.25

func (f *found) whyRing(pair) string {
	return fmt.Sprintf("the %d points of the ring are fitted to this, as the paper does not say how many its consistent hash has: figure ring-points", f.o.Points)
}

func (f *found) whyRR(p pair) string {
	return fmt.Sprintf("figure run-length: a run begins with an empty pool, which moves the ratio; in the steady state it is %.2f ×", f.ratios(p, run.later).Mean)
}

func (f *found) whyP2C(p pair) string {
	at := func(load int) float64 {
		return f.stat(load, func(r run) float64 { return excess(r.later(p.worse)) / excess(r.later(p.better)) }).Mean
	}
	least, most, above, last := f.ends(p)
	return fmt.Sprintf("the ratio depends on the loads that are averaged: in the steady state it is %.1f × at %s active connections, %.1f × at %s, where p2c is %.1f and %.1f connections above the mean (figure above)",
		at(0), least, at(last), most, above(0), above(last))
}

func (f *found) whyLeastLoaded(p pair) string {
	least, most, above, last := f.ends(p)
	return fmt.Sprintf("figure run-length: the paper averages over the entire run, which begins with an empty pool; in the steady state it is %.1f ×, where least-loaded is %.1f connections above the mean at %s and %.1f at %s",
		f.ratios(p, run.later).Mean, above(0), least, above(last), most)
}

// ends are the least and the most active connections, and the better one's
// excess by load, of which last is the most.
func (f *found) ends(p pair) (least, most string, above func(load int) float64, last int) {
	last = len(f.loads) - 1
	above = func(load int) float64 {
		return f.stat(load, func(r run) float64 { return f.connectionsAbove(r, p.better) }).Mean
	}
	return sim.Grouped(f.loads[0].active, 0), sim.Grouped(f.loads[last].active, 0), above, last
}

// ratio is the area under a pair's worse curve (excess against active
// connections), divided by that of the better one: how close together the
// loads were chosen has little weight then.
func (f *found) ratio(p pair, seed int, of func(r run, name string) sums) float64 {
	area := func(name string) float64 {
		at := func(load int) float64 { return excess(of(f.runs[load][seed], name)) }
		if len(f.loads) == 1 {
			return at(0)
		}
		sum := 0.0
		for i := 1; i < len(f.loads); i++ {
			sum += (at(i-1) + at(i)) / 2 * (f.loads[i].active - f.loads[i-1].active)
		}
		return sum
	}
	return area(p.worse) / area(p.better)
}

func (f *found) ratios(p pair, of func(r run, name string) sums) sim.Stat {
	var samples []float64
	for i := range f.seeds {
		samples = append(samples, f.ratio(p, i, of))
	}
	return sim.NewStat(samples)
}

func (f *found) ratiosFigure() sim.Figure {
	whole, steady, paper := sim.Series{Name: "whole run", By: sim.Ours}, sim.Series{Name: "steady state", By: sim.Ours}, sim.Series{Name: "whole run", By: sim.ByPaper}
	for _, p := range pairs {
		if !f.has(p.worse, p.better) {
			continue
		}
		whole.Points = append(whole.Points, sim.Point{Label: p.label(), Y: f.ratios(p, run.whole)})
		if f.hasLater() {
			steady.Points = append(steady.Points, sim.Point{Label: p.label(), Y: f.ratios(p, run.later)})
		}
		if f.isPaper() {
			paper.Points = append(paper.Points, sim.Point{Label: p.label(), Y: sim.Value(p.reported)})
		}
	}
	return sim.Figure{
		Name: "ratios", Title: "How much better: excess over the mean, over all loads", Bars: true,
		X: sim.Axis{Label: "worse / better"}, Y: sim.Axis{Label: "ratio", Decimals: 2},
		Series: drop(whole, steady, paper),
	}
}

// runLength shows the ratios that runs of less time have.
func (f *found) runLength() sim.Figure {
	var all []sim.Series
	late := f.runs[0][0].late
	for _, p := range pairs {
		s := sim.Series{Name: p.label(), By: sim.Ours}
		for i, bound := range f.bounds {
			if i == late || !f.has(p.worse, p.better) {
				continue
			}
			y := f.ratios(p, func(r run, name string) sums { return r.contenders[name].upTo[i] })
			s.Points = append(s.Points, sim.Point{X: float64(bound) / float64(sim.Second), Y: y})
		}
		all = append(all, s)
	}
	return sim.Figure{
		Name: "run-length", Title: "The same ratios, had the run been shorter",
		X:      sim.Axis{Label: "length of the run", Unit: "s"},
		Y:      sim.Axis{Label: "ratio", Decimals: 2},
		Series: drop(all...),
		Note:   "Runs begin without any connection, when the mean is small and any connection is far above it. The paper does not say how long its runs are.",
	}
}

// checks hold the paper's statements against the figures, if its pool and loads
// were simulated for as long as fits them; the ring's with the fitted points.
func (f *found) checks() []sim.Check {
	if !f.isPaper() || f.o.Seconds != New().Seconds {
		return nil
	}
	var checks []sim.Check
	for _, p := range pairs {
		if f.held(p) {
			ours := f.ratios(p, run.whole).Mean
			c := sim.NewCheck(fmt.Sprintf("%s is better balanced than %s", p.better, p.worse), "×", ours, p.reported*(1-within), p.reported*(1+within), fmt.Sprintf("%g ×", p.reported))
			c.Why = p.why(f, p)
			checks = append(checks, c)
		}
	}
	if f.has(nameHash) {
		checks = append(checks, f.uniform()...)
	}
	return append(checks, f.order()...)
}

// held tells whether a pair was run as the paper's statement of it wants.
func (f *found) held(p pair) bool {
	return f.has(p.worse, p.better) && (p.worse != "ring" || f.o.Points == New().Points)
}

// uniform are the paper's absolute figures, of the uniform hash.
func (f *found) uniform() []sim.Check {
	of := func(load int) float64 {
		return f.stat(load, func(r run) float64 { return 100 * excess(r.whole(nameHash)) }).Mean
	}
	d, last := f.detail(), len(f.loads)-1
	detail := sim.NewCheck("hash at 70,000 active connections is above the mean by", "%", of(d), 30*(1-within), 30*(1+within), "30 % on average")
	most := sim.NewCheck("hash at 200,000 active connections is above the mean by", "%", of(last), 15*(1-within), 15*(1+within), "15 %, the low end of Google Maglev's 15 to 30 %")
	most.Why = "the paper chose its range of connections such that the hash has Maglev's imbalance"
	return []sim.Check{detail, most}
}

// order counts where the schemes are not in the paper's order.
func (f *found) order() []sim.Check {
	wrong, compared := 0, 0
	for i := range f.loads {
		for _, p := range pairs {
			if !f.held(p) {
				continue
			}
			compared++
			worse := f.stat(i, func(r run) float64 { return excess(r.whole(p.worse)) })
			better := f.stat(i, func(r run) float64 { return excess(r.whole(p.better)) })
			if worse.Mean <= better.Mean {
				wrong++
			}
		}
	}
	if compared == 0 {
		return nil
	}
	return []sim.Check{sim.NewCheck("places at which ring, hash, rr, p2c, least-loaded are in another order than this", "", float64(wrong), 0, 0, "none")}
}
