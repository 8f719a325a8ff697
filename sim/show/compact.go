package show

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Of what the library writes, more than half says nothing that is seen.
var (
	unseen = strings.NewReplacer("font-variant:normal;font-weight:normal;font-style:normal;", "", "\n\t", " ", " />", "/>", "#000000", "#000", "#FFFFFF", "#FFF",
		"font-family:Liberation Sans;", "", "<svg ", `<svg font-family="Liberation Sans" `)
	coordinates = regexp.MustCompile(` (?:d|x|y)="[^"]*"`)
	fraction    = regexp.MustCompile(`\d+\.\d{2,}`)
	path        = regexp.MustCompile(`^<path d="([^"]*)" (style="[^"]*")/>$`)
)

// compact makes an SVG of the plotting library small: coordinates to a tenth of
// a pixel, no style that is the default, and one path of all those of one style
// that follow each other, be they marks, ticks or the lines of a grid. Those that
// are seen through stay apart: together they would cover as one.
func compact(svg string) string {
	svg = coordinates.ReplaceAllStringFunc(unseen.Replace(svg), func(of string) string {
		return fraction.ReplaceAllStringFunc(of, func(number string) string {
			x, _ := strconv.ParseFloat(number, 64) // it is one
			return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
		})
	})
	var b strings.Builder
	var d strings.Builder // of paths that are not written yet
	style := ""
	flush := func() {
		if d.Len() > 0 {
			fmt.Fprintf(&b, "<path d=\"%s\" %s/>\n", d.String(), style)
			d.Reset()
		}
	}
	for line := range strings.Lines(svg) {
		m := path.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			flush()
			b.WriteString(line)
			continue
		}
		if m[2] != style || strings.Contains(style, "opacity") {
			flush()
		}
		style = m[2]
		d.WriteString(m[1])
	}
	flush()
	return b.String()
}
