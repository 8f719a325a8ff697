package diversity

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// found is the counts of every model, under every seed if it is drawn, and of
// the variants.
type found struct {
	o        *Options
	models   []model
	of       [][]counts // by model and seed
	variants []model
	variant  []counts
}

// job is one fabric to count.
type job struct {
	model
	seed uint64
	into *counts
}

// Run counts.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	f := &found{o: o, variants: variants()}
	seeds := c.SeedList()
	var jobs []job
	for _, name := range o.Models {
		m, err := o.model(name)
		if err != nil {
			return nil, err
		}
		of := make([]counts, 1)
		if m.drawn() {
			of = make([]counts, len(seeds))
		}
		f.models, f.of = append(f.models, m), append(f.of, of)
		for i := range of {
			jobs = append(jobs, job{m, seeds[i], &of[i]})
		}
	}
	f.variant = make([]counts, len(f.variants))
	for i, m := range f.variants {
		jobs = append(jobs, job{m, 0, &f.variant[i]})
	}
	err := c.Each(ctx, len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		fabric, err := j.fabric(sim.Stream(j.seed, j.name))
		if err != nil {
			return err
		}
		*j.into, err = newGraph(fabric).count(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f.result(seeds), nil
}

func (f *found) result(seeds []uint64) *sim.Result {
	r := &sim.Result{
		Scenario: Kinds[0].Name, Source: "CFLB (Computer Networks 2013), figures 1 and 2",
		Machine: sim.ThisMachine(), Seeds: seeds,
		Figures: []sim.Figure{f.paths(), f.hops(), f.shares(), f.most(), f.variantsMost(), f.variantsShares()},
		Checks:  f.checks(),
	}
	pairs, places := int64(0), int64(0)
	for i, m := range f.models {
		r.Parameters = append(r.Parameters, sim.Parameter{Name: m.name, Value: fmt.Sprintf("%s: %s servers", m.size(), sim.Grouped(float64(m.hosts), 0))})
		for _, c := range f.of[i] {
			pairs += total(c.paths)
			places += total(c.hops)
		}
	}
	r.Samples = []sim.Sample{{What: "pairs of servers", Count: pairs}, {What: "routers and destinations", Count: places}}
	return r
}

func total[K comparable](m map[K]int64) (sum int64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// over is the statistic of a model over the seeds.
func (f *found) over(model int, of func(counts) float64) sim.Stat {
	return sim.StatOf(f.of[model], of)
}

// Places at which the figures are drawn.
var (
	pathPlaces = []int{1, 2, 3, 4, 6, 7, 8, 10, 16, 20, 24, 32, 40, 49, 64, 100}
	hopPlaces  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
)

func (f *found) curves(places []int, of func(c counts, at int) float64) []sim.Series {
	var series []sim.Series
	for i, m := range f.models {
		series = append(series, sim.Curve(m.name, places, func(at int) sim.Stat {
			return f.over(i, func(c counts) float64 { return 100 * of(c, at) })
		}))
	}
	return series
}

func (f *found) paths() sim.Figure {
	return sim.Figure{
		Name: "paths", Title: "Pairs of servers with at least so many shortest paths",
		X: sim.Axis{Label: "paths", Log: true}, Y: sim.Axis{Label: "pairs", Unit: "%", Decimals: 1},
		Series: f.curves(pathPlaces, func(c counts, at int) float64 { return c.atLeast(uint64(at)) }),
		Note:   "The paper's figure 1. It says that more than 80 % of pairs have two or more.",
	}
}

func (f *found) hops() sim.Figure {
	return sim.Figure{
		Name: "hops", Title: "Routers and destinations with at least so many next hops",
		X: sim.Axis{Label: "next hops"}, Y: sim.Axis{Label: "routers and destinations", Unit: "%", Decimals: 1},
		Series: f.curves(hopPlaces, counts.hopsAtLeast),
		Note:   "The paper's figure 2. Each router counts once for each server.",
	}
}

// meanOfPaper is the place of what the paper says of its three models together.
const meanOfPaper = "mean of the paper's three"

// isPaper tells whether the paper's three models are there.
func (f *found) isPaper() bool {
	return !slices.ContainsFunc(paperNames, func(n string) bool { return !slices.Contains(f.o.Models, n) })
}

// paperMean is the mean of the paper's three models.
func (f *found) paperMean(of func(counts) float64) sim.Stat {
	mean := 0.0
	for _, n := range paperNames {
		mean += of(f.of[slices.Index(f.o.Models, n)][0]) / float64(len(paperNames))
	}
	return sim.Value(mean)
}

func pairsShare(c counts) float64   { return 100 * c.atLeast(2) }
func severalShare(c counts) float64 { return 100 * c.several }

func (f *found) shares() sim.Figure {
	pairs, several := sim.Series{Name: "pairs with 2 paths or more", By: sim.Ours}, sim.Series{Name: "destinations with 2 next hops or more", By: sim.Ours}
	for i, m := range f.models {
		pairs.Points = append(pairs.Points, sim.Point{Label: m.name, Y: f.over(i, pairsShare)})
		several.Points = append(several.Points, sim.Point{Label: m.name, Y: f.over(i, severalShare)})
	}
	fig := sim.Figure{
		Name: "shares", Title: "Where there is a choice", Bars: true,
		Y:      sim.Axis{Unit: "%", Decimals: 1},
		Series: []sim.Series{pairs, several},
		Note:   "Next hops: of each router, the share of servers that it reaches over two or more; the mean over routers.",
	}
	if f.isPaper() {
		fig.Series[0].Points = append(fig.Series[0].Points, sim.Point{Label: meanOfPaper, Y: f.paperMean(pairsShare)})
		fig.Series[1].Points = append(fig.Series[1].Points, sim.Point{Label: meanOfPaper, Y: f.paperMean(severalShare)})
		fig.Series = append(fig.Series,
			sim.Series{Name: pairs.Name, By: sim.ByPaper, Points: []sim.Point{{Label: meanOfPaper, Y: sim.Value(paperPairs)}}},
			sim.Series{Name: several.Name, By: sim.ByPaper, Points: []sim.Point{{Label: meanOfPaper, Y: sim.Value(paperSeveral)}}})
		fig.Note += " The paper's 80 % is a bound: more than that."
	}
	return fig
}

func mostPaths(c counts) float64 { return float64(c.mostPaths()) }
func mostHops(c counts) float64  { return float64(c.mostHops()) }

func (f *found) most() sim.Figure {
	paths, hops := sim.Series{Name: "paths", By: sim.Ours}, sim.Series{Name: "next hops", By: sim.Ours}
	for i, m := range f.models {
		paths.Points = append(paths.Points, sim.Point{Label: m.name, Y: f.over(i, mostPaths)})
		hops.Points = append(hops.Points, sim.Point{Label: m.name, Y: f.over(i, mostHops)})
	}
	fig := sim.Figure{
		Name: "most", Title: "Most paths of any pair, most next hops of any router", Bars: true,
		Y: sim.Axis{Label: "most", Log: true}, Series: []sim.Series{paths, hops},
	}
	if slices.Contains(f.o.Models, nameBCube) {
		fig.Series = append(fig.Series, sim.Series{Name: paths.Name, By: sim.ByPaper, Points: []sim.Point{{Label: nameBCube, Y: sim.Value(paperMostPaths)}}})
	}
	return fig
}

func (f *found) variantSeries(name string, of func(counts) float64) sim.Series {
	s := sim.Series{Name: name, By: sim.Ours}
	for i, m := range f.variants {
		s.Points = append(s.Points, sim.Point{Label: m.String(), Y: sim.Value(of(f.variant[i]))})
	}
	return s
}

func (f *found) variantsMost() sim.Figure {
	return sim.Figure{
		Name: "sizes-most", Title: "Other sizes of VL2 and BCube with about 600 servers: most paths and next hops", Bars: true,
		Y:      sim.Axis{Label: "most", Log: true},
		Series: []sim.Series{f.variantSeries("paths", mostPaths), f.variantSeries("next hops", mostHops)},
		Note:   "VL2: ports of an aggregation and an intermediate switch, servers of a rack. BCube: n and k.",
	}
}

func (f *found) variantsShares() sim.Figure {
	return sim.Figure{
		Name: "sizes-shares", Title: "Other sizes of VL2 and BCube: where there is a choice", Bars: true,
		Y:      sim.Axis{Unit: "%", Decimals: 1},
		Series: []sim.Series{f.variantSeries("pairs with 2 paths or more", pairsShare), f.variantSeries("destinations with 2 next hops or more", severalShare)},
	}
}
