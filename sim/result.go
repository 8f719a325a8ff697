package sim

import (
	"encoding/json"
	"fmt"
	"math"
)

// Result is what a scenario found: what `fairlead sim NAME -o json` prints.
// Its figures do not depend on how long anything took, on how many cores there
// are or on the machine, which is named all the same, as in every experiment:
// the same options and seeds give the same bytes on one machine.
type Result struct {
	Scenario string `json:"scenario"`
	// Source is what it repeats: "Cheetah (NSDI'20), figure 2a"; empty: nobody
	// has published it.
	Source string `json:"source,omitempty"`
	Machine
	Seeds []uint64 `json:"seeds"`
	// Parameters are all that the figures depend on, in the order in which
	// they are shown.
	Parameters []Parameter `json:"parameters"`
	// Samples say how much was simulated, over all seeds.
	Samples []Sample `json:"samples"`
	Figures []Figure `json:"figures"`
	// Checks hold ours against what was reported, or against what must be.
	Checks []Check `json:"checks,omitempty"`
}

// Parameter is one of a run's, as text with its unit.
type Parameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Sample counts what a run simulated: connections, changes, look-ups.
type Sample struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// Figure is one diagram, and one table.
type Figure struct {
	// Name is short, lower case and unique in its result: part of file names.
	Name  string `json:"name"`
	Title string `json:"title"`
	X     Axis   `json:"x"`
	Y     Axis   `json:"y"`
	// Bars: the points' places are categories (Point.Label), not numbers.
	Bars   bool     `json:"bars,omitempty"`
	Series []Series `json:"series"`
	// Note is what a reader must know to read it, a sentence or two.
	Note string `json:"note,omitempty"`
}

// Axis of a figure.
type Axis struct {
	Label string `json:"label"`
	// Unit of the numbers: "%", "ms", "1/min", "bytes"; empty: a plain number.
	Unit string `json:"unit,omitempty"`
	// Log: drawn with a logarithmic scale. Zeros stand at its lower edge.
	Log bool `json:"log,omitempty"`
	// Decimals of the numbers in tables.
	Decimals int `json:"decimals,omitempty"`
}

// Who a series or a figure is from.
const (
	Ours = "ours"
	// ByPaper: read in the paper's text or plot.
	ByPaper = "paper"
	// ByData: the authors' published results.
	ByData = "authors' data"
	// ByLab: measured in a lab of network namespaces.
	ByLab = "lab"
)

// Series is one curve, or the bars of one colour.
type Series struct {
	Name string `json:"name"`
	// By is Ours, ByPaper, ByData or ByLab. Others' points are drawn as marks
	// in the colour of our series of the same name.
	By     string  `json:"by"`
	Points []Point `json:"points,omitempty"`
}

// Curve is a series of ours with a point at each of xs, whose statistic y says.
func Curve[N int | float64](name string, xs []N, y func(x N) Stat) Series {
	s := Series{Name: name, By: Ours}
	for _, x := range xs {
		s.Points = append(s.Points, Point{X: float64(x), Y: y(x)})
	}
	return s
}

// Point of a series: at X (or, in bars, at Label) the statistics over seeds.
// A point of others has one sample.
type Point struct {
	X     float64 `json:"x"`
	Label string  `json:"label,omitempty"`
	Y     Stat    `json:"y"`
}

// Check is one statement about a result that holds or does not.
type Check struct {
	// What is measured: "broken under Beamer at 80 updates a minute".
	What string `json:"what"`
	Unit string `json:"unit,omitempty"`
	// Ours, where it is no number, agrees with nothing.
	Ours float64 `json:"ours"`
	// Reported is the paper's figure as text ("about 1 %"); empty: there is
	// none, the bounds are what must be.
	Reported string `json:"reported,omitempty"`
	// Low and High bound what agrees, both included; -Unbounded and Unbounded
	// where there is no bound, which JSON leaves out.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Holds is whether Ours is within the bounds. Set by NewCheck.
	Holds bool `json:"holds"`
	// Why says, where it does not hold or needs a reservation, what was found
	// out about it, by which experiment.
	Why string `json:"why,omitempty"`
}

// NewCheck holds a figure against bounds.
func NewCheck(what, unit string, ours, low, high float64, reported string) Check {
	return Check{What: what, Unit: unit, Ours: ours, Low: low, High: high, Reported: reported, Holds: ours >= low && ours <= high && !math.IsInf(ours, 0)}
}

// Unbounded is the bound of a Check that has none: Low is -Unbounded or High
// Unbounded.
const Unbounded = math.MaxFloat64

// MarshalJSON leaves out bounds that there are not. Ours is null where it is no
// number (0/0: nothing happened that could have been counted).
func (c Check) MarshalJSON() ([]byte, error) {
	b := boundedCheck{checkFields: checkFields(c)}
	if c.Low > -Unbounded {
		b.Low = &c.Low
	}
	if c.High < Unbounded {
		b.High = &c.High
	}
	if math.IsNaN(c.Ours) || math.IsInf(c.Ours, 0) {
		return json.Marshal(struct {
			boundedCheck
			Ours *float64 `json:"ours"`
		}{boundedCheck: b})
	}
	return json.Marshal(b)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Check) UnmarshalJSON(data []byte) error {
	b := struct {
		boundedCheck
		Ours *float64 `json:"ours"`
	}{}
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	*c = Check(b.checkFields)
	c.Ours, c.Low, c.High = math.NaN(), -Unbounded, Unbounded
	for _, x := range []struct{ from, to *float64 }{{b.Ours, &c.Ours}, {b.Low, &c.Low}, {b.High, &c.High}} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
	return nil
}

type checkFields Check // without its methods

type boundedCheck struct {
	checkFields
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// Value is the statistic of one figure: others' points.
func Value(x float64) Stat { return Stat{Mean: x, Min: x, Max: x, Samples: 1} }

// NothingToSee is the error of a run that could not have shown a difference:
// say what did not happen and what to change.
func NothingToSee(scenario, what, remedy string) error {
	return fmt.Errorf("%s: %s: nothing could have shown a difference; %s", scenario, what, remedy)
}
