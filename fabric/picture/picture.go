// Package picture draws a fabric as SVG: hosts below, routers above them by
// their distance from hosts, and marks on the links that something is known of.
//
//	layers.go  where nodes stand
//	draw.go    links, nodes, the legend
//
// Marks differ in colour, dashes and sign, so that none of the three is needed
// alone.
package picture

import (
	"io"

	svg "github.com/ajstarks/svgo"

	"github.com/fairlead/fairlead/fabric/topology"
)

// Style is how a link is marked.
type Style int

// The styles, the more urgent ones later: of several marks the last is drawn.
const (
	Plain Style = iota
	Well
	Altered
	Unused
	Slow
	Lost
)

// Mark is what is known of a link.
type Mark struct {
	Style Style
	// Text says it in words: shown where the pointer rests on the link.
	Text string
	// Perhaps: one of several links, and nobody knows which.
	Perhaps bool
}

// Picture is a fabric with marks.
type Picture struct {
	Fabric *topology.Fabric
	Title  string
	Links  map[int]Mark // by index into Fabric.Links
}

// Mark marks a link, unless it has a more urgent mark.
func (p *Picture) Mark(link int, m Mark) {
	if p.Links == nil {
		p.Links = map[int]Mark{}
	}
	if m.Style >= p.Links[link].Style {
		p.Links[link] = m
	}
}

// Draw writes the picture.
func (p *Picture) Draw(w io.Writer) error {
	failed := &writer{w: w}
	d := drawing{Picture: p, canvas: svg.New(failed), place: placed(p.Fabric)}
	d.draw()
	return failed.err
}

// writer remembers the first error: the library does not tell.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.w.Write(b)
	w.err = err
	return n, err
}
