// Package show turns results into what people read: tables, plots in SVG, and
// the page with all scenarios. It adds nothing to a result and leaves nothing
// out, and the same result gives the same bytes.
package show

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// grid is a figure as a table.
type grid struct {
	Head []string // the first stands above the rows' names
	Rows [][]string
}

// newGrid has a row a point and a column a series, or the other way round
// where there are more series than points: long tables are read more easily
// than wide ones.
func newGrid(f *sim.Figure) grid {
	places := placesOf(f)
	cells := make([][]string, len(places))
	for i, p := range places {
		cells[i] = make([]string, len(f.Series))
		for j, s := range f.Series {
			if k := slices.IndexFunc(s.Points, func(q sim.Point) bool { return p.is(f, q) }); k >= 0 {
				cells[i][j] = statText(s.Points[k].Y, f.Y.Decimals)
			}
		}
	}
	var names, titles []string
	for _, p := range places {
		names = append(names, p.text(f))
	}
	for _, s := range f.Series {
		titles = append(titles, seriesTitle(s))
	}
	corner := axisTitle(f.X)
	if len(titles) > len(names) {
		names, titles, cells = titles, names, transposed(cells, len(f.Series))
	}
	g := grid{Head: append([]string{corner}, titles...)}
	for i, name := range names {
		g.Rows = append(g.Rows, append([]string{name}, cells[i]...))
	}
	return g
}

// statText is a statistic in a table. Exactly nothing is 0, not 0.00 ±0.00.
func statText(s sim.Stat, decimals int) string {
	if s.Min == 0 && s.Max == 0 {
		return "0"
	}
	return s.Text(decimals)
}

func transposed(cells [][]string, columns int) [][]string {
	t := make([][]string, columns)
	for j := range t {
		for i := range cells {
			t[j] = append(t[j], cells[i][j])
		}
	}
	return t
}

// place is where points of several series stand above each other.
type place struct {
	x     float64
	label string
}

func (p place) is(f *sim.Figure, q sim.Point) bool {
	if f.Bars {
		return p.label == q.Label
	}
	return p.x == q.X
}

func (p place) text(f *sim.Figure) string {
	if f.Bars {
		return p.label
	}
	return sim.Grouped(p.x, f.X.Decimals)
}

// placesOf are a figure's places: numbers in their order, categories in the
// order in which they first appear.
func placesOf(f *sim.Figure) []place {
	var places []place
	for _, s := range f.Series {
		for _, q := range s.Points {
			if !slices.ContainsFunc(places, func(p place) bool { return p.is(f, q) }) {
				places = append(places, place{q.X, q.Label})
			}
		}
	}
	if !f.Bars {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.x, b.x) })
	}
	return places
}

// seriesTitle is a series' name, and whose it is where it is not ours.
func seriesTitle(s sim.Series) string {
	if s.By == sim.Ours {
		return s.Name
	}
	return s.Name + ", " + s.By
}

// axisTitle is an axis' label with its unit.
func axisTitle(a sim.Axis) string {
	switch {
	case a.Unit == "":
		return a.Label
	case a.Label == "":
		return a.Unit
	}
	return a.Label + " (" + a.Unit + ")"
}
