package show

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fairlead/fairlead/sim"
)

// barsWidth is what the bars of one category take of the 1 that there is.
const barsWidth = 0.84

// bars draws categories: around each a bar a name, in it the name's mark, so
// that bars are told apart without colours, and over it what others report.
func (d *drawing) bars() error {
	var names, labels []string
	for _, s := range d.figure.Series {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	places := placesOf(d.figure)
	for _, p := range places {
		labels = append(labels, p.label)
	}
	d.plot.Add(gridLines(false))
	width := barsWidth / float64(max(1, len(names)))
	for _, s := range d.figure.Series {
		left := -barsWidth/2 + width*float64(slices.Index(names, s.Name))
		var at plotter.XYs
		for _, p := range s.Points {
			x := float64(slices.Index(labels, p.Label)) + left + width/2
			at = append(at, plotter.XY{X: x, Y: d.y.at(p.Y.Mean)})
		}
		if len(at) == 0 {
			continue
		}
		if err := d.barsOf(s, at, width); err != nil {
			return err
		}
	}
	if len(labels) > 0 {
		d.plot.NominalX(labels...)
	}
	d.slant(labels)
	d.plot.X.Label.Text = axisTitle(d.figure.X)
	d.plot.X.Min, d.plot.X.Max = -0.55, float64(len(labels))-0.45
	d.y.apply(&d.plot.Y, d.figure.Y)
	return nil
}

// slant turns labels that would run into each other.
func (d *drawing) slant(labels []string) {
	tick := &d.plot.X.Tick.Label
	room := (panelWidth - 2*vg.Centimeter) / vg.Length(max(1, len(labels)))
	for _, l := range labels {
		if tick.Width(l) > 0.95*room {
			tick.Rotation = math.Pi / 7
			tick.XAlign, tick.YAlign = draw.XRight, draw.YCenter
			return
		}
	}
}

func (d *drawing) barsOf(s sim.Series, at plotter.XYs, width float64) error {
	if s.By != sim.Ours {
		return d.others(s, at, black)
	}
	st := d.styles[s.Name]
	foot := d.y.at(0)
	var rings []plotter.XYer
	for _, p := range at {
		l, r := p.X-width/2, p.X+width/2
		rings = append(rings, plotter.XYs{{X: l, Y: foot}, {X: l, Y: p.Y}, {X: r, Y: p.Y}, {X: r, Y: foot}})
	}
	polygon, err := plotter.NewPolygon(rings...)
	if err != nil {
		return err
	}
	polygon.Color = st.colour
	polygon.LineStyle = draw.LineStyle{Color: color.White, Width: vg.Points(0.5)}
	d.plot.Add(polygon, &footMarks{at: at, foot: foot, width: width, style: st})
	return d.deviations(s, at, black)
}
