package show

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// sample is a result with all that figures can have: both axes logarithmic,
// zeros, deviations, others' points, bars.
func sample() *sim.Result {
	stat := func(x float64) sim.Stat { return sim.NewStat([]float64{0.8 * x, x, 1.2 * x}) }
	rates := []float64{1.5, 5, 10, 20, 40, 80}
	curve := func(name string, f float64) sim.Series {
		s := sim.Series{Name: name, By: sim.Ours}
		for _, x := range rates {
			s.Points = append(s.Points, sim.Point{X: x, Y: stat(f * x)})
		}
		return s
	}
	lines := sim.Figure{
		Name: "broken", Title: "Broken connections, 468 servers", Note: "What is <broken> & why.",
		X: sim.Axis{Label: "DIP updates", Unit: "1/min", Decimals: 1}, Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4},
	}
	for i, name := range []string{"hash", "ring", "table-hrw", "maglev", "anchor", "hrw", "dx", "beamer-1", "beamer-3", "faild-1", "jet", "full-ct", "full-ct-ecmp"} {
		lines.Series = append(lines.Series, curve(name, 1/float64(int(1)<<i)))
	}
	lines.Series = append(lines.Series, curve("cheetah", 0),
		sim.Series{Name: "hash", By: sim.ByPaper, Points: []sim.Point{{X: 80, Y: sim.Value(20)}}},
		sim.Series{Name: "beamer-1", By: sim.ByPaper, Points: []sim.Point{{X: 80, Y: sim.Value(0.8)}}})
	linear := lines
	linear.Name, linear.Y.Log, linear.X.Log = "linear", false, true
	bars := sim.Figure{Name: "variance", Title: "Variance of load", Bars: true, X: sim.Axis{Label: "servers"}, Y: sim.Axis{Label: "variance", Unit: "%²", Decimals: 1}}
	for i, name := range []string{"rr", "hash", "p2c", "awrr", "a new one"} {
		s := sim.Series{Name: name, By: sim.Ours}
		for j, l := range []string{"16", "32", "64"} {
			s.Points = append(s.Points, sim.Point{Label: l, Y: stat(float64(2 + 5*i + j))})
		}
		bars.Series = append(bars.Series, s)
	}
	bars.Series = append(bars.Series,
		sim.Series{Name: "rr", By: sim.ByPaper, Points: []sim.Point{{Label: "16", Y: sim.Value(2.1)}, {Label: "64", Y: sim.Value(2.1)}}},
		sim.Series{Name: "hash", By: sim.ByData, Points: []sim.Point{{Label: "16", Y: sim.Value(5)}, {Label: "64", Y: sim.Value(8)}}},
		sim.Series{Name: "p2c", By: sim.ByLab, Points: []sim.Point{{Label: "32", Y: sim.Value(11)}}})
	logBars := bars
	logBars.Name, logBars.Y.Log, logBars.Title = "log", true, "The same, logarithmic"
	return &sim.Result{
		Scenario: "sample", Source: "nobody", Seeds: []uint64{1, 2, 3},
		Machine:    sim.Machine{Kernel: "6.6", CPU: "a processor", Go: "go1"},
		Parameters: []sim.Parameter{{Name: "servers", Value: "468"}},
		Samples:    []sim.Sample{{What: "connections", Count: 1234567}},
		Figures:    []sim.Figure{lines, linear, bars, logBars},
		Checks: []sim.Check{
			sim.NewCheck("hash at 80 a minute", "%", 80, 70, 90, "about 80 %"),
			sim.NewCheck("cheetah", "%", 0.1, 0, 0, ""),
		},
	}
}

func TestPlotTwice(t *testing.T) {
	var a, b bytes.Buffer
	if err := Plot(&a, sample()); err != nil {
		t.Fatal(err)
	}
	if err := Plot(&b, sample()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same result is drawn differently")
	}
}
