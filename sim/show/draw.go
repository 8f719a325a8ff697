package show

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fairlead/fairlead/sim"
)

// drawing is a figure while it is drawn.
type drawing struct {
	plot   *plot.Plot
	figure *sim.Figure
	styles map[string]style
	x, y   scale
}

// lines draws our series as lines with marks and deviations, others' as marks.
func (d *drawing) lines() error {
	var xs []float64
	for _, s := range d.figure.Series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	d.x = newScale(d.figure.X.Log, false, xs)
	d.x.label(xs)
	d.plot.Add(gridLines(true))
	for _, s := range d.figure.Series {
		if len(s.Points) == 0 {
			continue
		}
		var at plotter.XYs
		for _, p := range s.Points {
			at = append(at, plotter.XY{X: d.x.at(p.X), Y: d.y.at(p.Y.Mean)})
		}
		if s.By != sim.Ours {
			if err := d.others(s, at, d.styles[s.Name].colour); err != nil {
				return err
			}
			continue
		}
		if err := d.ours(s, at); err != nil {
			return err
		}
	}
	d.x.apply(&d.plot.X, d.figure.X)
	d.y.apply(&d.plot.Y, d.figure.Y)
	return nil
}

func (d *drawing) ours(s sim.Series, at plotter.XYs) error {
	st := d.styles[s.Name]
	line, err := plotter.NewLine(at)
	if err != nil {
		return err
	}
	line.LineStyle = st.line()
	marks, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	marks.GlyphStyle = st.glyph()
	d.plot.Add(line, marks)
	return d.deviations(s, at, st.colour)
}

// others draws what others report; c is the colour.
func (d *drawing) others(s sim.Series, at plotter.XYs, c color.Color) error {
	marks, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	marks.GlyphStyle = othersMark(s.By, c)
	d.plot.Add(marks)
	return d.deviations(s, at, c)
}

// spread are points with what is above and below.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

// deviations draws the spread over seeds where there is one: the deviation, but
// no further than the least and the most.
func (d *drawing) deviations(s sim.Series, at plotter.XYs, c color.Color) error {
	var e spread
	for i, p := range s.Points {
		if p.Y.Deviation == 0 {
			continue
		}
		low := d.y.at(max(p.Y.Mean-p.Y.Deviation, p.Y.Min))
		high := d.y.at(min(p.Y.Mean+p.Y.Deviation, p.Y.Max))
		e.XYs = append(e.XYs, at[i])
		e.YErrors = append(e.YErrors, struct{ Low, High float64 }{at[i].Y - low, high - at[i].Y})
	}
	if len(e.XYs) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(e)
	if err != nil {
		return err
	}
	bars.LineStyle = draw.LineStyle{Color: c, Width: lineWidth / 2}
	d.plot.Add(bars)
	return nil
}

func (s style) line() draw.LineStyle {
	return draw.LineStyle{Color: s.colour, Width: lineWidth, Dashes: s.dashes}
}

func (s style) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.colour, Radius: markRadius, Shape: s.mark}
}
