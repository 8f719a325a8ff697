package show

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fairlead/fairlead/sim"
)

// Sizes of a plot.
const (
	panelWidth = 20 * vg.Centimeter
	axesHeight = 11 * vg.Centimeter
	margin     = 3 * vg.Millimeter
	markRadius = 1.1 * vg.Millimeter
	lineWidth  = 0.5 * vg.Millimeter
)

// Plot writes a result's figures as one SVG, one below the other.
func Plot(w io.Writer, r *sim.Result) error {
	return draws(w, r, r.Figures)
}

// PlotFigure writes one of a result's figures as SVG.
func PlotFigure(w io.Writer, r *sim.Result, i int) error {
	return draws(w, r, r.Figures[i:i+1])
}

func draws(w io.Writer, r *sim.Result, figures []sim.Figure) error {
	styles := stylesOf(r)
	figures = slices.Clone(figures)
	for i := range figures {
		if places := placesOf(&figures[i]); !figures[i].Bars && len(places) == 1 {
			figures[i] = atOnePlace(figures[i], places[0])
		}
	}
	var legends []*legend
	height := vg.Length(0)
	for i := range figures {
		l := newLegend(&figures[i], styles)
		legends = append(legends, l)
		height += axesHeight + l.height()
	}
	canvas := vgsvg.New(panelWidth, max(height, margin))
	whole := draw.New(canvas)
	whole.SetColor(color.White) // for readers with a dark background
	whole.Fill(whole.Rectangle.Path())
	top := whole.Max.Y
	for i := range figures {
		area := whole
		area.Max.Y, area.Min.Y = top, top-axesHeight-legends[i].height()
		top = area.Min.Y
		if err := panel(draw.Crop(area, margin, -margin, 0, -margin), &figures[i], styles, legends[i]); err != nil {
			return fmt.Errorf("plot %s, figure %s: %w", r.Scenario, figures[i].Name, err)
		}
	}
	var svg strings.Builder
	_, err := canvas.WriteTo(&svg)
	if err == nil {
		_, err = io.WriteString(w, compact(svg.String()))
	}
	if err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

// atOnePlace makes bars, side by side, of curves that would have all their marks
// on each other, as they have one point.
func atOnePlace(f sim.Figure, only place) sim.Figure {
	label := only.text(&f)
	f.Bars, f.Series = true, slices.Clone(f.Series)
	for i, s := range f.Series {
		f.Series[i].Points = slices.Clone(s.Points)
		for j := range s.Points {
			f.Series[i].Points[j].Label = label
		}
	}
	return f
}

// checkNumbers refuses what cannot be drawn anywhere.
func checkNumbers(f *sim.Figure) error {
	for _, s := range f.Series {
		for _, p := range s.Points {
			if x := p.X + p.Y.Mean + p.Y.Deviation; math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Errorf("series %s has a point %g, %g ±%g, which is no number", s.Name, p.X, p.Y.Mean, p.Y.Deviation)
			}
		}
	}
	return nil
}

// panel draws a figure: axes, the legend below.
func panel(area draw.Canvas, f *sim.Figure, styles map[string]style, l *legend) error {
	if err := checkNumbers(f); err != nil {
		return err
	}
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.Title
	p.Title.TextStyle.Font = sans(13)
	p.Title.Padding = 2 * vg.Millimeter
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = sans(11)
		a.Tick.Label.Font = sans(10)
	}
	d := drawing{plot: p, figure: f, styles: styles}
	d.y = newScale(f.Y.Log, true, heights(f))
	var err error
	if f.Bars {
		err = d.bars()
	} else {
		err = d.lines()
	}
	if err != nil {
		return err
	}
	fit(&p.Title.TextStyle, p.Title.Text, panelWidth-2*margin)
	fit(&p.Y.Label.TextStyle, p.Y.Label.Text, axesHeight-2*vg.Centimeter)
	p.Draw(draw.Crop(area, 0, 0, l.height(), 0))
	below := area
	below.Max.Y = area.Min.Y + l.height() - margin/2
	l.draw(below)
	return nil
}

// heights are all that the y axis has to reach: points and their spread. The
// lowest bar of a logarithmic axis has a height, too.
func heights(f *sim.Figure) []float64 {
	var ys []float64
	for _, s := range f.Series {
		for _, p := range s.Points {
			ys = append(ys, p.Y.Mean, min(p.Y.Mean+p.Y.Deviation, p.Y.Max))
			if !f.Y.Log {
				ys = append(ys, max(p.Y.Mean-p.Y.Deviation, p.Y.Min))
			} else if f.Bars {
				ys = append(ys, p.Y.Mean/2)
			}
		}
	}
	return ys
}

// fit makes a text small enough for its room.
func fit(s *text.Style, words string, room vg.Length) {
	if width := s.Width(words); width > room {
		s.Font.Size *= room / width
	}
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}
