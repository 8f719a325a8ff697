package spread

import (
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/sim"
)

func (f *found) result() *sim.Result {
	o := f.o
	r := &sim.Result{
		Scenario:   "path-spread",
		Source:     "CFLB (Detal et al., 2012), section 4.1.1, figures 6 and 7",
		Machine:    sim.ThisMachine(),
		Seeds:      f.seeds,
		Parameters: f.parameters(),
		Figures: []sim.Figure{
			f.even("even-one", "Unsteered flows at one router, against uniform", func(u *uniform) map[int][]uint32 { return u.one },
				"χ² of the flows of each next hop, divided by its degrees of freedom: 1 in the mean if flows are shared out by pure chance."),
			f.even("even-row", "Unsteered flows on the ways through four routers in a row, against uniform", func(u *uniform) map[int][]uint32 { return u.row },
				"As above, of all N^4 ways. A hash that is the same at every router (crc16) uses only N of them. Points are left out where fewer than five flows are due to a way."),
			f.cumulative("deviation-one", "Furthest share of a second, two next hops (Fig 6a)", (*deviations).pairs,
				"The paper's curves are printed without numbers that can be read; its text says that no second is more than 4 % off but with crc16."),
			f.cumulative("deviation-row", "Furthest share of half a second, the 16 ways through four routers of two (Fig 6b)", (*deviations).rows,
				"Percentage points from 6.25 %. The same hash at every router (crc16) sends all packets over two of the ways."),
		},
	}
	for _, s := range o.Schemes {
		if s != nameCRC16 {
			r.Figures = append(r.Figures, f.overTime(s))
		}
	}
	r.Figures = append(r.Figures, radixFigure(f.seeds[0]))
	for i := range f.seeds {
		r.Samples = f.samples(r.Samples, i)
	}
	r.Checks = f.checks()
	return r
}

func (f *found) parameters() []sim.Parameter {
	o := f.o
	if o.Flows.Record != nil {
		return []sim.Parameter{
			{Name: "flows", Value: o.Flows.Name},
			{Name: "a packet", Value: fmt.Sprintf("%d bytes", bytesOfOne)},
			{Name: "radix", Value: fmt.Sprint(o.Radix)},
		}
	}
	return []sim.Parameter{
		{Name: "flows tested for evenness", Value: sim.Grouped(float64(o.Packets), 0)},
		{Name: "packets of the trace", Value: sim.Grouped(float64(o.Packets), 0)},
		{Name: "packets of a flow", Value: fmt.Sprintf("%d in the mean, by Zipf's law with exponent %v", o.Mean, o.Skew)},
		{Name: "span", Value: o.Span.String()},
		{Name: "hosts", Value: fmt.Sprintf("%s clients, %s servers, by Zipf's law with exponent %v", sim.Grouped(clients, 0), sim.Grouped(servers, 0), hostSkew)},
		{Name: "radix", Value: fmt.Sprint(o.Radix)},
	}
}

// samples adds what was counted under a seed, for one scheme: all are given
// the same.
func (f *found) samples(to []sim.Sample, seed int) []sim.Sample {
	if to == nil {
		to = []sim.Sample{{What: "flows tested for evenness, each by every scheme"}, {What: "flows of the trace"}, {What: "packets of the trace"}}
	}
	to[0].Count += int64(f.uniform[0][seed].flows)
	to[1].Count += f.deviated[0][seed].flows
	to[2].Count += f.deviated[0][seed].packets
	return to
}

// even is a figure of reduced χ².
func (f *found) even(name, title string, of func(*uniform) map[int][]uint32, note string) sim.Figure {
	fig := sim.Figure{
		Name: name, Title: title, Note: note,
		X: sim.Axis{Label: "next hops of a router"}, Y: sim.Axis{Label: "χ² per degree of freedom", Log: true, Decimals: 3},
	}
	for i, scheme := range f.o.Schemes {
		s := sim.Series{Name: scheme, By: sim.Ours}
		for _, n := range f.o.Hops {
			var all []float64
			for _, u := range f.uniform[i] {
				reduced, _ := chi2(of(u)[n])
				all = appendNumber(all, reduced)
			}
			if all != nil {
				s.Points = append(s.Points, sim.Point{X: float64(n), Y: sim.NewStat(all)})
			}
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

// cumulative is a figure of how far intervals deviate, all seeds' together, in
// their order: the paper's cumulative distributions, lying on their side.
func (f *found) cumulative(name, title string, of func(*deviations) []float64, note string) sim.Figure {
	fig := sim.Figure{
		Name: name, Title: title, Note: note,
		X: sim.Axis{Label: "intervals that deviate by so much at most", Unit: "%"}, Y: sim.Axis{Label: "deviation from even", Unit: "%", Decimals: 2},
	}
	for i, scheme := range f.o.Schemes {
		s := sim.Series{Name: scheme, By: sim.Ours}
		all := f.all(i, of)
		for _, share := range []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1} {
			s.Points = append(s.Points, sim.Point{X: 100 * share, Y: sim.Value(quantile(all, share))})
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

// all are a scheme's deviations under all seeds, ascending.
func (f *found) all(scheme int, of func(*deviations) []float64) (all []float64) {
	for _, d := range f.deviated[scheme] {
		all = append(all, of(d)...)
	}
	slices.Sort(all)
	return all
}

// quantile of ascending values.
func quantile(all []float64, share float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return all[min(int(share*float64(len(all))), len(all)-1)]
}

// overTime is figure 7 for a scheme, under the first seed.
func (f *found) overTime(scheme string) sim.Figure {
	fig := sim.Figure{
		Name: "shares-" + scheme, Title: "Share of each of four next hops, second by second: " + scheme,
		X: sim.Axis{Label: "time", Unit: "s"}, Y: sim.Axis{Label: "share of the packets", Unit: "%", Decimals: 2},
		Note: "Under the first seed. The paper's stay within 22 and 28 %.",
	}
	switch scheme {
	case nameMD5:
		fig.Title += " (Fig 7a)"
	case string(pathsel.RC5):
		fig.Title += " (Fig 7b)"
	}
	d := f.deviated[slices.Index(f.o.Schemes, scheme)][0]
	for hop := range quadHops {
		s := sim.Series{Name: fmt.Sprint("next hop ", hop), By: sim.Ours}
		for second := range d.quad {
			if x := d.share(second, hop); !math.IsNaN(x) {
				s.Points = append(s.Points, sim.Point{X: float64(second), Y: sim.Value(x)})
			}
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

// radixFigure is of what the paper overlooks.
func radixFigure(seed uint64) sim.Figure {
	paper := sim.Series{Name: "every value of the ports (equation 6)", By: sim.Ours}
	ours := sim.Series{Name: "as Fairlead's routers read it, every source port", By: sim.Ours}
	for radix := 2; radix <= maxHops; radix++ {
		paper.Points = append(paper.Points, sim.Point{X: float64(radix), Y: sim.Value(float64(radix) * commonest(uint64(radix)))})
		if share, err := commonestRead(radix, seed); err == nil {
			ours.Points = append(ours.Points, sim.Point{X: float64(radix), Y: sim.Value(float64(radix) * share)})
		}
	}
	return sim.Figure{
		Name: "radix", Title: "The commonest digit at a selector's last position, over even",
		X: sim.Axis{Label: "radix"}, Y: sim.Axis{Label: "share × radix", Decimals: 3},
		Series: []sim.Series{paper, ours},
		Note: fmt.Sprintf("Counted over all 2^32 values of the ports, and all 2^16 of a source port. Where the radix is no power of two, the last digit of the paper's selectors is skewed, and with it the unsteered flows of the router that reads it; values that are left over are no selectors in Fairlead. (Digits modulo the number of next hops are skewed as well, as the paper says: of radix 3 and two next hops the first gets %.1f %%, not 75 %%.)",
			100*modulo(3, 2)),
	}
}
