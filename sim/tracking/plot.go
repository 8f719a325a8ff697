package tracking

import (
	"fmt"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// Colours that people who see colours differently tell apart (Okabe and Ito).
var schemeColours = map[string]color.Color{
	SchemePlain:  color.RGBA{0x99, 0x99, 0x99, 0xff},
	SchemeFullCT: color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	SchemeJET:    color.RGBA{0x00, 0x72, 0xb2, 0xff},
}

// Sizes of a plot.
const (
	panelWidth  = 20 * vg.Centimeter
	panelHeight = 11 * vg.Centimeter
	margin      = 3 * vg.Millimeter
)

// Plot writes the rates as SVG: a panel for each number of servers, a bar for
// each hash and scheme with its deviation, and where others report a rate for
// as many servers, their marks at the bars' places.
func (r *JetTraceResult) Plot(w io.Writer) error {
	var panels []int
	for _, c := range r.Cases {
		if !slices.Contains(panels, c.Servers) {
			panels = append(panels, c.Servers)
		}
	}
	height := panelHeight * vg.Length(len(panels))
	canvas := vgsvg.New(panelWidth, height)
	whole := draw.New(canvas)
	for i, servers := range panels {
		p, err := r.panel(servers)
		if err != nil {
			return fmt.Errorf("plot %d servers: %w", servers, err)
		}
		above := panelHeight * vg.Length(i)
		p.Draw(draw.Crop(whole, margin, -margin, height-above-panelHeight+margin, -above-margin))
	}
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

// bars is where a panel's bars stand: hash i around x = i.
type bars struct {
	hashes  []chash.Kind
	schemes []string
}

// barsWidth is what the bars of one hash take of the 1 that there is.
const barsWidth = 0.8

func (b *bars) width() float64 { return barsWidth / float64(len(b.schemes)) }

// left is the left edge of a bar; false: there is none.
func (b *bars) left(k chash.Kind, scheme string) (float64, bool) {
	i, j := slices.Index(b.hashes, k), slices.Index(b.schemes, scheme)
	return float64(i) - barsWidth/2 + float64(j)*b.width(), i >= 0 && j >= 0
}

func (r *JetTraceResult) panel(servers int) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%d servers, %s packets of %s flows", servers, sim.Grouped(float64(r.Packets), 0), sim.Grouped(float64(r.Flows), 0))
	p.Y.Label.Text = "million packets a second, one thread"
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Millimeter
	var b bars
	var names []string
	for _, c := range r.Cases {
		if c.Servers != servers {
			continue
		}
		if !slices.Contains(b.hashes, c.Hash) {
			b.hashes = append(b.hashes, c.Hash)
			names = append(names, string(c.Hash))
		}
		if !slices.Contains(b.schemes, c.Scheme) {
			b.schemes = append(b.schemes, c.Scheme)
		}
	}
	p.NominalX(names...)
	for _, scheme := range b.schemes {
		if err := r.addBars(p, &b, servers, scheme); err != nil {
			return nil, err
		}
	}
	if servers == reportedServers {
		if err := r.addReported(p, &b); err != nil {
			return nil, err
		}
	}
	// NominalX and the plotters have stretched the axes to what is in them.
	p.X.Min, p.X.Max = -0.6, float64(len(b.hashes))-0.4
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.35 // the legend stands above
	return p, nil
}

// deviations are points with the deviation above and below.
type deviations struct {
	plotter.XYs
	plotter.YErrors
}

func (r *JetTraceResult) addBars(p *plot.Plot, b *bars, servers int, scheme string) error {
	var rings []plotter.XYer
	var tops deviations
	for _, c := range r.Cases {
		if c.Servers != servers || c.Scheme != scheme || c.Mpps == nil {
			continue
		}
		x, _ := b.left(c.Hash, scheme)
		right, y := x+b.width(), c.Mpps.Mean
		rings = append(rings, plotter.XYs{{X: x, Y: 0}, {X: x, Y: y}, {X: right, Y: y}, {X: right, Y: 0}})
		tops.XYs = append(tops.XYs, plotter.XY{X: (x + right) / 2, Y: y})
		tops.YErrors = append(tops.YErrors, struct{ Low, High float64 }{c.Mpps.Deviation, c.Mpps.Deviation})
	}
	if len(rings) == 0 {
		return nil
	}
	polygon, err := plotter.NewPolygon(rings...)
	if err != nil {
		return err
	}
	polygon.Color, polygon.LineStyle.Width = schemeColours[scheme], 0
	whiskers, err := plotter.NewYErrorBars(tops)
	if err != nil {
		return err
	}
	p.Add(polygon, whiskers)
	p.Legend.Add(scheme, polygon)
	return nil
}

func (r *JetTraceResult) addReported(p *plot.Plot, b *bars) error {
	shapes := map[string]draw.GlyphDrawer{ByPaper: draw.CrossGlyph{}, ByAuthorsCode: draw.RingGlyph{}}
	for _, by := range []string{ByPaper, ByAuthorsCode} {
		var marks plotter.XYs
		for _, n := range r.Noted {
			if x, ok := b.left(n.Hash, n.Scheme); ok && n.By == by {
				marks = append(marks, plotter.XY{X: x + b.width()/2, Y: n.Mpps})
			}
		}
		if len(marks) == 0 {
			continue
		}
		s, err := plotter.NewScatter(marks)
		if err != nil {
			return err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: 1.5 * vg.Millimeter, Shape: shapes[by]}
		p.Add(s)
		p.Legend.Add(by, s)
	}
	return nil
}
