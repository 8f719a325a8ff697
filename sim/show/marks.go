package show

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fairlead/fairlead/sim"
)

// diamondGlyph is a square on its tip.
type diamondGlyph struct{}

func (diamondGlyph) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	c.Fill(tips(at, sty.Radius*math.Sqrt2))
}

// tips is a closed path over the points right, above, left and below.
func tips(at vg.Point, r vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: at.X - r, Y: at.Y})
	p.Line(vg.Point{X: at.X, Y: at.Y + r})
	p.Line(vg.Point{X: at.X + r, Y: at.Y})
	p.Line(vg.Point{X: at.X, Y: at.Y - r})
	p.Close()
	return p
}

// outline is the mark of a point that is not ours: lines with a white edge,
// so that it is seen on every colour and ours shows through.
type outline func(at vg.Point, r vg.Length) vg.Path

func (o outline) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	for _, l := range []draw.LineStyle{{Color: color.White, Width: vg.Points(3)}, {Color: sty.Color, Width: vg.Points(1.5)}} {
		c.SetLineStyle(l)
		c.Stroke(o(at, sty.Radius))
	}
}

func cross(at vg.Point, r vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: at.X - r, Y: at.Y - r})
	p.Line(vg.Point{X: at.X + r, Y: at.Y + r})
	p.Move(vg.Point{X: at.X - r, Y: at.Y + r})
	p.Line(vg.Point{X: at.X + r, Y: at.Y - r})
	return p
}

func ring(at vg.Point, r vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: at.X + r, Y: at.Y})
	p.Arc(at, r, 0, 2*math.Pi)
	p.Close()
	return p
}

// othersMark is the mark of those who are not us.
func othersMark(by string, c color.Color) draw.GlyphStyle {
	shape := outline(tips) // a lab's
	switch by {
	case sim.ByPaper:
		shape = cross
	case sim.ByData:
		shape = ring
	}
	return draw.GlyphStyle{Color: c, Radius: 1.4 * markRadius, Shape: shape}
}

// footMarks put a series' mark into the feet of its bars, where they are large
// enough, and where a bar of nothing would be.
type footMarks struct {
	at    plotter.XYs
	foot  float64
	width float64
	style style
}

// Plot is how the library draws them.
func (m *footMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, q := range m.at {
		low, high := y(m.foot), y(q.Y)
		switch room := 3 * markRadius; {
		case q.Y == m.foot:
			c.DrawGlyph(m.style.glyph(), vg.Point{X: x(q.X), Y: low + markRadius})
		case high-low > room && x(q.X+m.width)-x(q.X) > room:
			inside := m.style
			inside.colour = color.White
			c.DrawGlyph(inside.glyph(), vg.Point{X: x(q.X), Y: low + room/2})
		}
	}
}

// gridLines are pale behind the points; bars have none upright.
func gridLines(upright bool) *plotter.Grid {
	g := plotter.NewGrid()
	pale := color.Gray{0xe4}
	g.Vertical.Color, g.Horizontal.Color = pale, pale
	if !upright {
		g.Vertical.Width = 0
	}
	return g
}
