package show

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sim"
)

// Table writes a result for a terminal: what was run, a table a figure, and
// what agrees with the papers.
func Table(out io.Writer, r *sim.Result) error {
	var b strings.Builder
	b.WriteString(r.Scenario)
	if r.Source != "" {
		b.WriteString(" · " + r.Source)
	}
	fmt.Fprintf(&b, "\n%s\n%s\n", r.Machine, seedsLine(r.Seeds))
	for _, p := range r.Parameters {
		fmt.Fprintf(&b, "%s: %s\n", p.Name, p.Value)
	}
	if len(r.Samples) > 0 {
		fmt.Fprintf(&b, "simulated: %s\n", samplesText(r.Samples))
	}
	for i := range r.Figures {
		figureTable(&b, &r.Figures[i])
	}
	if len(r.Checks) > 0 {
		b.WriteString("\nbeside the papers and what must be\n")
	}
	for _, c := range r.Checks {
		b.WriteString(wrap(fmt.Sprintf("  %-7s  %s", verdict(c), checkText(c)), "           "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func figureTable(b *strings.Builder, f *sim.Figure) {
	fmt.Fprintf(b, "\n%s\n%s\n", f.Title, axisTitle(f.Y))
	g := newGrid(f)
	w := tabwriter.NewWriter(b, 0, 4, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{g.Head}, g.Rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	w.Flush() // to memory: cannot fail
	if f.Note != "" {
		b.WriteString(wrap(f.Note, ""))
	}
}

// wrap breaks a text into lines of at most 100 characters, the second and all
// others indented.
func wrap(text, indent string) string {
	const width = 100
	var b strings.Builder
	line := ""
	for i, word := range strings.Split(text, " ") {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line = indent + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// seedsLine is "seed 3" or "seeds 1 to 5 · mean ± deviation over seeds".
func seedsLine(seeds []uint64) string {
	switch len(seeds) {
	case 0:
		return "no seeds: nothing is drawn"
	case 1:
		return fmt.Sprintf("seed %d", seeds[0])
	}
	return fmt.Sprintf("seeds %d to %d · mean ± deviation over seeds", seeds[0], seeds[len(seeds)-1])
}

func samplesText(samples []sim.Sample) string {
	var texts []string
	for _, s := range samples {
		texts = append(texts, sim.Grouped(float64(s.Count), 0)+" "+s.What)
	}
	return strings.Join(texts, " · ")
}

func verdict(c sim.Check) string {
	if c.Holds {
		return "agrees"
	}
	return "differs"
}

// checkText is a check as a line: what, ours, what agrees, what was reported
// and why.
func checkText(c sim.Check) string {
	t := fmt.Sprintf("%s: %s (%s", c.What, withUnit(number(c.Ours), c.Unit), boundsText(c))
	if c.Reported != "" {
		t += "; reported: " + c.Reported
	}
	t += ")"
	if c.Why != "" {
		t += ": " + c.Why
	}
	return t
}

func boundsText(c sim.Check) string {
	switch {
	case c.Low == c.High:
		return "must be " + number(c.Low)
	case c.Low <= -sim.Unbounded:
		return "at most " + number(c.High)
	case c.High >= sim.Unbounded:
		return "at least " + number(c.Low)
	}
	return number(c.Low) + " to " + number(c.High)
}

func withUnit(text, unit string) string {
	if unit == "" {
		return text
	}
	return text + " " + unit
}

// number writes a figure as short as three or four digits allow.
func number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "undefined"
	case x == float64(int64(x)) || a >= 1000:
		return sim.Grouped(x, 0)
	case a >= 100:
		return sim.Grouped(x, 1)
	case a >= 1:
		return sim.Grouped(x, 2)
	}
	return fmt.Sprintf("%.3g", x)
}
