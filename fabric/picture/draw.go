package picture

import (
	"fmt"
	"maps"
	"slices"

	svg "github.com/ajstarks/svgo"
)

// look is how links of a style are drawn. Colours are Okabe and Ito's, which
// people who see colours differently tell apart.
type look struct {
	name, colour, dashes, sign string
	width                      float64
}

var looks = map[Style]look{
	Plain:   {"nothing known", "#b0b0b0", "", "", 1.5},
	Well:    {"well", "#009e73", "", "", 2},
	Altered: {"rewrites packets", "#0072b2", "12 3 2 3", "≠", 4},
	Unused:  {"not used", "#cc79a7", "2 5", "○", 4},
	Slow:    {"slow", "#e69f00", "10 6", "▲", 4},
	Lost:    {"loses packets", "#d55e00", "", "✕", 5},
}

const font = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"

// Sizes in the picture's units.
const (
	routerSize = 15
	hostSize   = 10
	legendRow  = 22
	titleRoom  = 30
	// bend is how far a link between nodes of one layer, or one of several
	// between the same nodes, leaves the straight line.
	bend = 26
)

type drawing struct {
	*Picture
	canvas *svg.SVG
	place  layout
}

func (d *drawing) draw() {
	styles := d.styles()
	width := d.place.width
	height := d.place.height + titleRoom + legendRow*len(styles) + 10
	d.canvas.Startview(width, height, 0, -titleRoom, width, height)
	d.canvas.Title(d.Title)
	d.canvas.Rect(0, -titleRoom, width, height, "fill:#ffffff")
	d.canvas.Text(width/2, -titleRoom+22, d.Title, "text-anchor:middle;font-size:16px;"+font)
	// What is marked last lies on top.
	for _, s := range styles {
		for i := range d.Fabric.Links {
			if d.Links[i].Style == s {
				d.link(i)
			}
		}
	}
	for i := range d.Fabric.Nodes {
		d.node(i)
	}
	for i, s := range styles {
		d.legend(d.place.height+i*legendRow, s)
	}
	d.canvas.End()
}

// styles are those that links have, the most urgent last.
func (d *drawing) styles() []Style {
	has := map[Style]bool{}
	for i := range d.Fabric.Links {
		has[d.Links[i].Style] = true
	}
	return slices.Sorted(maps.Keys(has))
}

// link draws one link, with its sign at two fifths of its way.
func (d *drawing) link(i int) {
	ends := d.Fabric.Links[i].Ends
	a, b := d.place.at[ends[0].Node], d.place.at[ends[1].Node]
	m := d.Links[i]
	k := looks[m.Style]
	c := d.control(i, a, b)
	d.canvas.Group()
	d.canvas.Title(d.say(i))
	d.canvas.Path(fmt.Sprintf("M%d,%d Q%d,%d %d,%d", a.x, a.y, c.x, c.y, b.x, b.y), k.stroke())
	if m.Style > Well {
		// On a quadratic curve, and not in its middle: there other links cross.
		at := point{(9*a.x + 12*c.x + 4*b.x) / 25, (9*a.y + 12*c.y + 4*b.y) / 25}
		sign := k.sign
		if m.Perhaps {
			sign = "?"
		}
		d.sign(at, k, sign)
	}
	d.canvas.Gend()
}

func (d *drawing) sign(at point, k look, sign string) {
	d.canvas.Circle(at.x, at.y, 11, "fill:#ffffff;stroke-width:2;stroke:"+k.colour)
	d.canvas.Text(at.x, at.y+5, sign, "text-anchor:middle;font-size:14px;font-weight:bold;fill:"+k.colour+";"+font)
}

// control is the control point of a link's curve: the middle for a straight
// one.
func (d *drawing) control(i int, a, b point) point {
	c := point{(a.x + b.x) / 2, (a.y + b.y) / 2}
	nth, of := d.parallel(i)
	if a.y == b.y { // within a layer: above the nodes between
		c.y -= bend * (of - nth)
		if of == 1 {
			c.y -= bend
		}
		return c
	}
	c.x += bend * (2*nth - of + 1) / 2
	return c
}

// parallel counts the links between the same two nodes, and says which of them
// link i is.
func (d *drawing) parallel(i int) (nth, of int) {
	same := func(j int) bool {
		p, q := d.Fabric.Links[i].Ends, d.Fabric.Links[j].Ends
		return p[0].Node == q[0].Node && p[1].Node == q[1].Node || p[0].Node == q[1].Node && p[1].Node == q[0].Node
	}
	for j := range d.Fabric.Links {
		if same(j) {
			if j < i {
				nth++
			}
			of++
		}
	}
	return nth, of
}

// say is what the pointer is told of a link.
func (d *drawing) say(i int) string {
	ends := d.Fabric.Links[i].Ends
	text := ""
	for n, e := range ends {
		if n > 0 {
			text += " – "
		}
		text += d.Fabric.Nodes[e.Node].Name
		if e.Port >= 0 {
			text += fmt.Sprintf(" port %d", e.Port)
		}
	}
	if m := d.Links[i]; m.Text != "" {
		text += ": " + m.Text
	}
	return text
}

func (d *drawing) node(i int) {
	n, at := d.Fabric.Nodes[i], d.place.at[i]
	d.canvas.Group()
	d.canvas.Title(n.Name)
	const outline = "stroke:#000000;stroke-width:1.5;fill:"
	below := "text-anchor:middle;font-size:12px;" + font
	switch {
	case n.Host:
		d.canvas.Rect(at.x-hostSize, at.y-hostSize, 2*hostSize, 2*hostSize, outline+"#56b4e9")
		d.name(point{at.x, at.y + hostSize + 15}, n.Name, below)
	default:
		fill := "#ffffff"
		if n.Plain {
			fill = "#d0d0d0"
		}
		d.canvas.Circle(at.x, at.y, routerSize, outline+fill)
		d.name(point{at.x, at.y - routerSize - 6}, n.Name, below+";paint-order:stroke;stroke:#ffffff;stroke-width:3px")
	}
	d.canvas.Gend()
}

// name writes a node's name, aslant where there is no room beside it.
func (d *drawing) name(at point, name, style string) {
	if d.place.slant {
		d.canvas.Gtransform(fmt.Sprintf("rotate(-30 %d %d)", at.x, at.y))
		defer d.canvas.Gend()
	}
	d.canvas.Text(at.x, at.y, name, style)
}

func (d *drawing) legend(y int, s Style) {
	k := looks[s]
	d.canvas.Path(fmt.Sprintf("M%d,%d L%d,%d", border/2, y, border/2+50, y), k.stroke())
	if s > Well {
		d.sign(point{border/2 + 25, y}, k, k.sign)
	}
	text := k.name
	if d.doubtful(s) {
		text += " (?: one of those marked so)"
	}
	d.canvas.Text(border/2+62, y+4, text, "font-size:12px;"+font)
}

// doubtful says whether any link of the style is marked so perhaps only.
func (d *drawing) doubtful(s Style) bool {
	for _, m := range d.Links {
		if m.Style == s && m.Perhaps {
			return true
		}
	}
	return false
}

func (k look) stroke() string {
	s := fmt.Sprintf("fill:none;stroke:%s;stroke-width:%g", k.colour, k.width)
	if k.dashes != "" {
		s += ";stroke-dasharray:" + k.dashes
	}
	return s
}
