package threshold

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/sim"
)

// Run sweeps.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	results, err := o.sweep(ctx, c)
	if err != nil {
		return nil, err
	}
	var connections, outs, moves, lookups int64
	for _, x := range o.cells() {
		for _, r := range results[x] {
			connections += r.connections
			outs += r.Outs
			moves += r.Moves
			lookups += r.Lookups
		}
	}
	if outs == 0 {
		return nil, sim.NothingToSee("threshold", "no server was ever taken out", "take lower --thresholds or fewer --active")
	}
	return &sim.Result{
		Scenario: "threshold",
		Source:   "Cheetah (NSDI'20), figure 2c",
		Machine:  sim.ThisMachine(),
		Seeds:    c.SeedList(),
		Parameters: []sim.Parameter{
			{Name: "active connections", Value: sim.Grouped(float64(o.Active), 0)},
			{Name: "lifetimes", Value: o.Lifetimes.Name},
			{Name: "servers", Value: fmt.Sprint(o.Servers)},
			{Name: "buckets", Value: sim.Grouped(float64(o.Servers*o.Buckets), 0)},
			{Name: "simulated", Value: fmt.Sprintf("%d s", o.Seconds)},
			{Name: "judged", Value: name(o.Every)},
		},
		Samples: []sim.Sample{
			{What: "connections, over all runs", Count: connections},
			{What: "servers taken out", Count: outs},
			{What: "buckets moved", Count: moves},
			{What: "look-ups of connections in moved buckets", Count: lookups},
		},
		Figures: o.figures(results),
		Checks:  o.checks(results),
	}, nil
}

// name of an interval.
func name(i time.Duration) string {
	if i == 0 {
		return "at each start and end"
	}
	return fmt.Sprintf("every %g s", i.Seconds())
}

// Names of curves.
const (
	nameHash    = "hash"
	nameBeamer1 = "beamer-1"
	nameBeamer3 = "beamer-3"
	nameCheetah = "cheetah"
)

// paper is what §2.1 says of figure 2c: threshold, broken connections, percent.
var paper = []sim.Point{{X: 10, Y: sim.Value(3)}, {X: 40, Y: sim.Value(0.1)}}

func (o *Options) figures(r outcomes) []sim.Figure {
	x := sim.Axis{Label: "imbalance threshold", Unit: "%"}
	breaks := sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 3}
	imbalance := sim.Axis{Label: "max/mean − 1", Unit: "%", Log: true, Decimals: 1}
	curve := func(name string, w way, y func(outcome) float64) sim.Series { return o.series(r, name, w, y) }
	figs := []sim.Figure{
		{Name: "broken", Title: "Connections broken by keeping servers below a threshold", X: x, Y: breaks, Series: []sim.Series{
			curve(nameBeamer1, o.usual(), broken(beamer1)), curve(nameBeamer3, o.usual(), broken(beamer3)), curve(nameCheetah, o.usual(), broken(cookie))},
			Note: fmt.Sprintf("All three have the same table, and the same servers are out. Below the load's own deviation (%.0f %% of %.0f connections a server) servers leave and return all the time.", o.deviation(), float64(o.Active)/float64(o.Servers))},
		{Name: "imbalance", Title: "Imbalance with the threshold, and with policies that need none", X: x, Y: imbalance, Series: []sim.Series{
			o.flat(nameHash, r[cell{o.usual(), never}]), curve("threshold", o.usual(), imbalanceOf), curve("threshold, begins steady", o.steady(), imbalanceOf)},
			Note: "With the threshold it is the same under Beamer and Cheetah. What is below the others needs the cookie: only Cheetah can have it."},
		{Name: "judged", Title: "Beamer with one previous server: how often servers are judged", X: x, Y: breaks},
		{Name: "returns", Title: "Beamer with one previous server: which buckets a server gets that returns", X: x, Y: breaks,
			Note: fmt.Sprintf("home: those that it had at the start; oldest: those that moved longest ago, as the product does; random: any. From %d %% on.", ordered)},
		{Name: "assumed", Title: "Beamer with one previous server: what else the paper leaves open", X: x, Y: breaks, Series: []sim.Series{
			curve("as above", o.usual(), broken(beamer1)), curve("begins steady", o.steady(), broken(beamer1)), curve("broken ones gone", o.ended(), broken(beamer1))},
			Note: "A system that begins empty has few connections a server at first, and so great imbalance. If broken connections are gone at once, the mean falls, more servers are above it, and more breaks."},
	}
	for _, i := range o.Intervals {
		figs[2].Series = append(figs[2].Series, curve(name(i), o.judged(i), broken(beamer1)))
	}
	for _, rule := range Returns() {
		figs[3].Series = append(figs[3].Series, curve(string(rule), o.returning(rule), broken(beamer1)))
	}
	for _, p := range policies {
		figs[1].Series = append(figs[1].Series, o.flat(p, r[cell{chosenBy(p), never}]))
	}
	for i := range figs {
		if o.isPaper() && figs[i].Name != "imbalance" {
			figs[i].Series = append(figs[i].Series, sim.Series{Name: nameBeamer1, By: sim.ByPaper, Points: paper})
		}
	}
	return figs
}

// flat is the imbalance of a way that has no threshold.
func (o *Options) flat(name string, of []outcome) sim.Series {
	return sim.Curve(name, o.Thresholds, func(float64) sim.Stat { return sim.StatOf(of, imbalanceOf) })
}

// series is a curve over the thresholds at which the way was run.
func (o *Options) series(r outcomes, name string, w way, y func(outcome) float64) sim.Series {
	s := sim.Series{Name: name, By: sim.Ours}
	for _, percent := range o.Thresholds {
		if of := r[cell{w, percent}]; of != nil {
			s.Points = append(s.Points, sim.Point{X: percent, Y: sim.StatOf(of, y)})
		}
	}
	return s
}
