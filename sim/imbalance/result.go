package imbalance

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// run is what one run under one seed found, by contender's name.
type run struct {
	contenders  map[string]*contender
	connections int64
	late, end   int // of the contenders' upTo; see bounds
}

func newRun(contenders []*contender, connections int64, late, end int) run {
	r := run{map[string]*contender{}, connections, late, end}
	for _, c := range contenders {
		c.server, c.chooser = nil, nil // the sums are all that is wanted
		r.contenders[c.name] = c
	}
	return r
}

// whole is the sums of the whole run, later those of its later part, or of the
// whole where there is none.
func (r run) whole(name string) sums { return r.contenders[name].upTo[r.end] }
func (r run) later(name string) sums {
	u := r.contenders[name].upTo
	if r.late == none {
		return u[r.end]
	}
	return u[r.end].minus(u[r.late])
}

// found is all runs, by load and seed.
type found struct {
	o      *Options
	seeds  []uint64
	loads  []load
	runs   [][]run
	bounds []sim.Time
}

// nobody tells whether there was no time with any connection.
func (f *found) nobody() bool {
	for _, runs := range f.runs {
		for _, r := range runs {
			for _, c := range r.contenders {
				if r.later(c.name).time == 0 {
					return true
				}
			}
		}
	}
	return false
}

// stat is a figure of one load over the seeds.
func (f *found) stat(load int, of func(r run) float64) sim.Stat {
	return sim.StatOf(f.runs[load], of)
}

func excess(s sums) float64 { return s.excess / s.time }

func (f *found) result() *sim.Result {
	o := f.o
	r := &sim.Result{
		Scenario: "imbalance", Source: "Cheetah (NSDI'20), figure 2b", Machine: sim.ThisMachine(), Seeds: f.seeds,
		Parameters: []sim.Parameter{{Name: "servers", Value: sim.Grouped(float64(o.Servers), 0)}},
		Samples:    []sim.Sample{{What: "connections", Count: f.connections()}},
		Figures:    []sim.Figure{f.imbalance(), f.whole()},
	}
	if f.hasLater() {
		r.Figures = append(r.Figures, f.later())
	}
	r.Figures = append(r.Figures, f.above())
	if o.Flows.Record != nil {
		r.Source = ""
		r.Parameters = append(r.Parameters, sim.Parameter{Name: "connections of", Value: o.Flows.Name})
	} else {
		r.Parameters = append(r.Parameters,
			sim.Parameter{Name: "lifetimes", Value: o.Lifetimes.Name},
			sim.Parameter{Name: "seconds", Value: sim.Grouped(float64(o.Seconds), 0)})
	}
	r.Parameters = append(r.Parameters,
		sim.Parameter{Name: "points of a server on the ring", Value: fmt.Sprint(o.Points)},
		sim.Parameter{Name: "reports to awrr every", Value: o.Report.String()})
	if o.Flows.Record == nil {
		r.Figures = append(r.Figures, f.extras()...)
		r.Checks = f.checks()
	}
	return r
}

func (f *found) connections() (n int64) {
	for _, runs := range f.runs {
		for _, r := range runs {
			n += r.connections
		}
	}
	return n
}

// curves are one series for each scheme against the connections.
func (f *found) curves(of func(r run, name string) float64) []sim.Series {
	var all []sim.Series
	for _, name := range f.o.Schemes {
		s := sim.Series{Name: name, By: sim.Ours}
		for i, l := range f.loads {
			s.Points = append(s.Points, sim.Point{X: l.active, Y: f.stat(i, func(r run) float64 { return of(r, name) })})
		}
		all = append(all, s)
	}
	return all
}

var activeAxis = sim.Axis{Label: "active connections"}

func (f *found) imbalance() sim.Figure {
	fig := sim.Figure{
		Name: "imbalance", Title: "Connections of the most loaded server over the mean", X: activeAxis,
		Y:      sim.Axis{Label: "most / mean", Decimals: 3},
		Series: f.curves(func(r run, name string) float64 { return 1 + excess(r.whole(name)) }),
		Note:   "Mean over the whole run, which begins without any connection.",
	}
	if f.isPaper() {
		fig.Series = append(fig.Series, sim.Series{Name: nameHash, By: sim.ByPaper, Points: []sim.Point{{X: paperDetail, Y: sim.Value(1.30)}}})
	}
	return fig
}

// isPaper tells whether the pool and the loads are the paper's. It states
// neither the seconds, nor the ring's points, nor how often awrr hears reports.
func (f *found) isPaper() bool {
	d := New()
	last := len(f.loads) - 1
	return f.o.Flows.Record == nil && f.o.Servers == d.Servers && f.o.Lifetimes == d.Lifetimes &&
		f.loads[0].active == paperLeast && f.loads[f.detail()].active == paperDetail && f.loads[last].active == paperMost
}

func (f *found) whole() sim.Figure {
	fig := sim.Figure{
		Name: "excess", Title: "What the most loaded server has above the mean", X: activeAxis,
		Y:      sim.Axis{Label: "above the mean", Unit: "%", Log: true, Decimals: 2},
		Series: f.curves(func(r run, name string) float64 { return 100 * excess(r.whole(name)) }),
		Note:   "The same as most / mean - 1: what the paper's ratios are about.",
	}
	if !f.hasLater() {
		fig.Note += fmt.Sprintf(" There is no steady state to show: connections last up to %.4g s, the run %d s; give more --seconds.", float64(f.o.Lifetimes.Longest())/float64(sim.Second), f.o.Seconds)
	}
	return fig
}

// hasLater tells whether runs have a later part that is shown by itself.
func (f *found) hasLater() bool { return f.runs[0][0].late != none }

// part is what the figures of a later part are about.
func (f *found) part() string {
	switch {
	case !f.hasLater():
		return "over the whole run"
	case f.o.Flows.Record != nil:
		return "in the second half of the run"
	}
	return "in the steady state"
}

func (f *found) later() sim.Figure {
	name := "steady"
	if f.o.Flows.Record != nil {
		name = "second-half"
	}
	return sim.Figure{
		Name: name, Title: "The same " + f.part(), X: activeAxis,
		Y:      sim.Axis{Label: "above the mean", Unit: "%", Log: true, Decimals: 2},
		Series: f.curves(func(r run, name string) float64 { return 100 * excess(r.later(name)) }),
		Note:   fmt.Sprintf("From second %.4g on.", float64(f.bounds[f.runs[0][0].late])/float64(sim.Second)),
	}
}

func (f *found) above() sim.Figure {
	return sim.Figure{
		Name: "above", Title: "The same in connections, " + f.part(), X: activeAxis,
		Y:      sim.Axis{Label: "connections above the mean", Log: true, Decimals: 2},
		Series: f.curves(f.connectionsAbove),
		Note:   "Where policies that look at loads stay flat, what they are better by grows with the load.",
	}
}

// connectionsAbove is how many connections the most loaded server has above the
// mean.
func (f *found) connectionsAbove(r run, name string) float64 {
	s := r.later(name)
	return (s.most - s.active/float64(f.o.Servers)) / s.time
}

// detail is the load with the experiments; -1: none.
func (f *found) detail() int {
	return slices.IndexFunc(f.loads, func(l load) bool { return l.extra })
}

// extras are the figures of the experiments, as far as their schemes run.
func (f *found) extras() []sim.Figure {
	all := []sim.Figure{f.ratiosFigure(), f.runLength(), f.ring(), f.tables()}
	return slices.DeleteFunc(all, func(fig sim.Figure) bool { return len(fig.Series) == 0 })
}

func (f *found) ring() sim.Figure {
	fig := sim.Figure{
		Name: "ring-points", Title: fmt.Sprintf("Ring against its points, %s active connections", f.detailText()),
		X:    sim.Axis{Label: "points a server", Log: true},
		Y:    sim.Axis{Label: "above the mean", Unit: "%", Decimals: 1},
		Note: "The paper does not say how many points its consistent hash has.",
	}
	if !f.has("ring") {
		return fig
	}
	ring, hash := sim.Series{Name: "ring", By: sim.Ours}, sim.Series{Name: nameHash, By: sim.Ours}
	for _, p := range ringPoints {
		ring.Points = append(ring.Points, sim.Point{X: float64(p), Y: f.atDetail(run.whole, ringName(p))})
		if f.has(nameHash) {
			hash.Points = append(hash.Points, sim.Point{X: float64(p), Y: f.atDetail(run.whole, nameHash)})
		}
	}
	fig.Series = drop(ring, hash)
	return fig
}

// atDetail is a scheme's excess in % at the load of the experiments.
func (f *found) atDetail(of func(run, string) sums, name string) sim.Stat {
	return f.stat(f.detail(), func(r run) float64 { return 100 * excess(of(r, name)) })
}

func (f *found) detailText() string { return sim.Grouped(f.loads[f.detail()].active, 0) }

// drop leaves out series without points.
func drop(all ...sim.Series) []sim.Series {
	return slices.DeleteFunc(all, func(s sim.Series) bool { return len(s.Points) == 0 })
}

func (f *found) tables() sim.Figure {
	key, rows := sim.Series{Name: "by key", By: sim.Ours}, sim.Series{Name: "by row", By: sim.Ours}
	for _, k := range tables {
		name := string(k)
		if !f.has(name) {
			continue
		}
		if k == chash.KindRing {
			name = ringName(tablePoints) // as many as the table's
		}
		key.Points = append(key.Points, sim.Point{Label: string(k), Y: f.atDetail(run.later, name)})
		rows.Points = append(rows.Points, sim.Point{Label: string(k), Y: f.atDetail(run.later, tableName(k))})
	}
	return sim.Figure{
		Name: "tables", Title: fmt.Sprintf("Hashes as the data plane has them, %s active connections", f.detailText()), Bars: true,
		X:      sim.Axis{Label: "consistent hash"},
		Y:      sim.Axis{Label: "above the mean", Unit: "%", Decimals: 1},
		Series: drop(key, rows),
		Note:   "Mean " + f.part() + ". The data plane's table has as many rows as the program recommends for so many servers. Both rings have 256 points a server.",
	}
}

func (f *found) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(f.o.Schemes, n) })
}
