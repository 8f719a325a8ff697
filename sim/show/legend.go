package show

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fairlead/fairlead/sim"
)

// The legend stands below the axes, in columns, so that it hides nothing and
// takes no width from them.
const (
	legendRow   = 5.2 * vg.Millimeter
	thumbWidth  = 9 * vg.Millimeter
	thumbHeight = 3.2 * vg.Millimeter
	columnGap   = 6 * vg.Millimeter
)

// legend explains a figure's marks.
type legend struct {
	style   text.Style
	entries []legendEntry
	columns int
}

type legendEntry struct {
	name  string
	thumb thumb
}

// newLegend has an entry a name, then one for each who is not us.
func newLegend(f *sim.Figure, styles map[string]style) *legend {
	l := &legend{style: text.Style{Color: black, Font: sans(10.5), Handler: plot.DefaultTextHandler, YAlign: draw.YCenter}}
	var names, whose []string
	for _, s := range f.Series {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
			l.entries = append(l.entries, legendEntry{s.Name, newThumb(f, s.Name, styles[s.Name])})
		}
		if s.By != sim.Ours && !slices.Contains(whose, s.By) {
			whose = append(whose, s.By)
		}
	}
	for _, by := range whose {
		l.entries = append(l.entries, legendEntry{"reported: " + by, thumb{glyph: othersMark(by, black)}})
	}
	l.columns = max(1, int((panelWidth-2*margin)/l.columnWidth()))
	return l
}

func (l *legend) columnWidth() vg.Length {
	width := vg.Length(0)
	for _, e := range l.entries {
		width = max(width, l.style.Width(e.name))
	}
	return thumbWidth + 2*vg.Millimeter + width + columnGap
}

func (l *legend) height() vg.Length {
	rows := (len(l.entries) + l.columns - 1) / l.columns
	return vg.Length(rows)*legendRow + margin
}

// draw fills rows from the left.
func (l *legend) draw(c draw.Canvas) {
	width := l.columnWidth()
	for i, e := range l.entries {
		x := c.Min.X + vg.Length(i%l.columns)*width
		y := c.Max.Y - (vg.Length(i/l.columns)+0.5)*legendRow
		field := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - thumbHeight/2},
			Max: vg.Point{X: x + thumbWidth, Y: y + thumbHeight/2},
		}}
		e.thumb.draw(&field)
		c.FillText(l.style, vg.Point{X: x + thumbWidth + 2*vg.Millimeter, Y: y}, e.name)
	}
}

// thumb is a sample: a filled field, a line, and a mark in its middle.
type thumb struct {
	fill  color.Color
	line  draw.LineStyle
	glyph draw.GlyphStyle
}

// newThumb is a name's as we draw it; as others' mark where we have none.
func newThumb(f *sim.Figure, name string, st style) thumb {
	ours := func(s sim.Series) bool { return s.Name == name && s.By == sim.Ours }
	switch {
	case !slices.ContainsFunc(f.Series, ours):
		i := slices.IndexFunc(f.Series, func(s sim.Series) bool { return s.Name == name })
		return thumb{glyph: othersMark(f.Series[i].By, st.colour)}
	case f.Bars:
		return thumb{fill: st.colour, glyph: draw.GlyphStyle{Color: color.White, Radius: markRadius, Shape: st.mark}}
	}
	return thumb{line: st.line(), glyph: st.glyph()}
}

func (t thumb) draw(c *draw.Canvas) {
	if t.fill != nil {
		c.SetColor(t.fill)
		c.Fill(c.Rectangle.Path())
	}
	middle := c.Center()
	if t.line.Width > 0 {
		c.StrokeLine2(t.line, c.Min.X, middle.Y, c.Max.X, middle.Y)
	}
	c.DrawGlyph(t.glyph, middle)
}
