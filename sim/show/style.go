package show

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fairlead/fairlead/sim"
)

// Colours that people who see colours differently tell apart (Okabe and Ito;
// grey in place of yellow, which is too pale for lines).
var (
	black     = color.RGBA{0x00, 0x00, 0x00, 0xff}
	orange    = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	sky       = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	green     = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	blue      = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	vermilion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	purple    = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	grey      = color.RGBA{0x80, 0x80, 0x80, 0xff}
)

// style is how a series is drawn: colour, mark and dashes together tell it
// from all others, so that none of them is needed alone.
type style struct {
	colour color.Color
	mark   draw.GlyphDrawer
	dashes []vg.Length
}

var (
	circle   draw.GlyphDrawer = draw.CircleGlyph{}
	square   draw.GlyphDrawer = draw.BoxGlyph{}
	triangle draw.GlyphDrawer = draw.PyramidGlyph{}
	diamond  draw.GlyphDrawer = diamondGlyph{}

	solid  []vg.Length
	dashed = []vg.Length{vg.Points(5), vg.Points(2.5)}
	dotted = []vg.Length{vg.Points(1.5), vg.Points(2)}
)

// named are the styles of the names that several scenarios have, so that a
// scheme looks the same in all figures. Bare hashes are dashed.
var named = map[string]style{
	"hash":      {black, square, dashed},
	"hash-crc":  {black, diamond, dotted},
	"ring":      {orange, circle, dashed},
	"table-hrw": {sky, circle, dashed},
	"maglev":    {green, circle, dashed},
	"anchor":    {purple, circle, dashed},
	"hrw":       {grey, circle, dashed},
	"dx":        {vermilion, circle, dashed},
	"bucket":    {sky, square, dashed},

	// A variant of a hash or a scheme has its colour.
	"anchor-table":      {purple, diamond, dashed},
	"beamer-1-any":      {orange, square, dotted},
	"jet-table-hrw":     {green, triangle, dotted},
	"jet-lru":           {green, circle, dotted},
	"jet-state":         {green, diamond, dotted},
	"full-ct-table-hrw": {grey, diamond, dotted},

	"beamer-1":     {orange, triangle, solid},
	"beamer-3":     {orange, diamond, dotted},
	"faild-1":      {vermilion, diamond, solid},
	"jet":          {green, square, solid},
	"full-ct":      {grey, square, solid},
	"full-ct-ecmp": {grey, triangle, dotted},
	"cheetah":      {blue, circle, solid},

	"rr":             {sky, triangle, solid},
	"awrr":           {purple, triangle, solid},
	"p2c":            {green, diamond, solid},
	"least-conn":     {vermilion, square, solid},
	"least-loaded":   {orange, square, solid},
	"least-reported": {vermilion, triangle, dotted},
	"probe":          {blue, diamond, solid},
	"hash-bit":       {sky, diamond, dotted},
}

// stylesOf gives every name of a result its style: its own where it has one,
// else the colour that the fewest names beside it have.
func stylesOf(r *sim.Result) map[string]style {
	styles := map[string]style{}
	var others []string
	for _, f := range r.Figures {
		for _, s := range f.Series {
			if st, ok := named[s.Name]; ok {
				styles[s.Name] = st
			} else if !slices.Contains(others, s.Name) {
				others = append(others, s.Name)
			}
		}
	}
	colours := []color.Color{blue, orange, green, vermilion, sky, purple, black, grey}
	marks := []draw.GlyphDrawer{circle, square, triangle, diamond}
	lines := [][]vg.Length{solid, dashed, dotted}
	for _, name := range others {
		used := coloursBeside(r, name, styles)
		best := slices.MinFunc(colours, func(a, b color.Color) int { return used[a] - used[b] })
		n := used[best]
		// Neighbours in the list differ in their marks, too.
		mark := (n + slices.Index(colours, best)) % len(marks)
		styles[name] = style{best, marks[mark], lines[n/len(marks)%len(lines)]}
	}
	return styles
}

// coloursBeside counts colours of names that share a figure with one.
func coloursBeside(r *sim.Result, name string, styles map[string]style) map[color.Color]int {
	beside := map[string]bool{}
	for _, f := range r.Figures {
		if slices.ContainsFunc(f.Series, func(s sim.Series) bool { return s.Name == name }) {
			for _, s := range f.Series {
				beside[s.Name] = true
			}
		}
	}
	used := map[color.Color]int{}
	for n := range beside {
		if st, ok := styles[n]; ok {
			used[st.colour]++
		}
	}
	return used
}
