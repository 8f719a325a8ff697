package show

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"

	"github.com/fairlead/fairlead/sim"
)

// scale is one axis of a figure: where its numbers stand.
type scale struct {
	log      bool
	min, max float64
	// zero: on a logarithmic axis there are zeros; they stand at min, which is
	// labelled 0.
	zero bool
	// few numbers, far enough from each other to be labelled each.
	few []float64
}

// newScale fits an axis to numbers. From zero: a linear axis begins at 0.
func newScale(log, fromZero bool, numbers []float64) scale {
	s := scale{log: log, min: math.Inf(1), max: math.Inf(-1)}
	for _, x := range numbers {
		if log && x <= 0 {
			s.zero = true
			continue
		}
		s.min, s.max = min(s.min, x), max(s.max, x)
	}
	if math.IsInf(s.min, 1) { // no numbers that can be drawn
		s.min, s.max = 0.1, 1
	}
	if log {
		s.widen()
		return s
	}
	if fromZero && s.min > 0 {
		s.min = 0
	}
	if s.min == s.max && !fromZero {
		s.min, s.max = s.min-0.5, s.max+0.5
	}
	if fromZero {
		if s.min == s.max { // all are 0
			s.max = 1
		}
		s.max += 0.03 * (s.max - s.min)
	}
	return s
}

// widen takes a logarithmic axis to the next numbers of one digit, and a
// decade down where zeros are to stand apart.
func (s *scale) widen() {
	if s.zero {
		s.min = math.Pow(10, math.Floor(math.Log10(s.min)+1e-9)-1)
		s.max = max(digit(s.max, math.Ceil), 20*s.min)
		return
	}
	s.min, s.max = digit(s.min, math.Floor), digit(s.max, math.Ceil)
	if s.min == s.max {
		s.max *= 2
	}
}

// digit rounds to one digit; rounding errors are no reason to go further.
func digit(x float64, round func(float64) float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	nearest := math.Round(x / unit)
	if math.Abs(nearest-x/unit) < 1e-9 {
		return nearest * unit
	}
	return round(x/unit) * unit
}

// at is where a number stands on the plot's axis, which is linear: itself, or
// its logarithm and, for what is no more than min, that of min.
func (s scale) at(x float64) float64 {
	if s.log {
		return math.Log10(max(x, s.min))
	}
	return x
}

// apply gives a plot's axis its range and ticks.
func (s scale) apply(a *plot.Axis, label sim.Axis) {
	a.Label.Text = axisTitle(label)
	if s.log {
		a.Label.Text += ", logarithmic"
	}
	a.Min, a.Max = s.at(s.min), s.at(s.max)
	ticks := s.linearTicks()
	if s.log {
		ticks = s.logTicks()
	}
	if s.few != nil {
		ticks = s.fewTicks()
	}
	a.Tick.Marker = plot.ConstantTicks(ticks)
}

// label takes the numbers themselves for ticks, where they are few and far
// enough from each other: 16, 32 and 64 rather than 20, 40 and 60.
func (s *scale) label(numbers []float64) {
	few := slices.Compact(slices.Sorted(slices.Values(numbers)))
	// What a character and a gap take of the axis.
	const most, character, gap = 8, 0.011, 0.01
	if len(few) > most || s.zero {
		return
	}
	for i := 1; i < len(few); i++ {
		characters := len(tickLabel(few[i])) + len(tickLabel(few[i-1]))
		room := (s.at(few[i]) - s.at(few[i-1])) / (s.at(s.max) - s.at(s.min))
		if room < character*float64(characters)/2+gap {
			return
		}
	}
	s.few = few
}

func (s scale) fewTicks() []plot.Tick {
	var ticks []plot.Tick
	for _, x := range s.few {
		ticks = append(ticks, plot.Tick{Value: s.at(x), Label: tickLabel(x)})
	}
	return ticks
}

// linearTicks stand at multiples of 1, 2 or 5 times a power of ten: four to
// ten of them.
func (s scale) linearTicks() []plot.Tick {
	unit := math.Pow(10, math.Floor(math.Log10(s.max-s.min)))
	step := unit
	switch n := (s.max - s.min) / unit; {
	case n < 2:
		step = unit / 5
	case n < 4:
		step = unit / 2
	}
	var ticks []plot.Tick
	const rounding = 1e-9
	for i := math.Ceil(s.min/step - rounding); i*step <= s.max+rounding*step; i++ {
		v := i*step + 0 // never -0
		ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v)})
	}
	return ticks
}

// logTicks stand at 1, 2 … 9 of each decade. Labelled are the 1s, and 2s and
// 5s where there are few.
func (s scale) logTicks() []plot.Tick {
	var ticks []plot.Tick
	add := func(v float64, label string) {
		ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: label})
	}
	low := s.min
	if s.zero { // between zero and the first decade is nothing
		add(low, "0")
		low *= 10
	}
	const rounding = 1e-9
	wide := math.Log10(s.max/low) > 3
	for e := math.Floor(math.Log10(low) + rounding); ; e++ {
		for d := 1.0; d <= 9; d++ {
			v := d * math.Pow(10, e)
			if v > s.max*(1+rounding) {
				return ticks
			}
			if v < low*(1-rounding) {
				continue
			}
			if d == 1 || !wide && (d == 2 || d == 5) {
				add(v, tickLabel(v))
			} else {
				add(v, "")
			}
		}
	}
}

// tickLabel writes a tick's number with no more digits than it has, and
// millions and more by a letter.
func tickLabel(x float64) string {
	a := math.Abs(x)
	if a != 0 && a < 1e-4 {
		return strings.Replace(strconv.FormatFloat(x, 'g', 3, 64), "e-0", "e-", 1)
	}
	unit := ""
	for _, u := range []struct {
		letter string
		value  float64
	}{{" T", 1e12}, {" G", 1e9}, {" M", 1e6}} {
		if a >= u.value*(1-1e-9) {
			unit, x = u.letter, x/u.value
			break
		}
	}
	decimals := 0
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err == nil { // always
		_, after, _ := strings.Cut(strconv.FormatFloat(rounded, 'f', -1, 64), ".")
		decimals = len(after)
	}
	return sim.Grouped(x, decimals) + unit
}
