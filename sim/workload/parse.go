package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// The form of a distribution's file:
//
//	# about: one line
//	# source: who measured it
//	# unit: s            ns, us, ms, s, min or h; bytes, KiB or MiB
//	# form: cumulated    counts, probabilities or cumulated
//	0.001 .29336         a value and its count or probability; of a
//	0.002 .37823         cumulated one the probability of at most that value
//
// Blanks or a comma separate the two.
// Blank lines and what follows a # are nobody's, but for the four of the head.

// Forms of a file's second column.
const (
	formCounts        = "counts"
	formProbabilities = "probabilities"
	formCumulated     = "cumulated"
)

// tolerance is by how much probabilities may miss 1: figures of five decimals
// and more.
const tolerance = 1e-5

// Most of a value: integers up to here are exact as floating point, and are
// 104 days in nanoseconds.
const maxValue = 1 << 53

type unit struct {
	name  string
	scale float64 // in ns or bytes
	sizes bool
}

var units = []unit{
	{"ns", 1, false}, {"us", 1e3, false}, {"ms", 1e6, false}, {"s", 1e9, false}, {"min", 60e9, false}, {"h", 3600e9, false},
	{"bytes", 1, true}, {"KiB", 1 << 10, true}, {"MiB", 1 << 20, true},
}

// Parse reads a distribution's file. Errors are one line: the name, the line
// and what would be right.
func Parse(r io.Reader, name string) (*Distribution, error) {
	p := parser{name: name, head: map[string]string{}}
	lines := bufio.NewScanner(textOf(r))
	for lines.Scan() {
		p.line++
		if err := p.read(lines.Text()); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s:%d: %w", name, p.line+1, errLongLine)
	} else if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, p.line+1, err)
	}
	return p.finish()
}

type parser struct {
	name string
	line int
	head map[string]string
	unit unit
	rows []row
}

type row struct {
	value  int64
	weight float64
	line   int
	text   string // of the weight
}

func (p *parser) errorf(line int, format string, a ...any) error {
	return fmt.Errorf("%s:%d: %s", p.name, line, fmt.Sprintf(format, a...))
}

func (p *parser) read(line string) error {
	data, comment, commented := strings.Cut(line, "#")
	fields := strings.FieldsFunc(data, func(c rune) bool { return unicode.IsSpace(c) || c == ',' })
	if len(fields) == 0 {
		if key, value, ok := strings.Cut(comment, ":"); commented && ok {
			return p.heading(strings.TrimSpace(key), strings.TrimSpace(value))
		}
		return nil
	}
	if err := p.headed(); err != nil {
		return err
	}
	if len(fields) != 2 {
		return p.errorf(p.line, "%q: %d columns; write a value and its %s, with a blank between", strings.TrimSpace(data), len(fields), p.second())
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(value) {
		return p.errorf(p.line, "value %q is no number", fields[0])
	}
	value = math.Round(value * p.unit.scale)
	switch {
	case value < 0:
		return p.errorf(p.line, "value %s is negative; times and sizes are 0 at least", fields[0])
	case value > maxValue:
		return p.errorf(p.line, "value %s %s is too much; at most 100 days or 2^53 bytes", fields[0], p.unit.name)
	}
	weight, err := strconv.ParseFloat(fields[1], 64)
	if err != nil || math.IsNaN(weight) || math.IsInf(weight, 0) {
		return p.errorf(p.line, "%s %q is no number", p.second(), fields[1])
	}
	if weight < 0 {
		return p.errorf(p.line, "%s %s is negative; leave out what never happens", p.second(), fields[1])
	}
	if weight > maxValue {
		return p.errorf(p.line, "%s %s is too much; at most 2^53", p.second(), fields[1])
	}
	p.rows = append(p.rows, row{int64(value), weight, p.line, fields[1]})
	return nil
}

// heading takes a line of the head; other comments are nobody's, and so is what
// follows the word of unit and form.
func (p *parser) heading(key, value string) error {
	if words := strings.Fields(value); key != "about" && key != "source" && len(words) > 0 {
		value = words[0]
	}
	switch key {
	case "about", "source":
	case "unit":
		i := slices.IndexFunc(units, func(u unit) bool { return u.name == value })
		if i < 0 {
			return p.errorf(p.line, "unit %q: must be one of %s", value, unitNames())
		}
		p.unit = units[i]
	case "form":
		if !slices.Contains([]string{formCounts, formProbabilities, formCumulated}, value) {
			return p.errorf(p.line, "form %q: must be counts, probabilities or cumulated", value)
		}
	default:
		return nil
	}
	if _, twice := p.head[key]; twice && key != "about" && key != "source" {
		return p.errorf(p.line, "a second %q; a file has one", key)
	}
	p.head[key] = strings.TrimSpace(p.head[key] + " " + value)
	return nil
}

// headed says what the head lacks, once figures begin.
func (p *parser) headed() error {
	if p.head["unit"] == "" {
		return p.errorf(p.line, "figures before their unit; write above them: # unit: s (or %s)", unitNames())
	}
	if p.head["form"] == "" {
		return p.errorf(p.line, "figures before their form; write above them: # form: counts (or probabilities, cumulated)")
	}
	return nil
}

// second is what the second column holds, for errors.
func (p *parser) second() string {
	switch p.head["form"] {
	case formCounts:
		return "count"
	case formProbabilities:
		return "probability"
	}
	return "cumulated probability"
}

func (p *parser) finish() (*Distribution, error) {
	if len(p.rows) == 0 {
		return nil, p.errorf(max(1, p.line), "no figures; write lines of a value and its count, below: # unit: s and # form: counts")
	}
	check := p.checkSum
	if p.head["form"] == formCumulated {
		check = p.decumulate
	}
	if err := check(); err != nil {
		return nil, err
	}
	// Sorted by value, each once: how a file is ordered changes no draw.
	slices.SortStableFunc(p.rows, func(a, b row) int { return int(min(1, max(-1, a.value-b.value))) })
	var values []int64
	var weights []float64
	for _, r := range p.rows {
		switch n := len(values); {
		case r.weight == 0:
		case n > 0 && values[n-1] == r.value:
			weights[n-1] += r.weight
		default:
			values, weights = append(values, r.value), append(weights, r.weight)
		}
	}
	if len(values) == 0 || values[len(values)-1] == 0 {
		return nil, p.errorf(p.rows[0].line, "all values that happen are 0; at least one must be more")
	}
	d := newDistribution(values, weights)
	d.Name, d.About, d.Source, d.Sizes = p.name, p.head["about"], p.head["source"], p.unit.sizes
	return d, nil
}

// checkSum holds probabilities against 1.
func (p *parser) checkSum() error {
	sum := 0.0
	for _, r := range p.rows {
		sum += r.weight
	}
	last := p.rows[len(p.rows)-1]
	if p.head["form"] == formProbabilities && math.Abs(sum-1) > tolerance {
		return p.errorf(last.line, "probabilities sum up to %.6g, not to 1; correct them, or say: # form: counts", sum)
	}
	return nil
}

// decumulate turns cumulated probabilities into each value's own.
func (p *parser) decumulate() error {
	before := row{value: -1}
	for i, r := range p.rows {
		if r.value <= before.value && i > 0 {
			return p.errorf(r.line, "values of a cumulated distribution must rise from line to line; sort them")
		}
		if r.weight < before.weight {
			return p.errorf(r.line, "cumulated probability %s is less than the one before, %s; sort the lines, or say: # form: probabilities", r.text, before.text)
		}
		if r.weight > 1+tolerance {
			return p.errorf(r.line, "cumulated probability %s is over 1", r.text)
		}
		p.rows[i].weight -= before.weight
		before = r
	}
	if math.Abs(before.weight-1) > tolerance {
		return p.errorf(before.line, "the last cumulated probability is %s, not 1; add the values that are missing", before.text)
	}
	return nil
}

func unitNames() string {
	var names []string
	for _, u := range units {
		names = append(names, u.name)
	}
	return strings.Join(names, ", ")
}
