package fattree

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// Run simulates all points.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	all, err := o.runAll(ctx, c)
	if err != nil {
		return nil, err
	}
	return &sim.Result{
		Scenario: fluidKind.Name, Source: source, Machine: sim.ThisMachine(), Seeds: c.SeedList(),
		Parameters: []sim.Parameter{
			{Name: "fat-tree", Value: describe(o.K)},
			{Name: "rounds of the scheduler", Value: fmt.Sprint(o.Rounds)},
		},
		Samples: o.samples(c.Seeds),
		Figures: o.figures(all),
		Checks:  o.checks(all),
	}, nil
}

const source = "CFLB (Computer Networks 2013), §4.2.1"

func describe(k int) string {
	t := newTree(k)
	return fmt.Sprintf("k = %d: %s hosts, %s switches", k, sim.Grouped(float64(t.hosts), 0), sim.Grouped(float64(5*k*k/4), 0))
}

func (o *Options) samples(seeds int) []sim.Sample {
	runs, subflows := int64(0), int64(0)
	for _, j := range o.jobs(seeds) {
		ways := int64(len(o.ways(j.matrix, j.subflows)))
		runs += ways
		subflows += ways * int64(newTree(j.k).hosts*max(1, j.each)*j.subflows)
	}
	return []sim.Sample{{What: "matrices of subflows filled", Count: runs}, {What: "subflows in them", Count: subflows}}
}

// Names of series.
const (
	nameECMP = "ecmp"
	nameCFLB = "cflb"
	nameOnce = "cflb-once"
)

// curves are the ways that all figures compare.
func (o *Options) curves() []curve {
	all := []curve{{nameECMP, hashed}, {nameCFLB, way(o.Rounds)}}
	if o.Rounds > 0 {
		all = append(all, curve{nameOnce, 0})
	}
	return all
}

type curve struct {
	name string
	way  way
}

// over is the statistic of a point over the seeds, in percent.
func (all outcomes) over(p point, of func(outcome) float64) sim.Stat {
	return statistic(all[p], of)
}

func statistic(found []outcome, of func(outcome) float64) sim.Stat {
	return sim.StatOf(found, func(o outcome) float64 { return 100 * of(o) })
}

func throughput(o outcome) float64 { return o.throughput }
func least(o outcome) float64      { return o.least }
func fairness(o outcome) float64   { return o.fairness }

var (
	subflowsAxis = sim.Axis{Label: "subflows of a connection"}
	optimumAxis  = sim.Axis{Label: "throughput of the optimum", Unit: "%", Decimals: 1}
	leastAxis    = sim.Axis{Label: "of its optimum", Unit: "%", Decimals: 1}
	fairnessAxis = sim.Axis{Label: "Jain's index", Unit: "%", Decimals: 1}
)

func (o *Options) figures(all outcomes) []sim.Figure {
	figs := []sim.Figure{
		{Name: "throughput", Title: fmt.Sprintf("Permutation matrix, k = %d: what all connections get", o.K), X: subflowsAxis, Y: optimumAxis,
			Series: o.bySubflows(all, throughput),
			Note:   "cflb-once: placed as they come, and never moved. The optimum is that every host sends and receives at its link's rate."},
		{Name: "least", Title: "The same: the connection that gets the least", X: subflowsAxis, Y: leastAxis, Series: o.bySubflows(all, least)},
		{Name: "fairness", Title: "The same: how even connections are", X: subflowsAxis, Y: fairnessAxis, Series: o.bySubflows(all, fairness)},
		o.roundsFigure(all),
		o.sizes(all),
	}
	for _, f := range []struct {
		name, title string
		y           sim.Axis
		of          func(outcome) float64
	}{
		{"overload-throughput", "Overloaded hosts: what all connections get", optimumAxis, throughput},
		{"overload-fairness", "Overloaded hosts: how even connections are", fairnessAxis, fairness},
		{"overload-least", "Overloaded hosts: the connection that gets the least", leastAxis, least},
	} {
		figs = append(figs, o.overload(all, f.name, f.title, f.y, f.of))
	}
	return slices.DeleteFunc(figs, func(f sim.Figure) bool { return len(f.Series) == 0 })
}

func (o *Options) bySubflows(all outcomes, of func(outcome) float64) []sim.Series {
	var series []sim.Series
	for _, c := range o.curves() {
		series = append(series, sim.Curve(c.name, o.Subflows, func(n int) sim.Stat { return all.over(point{o.main(), n, c.way}, of) }))
	}
	return series
}

func subflowsText(n int) string {
	if n == 1 {
		return "1 subflow"
	}
	return fmt.Sprintf("%d subflows", n)
}

func (o *Options) roundsFigure(all outcomes) sim.Figure {
	f := sim.Figure{
		Name: "rounds", Title: "Throughput against the scheduler's rounds", X: sim.Axis{Label: "rounds in which every subflow is placed again"}, Y: optimumAxis,
		Note: "Placed one after the other, subflows take paths that later ones would have needed. Of equally good paths any is taken, so that moves that gain nothing make room for others that do.",
	}
	for _, n := range roundsOf {
		s := sim.Series{Name: "cflb, " + subflowsText(n), By: sim.Ours}
		for _, r := range shownRounds {
			if p := (point{o.main(), n, way(r)}); all[p] != nil {
				s.Points = append(s.Points, sim.Point{X: float64(r), Y: all.over(p, throughput)})
			}
		}
		if len(s.Points) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	return f
}

// sizes compares fat-trees.
func (o *Options) sizes(all outcomes) sim.Figure {
	f := sim.Figure{
		Name: "sizes", Title: "Larger fat-trees, permutation matrices", X: sim.Axis{Label: "hosts", Log: true}, Y: optimumAxis,
		Note: "A fat-tree of switches with k ports has k³/4 hosts.",
	}
	var places []spot
	for _, k := range append([]int{o.K}, o.Larger...) {
		places = append(places, spot{float64(newTree(k).hosts), matrix{k, permuted}})
	}
	f.Series = o.compare(all, places, throughput)
	return f
}

// spot is a matrix and where it stands on an X axis.
type spot struct {
	x float64
	matrix
}

// compare has a curve over matrices for each way and number of subflows that are
// compared, as far as they were run.
func (o *Options) compare(all outcomes, places []spot, of func(outcome) float64) (series []sim.Series) {
	for _, c := range o.curves() {
		for _, n := range compared {
			s := sim.Series{Name: c.name + ", " + subflowsText(n), By: sim.Ours}
			for _, at := range places {
				if p := (point{at.matrix, n, c.way}); all[p] != nil {
					s.Points = append(s.Points, sim.Point{X: at.x, Y: all.over(p, of)})
				}
			}
			if c.name != nameOnce && len(s.Points) > 0 {
				series = append(series, s)
			}
		}
	}
	return series
}

// overload compares matrices that overload hosts.
func (o *Options) overload(all outcomes, name, title string, y sim.Axis, of func(outcome) float64) sim.Figure {
	f := sim.Figure{
		Name: name, Title: title, X: sim.Axis{Label: "connections of a host", Log: true}, Y: y,
		Note: "Each host opens so many connections to any others, so that some receive more than others. The optimum of a connection is what it gets where nothing but the hosts' links bounds it.",
	}
	var places []spot
	for _, each := range o.Connections {
		places = append(places, spot{float64(each), matrix{o.K, each}})
	}
	f.Series = o.compare(all, places, of)
	return f
}

// ratio of two points' throughput; no number if one was not run.
func (all outcomes) ratio(a, b point) float64 {
	if all[a] == nil || all[b] == nil {
		return math.NaN()
	}
	return all.over(a, throughput).Mean / all.over(b, throughput).Mean
}
