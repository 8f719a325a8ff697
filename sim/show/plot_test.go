package show

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// sample is a result with all that figures can have: both axes logarithmic,
// zeros, deviations, others' points, bars, texts that need escapes.
func sample() *sim.Result {
	stat := func(x float64) sim.Stat { return sim.NewStat([]float64{0.8 * x, x, 1.2 * x}) }
	curve := func(name string, f float64) sim.Series {
		s := sim.Series{Name: name, By: sim.Ours}
		for _, x := range []float64{1.5, 5, 10, 20, 40, 80} {
			s.Points = append(s.Points, sim.Point{X: x, Y: stat(f * x)})
		}
		return s
	}
	lines := sim.Figure{
		Name: "broken", Title: "Broken <connections> & more", Note: "Where | stands_for *something*.",
		X: sim.Axis{Label: "DIP updates", Unit: "1/min", Decimals: 1}, Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4},
	}
	for i, name := range []string{"hash", "ring", "beamer-1", "jet", "unheard of", "new"} {
		lines.Series = append(lines.Series, curve(name, 1/float64(int(1)<<i)))
	}
	lines.Series = append(lines.Series, curve("cheetah", 0),
		sim.Series{Name: "hash", By: sim.ByPaper, Points: []sim.Point{{X: 80, Y: sim.Value(20)}}},
		sim.Series{Name: "faild-1", By: sim.ByData, Points: []sim.Point{{X: 80, Y: sim.Value(0.8)}}})
	linear := lines
	linear.Name, linear.Y.Log, linear.X.Log = "linear", false, true
	bars := sim.Figure{Name: "variance", Title: "Variance of load", Bars: true, X: sim.Axis{Label: "servers"}, Y: sim.Axis{Label: "variance", Unit: "%²", Decimals: 1}}
	for i, name := range []string{"rr", "hash", "p2c"} {
		s := sim.Series{Name: name, By: sim.Ours}
		for j, l := range []string{"16 small", "32 small", "64 small"} {
			s.Points = append(s.Points, sim.Point{Label: l, Y: stat(float64(2 + 5*i + j))})
		}
		bars.Series = append(bars.Series, s)
	}
	bars.Series = append(bars.Series, sim.Series{Name: "rr", By: sim.ByLab, Points: []sim.Point{{Label: "64 small", Y: sim.Value(2.1)}}})
	logBars := bars
	logBars.Name, logBars.Y.Log = "log", true
	return &sim.Result{
		Scenario: "sample", Source: "nobody", Seeds: []uint64{1, 2, 3},
		Machine:    sim.Machine{Kernel: "6.6", CPU: "a processor", Go: "go1"},
		Parameters: []sim.Parameter{{Name: "servers", Value: "468"}},
		Samples:    []sim.Sample{{What: "connections", Count: 1234567}},
		Figures:    []sim.Figure{lines, linear, bars, logBars},
		Checks: []sim.Check{
			sim.NewCheck("hash at 80 a minute", "%", 80, 70, 90, "about 80 %"),
			{What: "cheetah", Ours: 0.1, Why: "it was made up"},
		},
	}
}

// texts are an SVG's, and it is well-formed.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var texts []string
	inText := false
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return texts
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inText = x.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				texts = append(texts, string(x))
			}
		}
	}
}

func TestPlot(t *testing.T) {
	var all, again bytes.Buffer
	if err := Plot(&all, sample()); err != nil {
		t.Fatal(err)
	}
	if err := Plot(&again, sample()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all.Bytes(), again.Bytes()) {
		t.Error("the same result is drawn differently")
	}
	if svg := all.String(); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Error("a number that is none is drawn")
	}
	found := map[string]int{}
	for _, s := range texts(t, all.Bytes()) {
		found[s]++
	}
	for text, n := range map[string]int{
		"Broken <connections> & more": 2, "Variance of load": 2, // titles
		"broken connections (%)": 1, "DIP updates (1/min)": 1,
		"broken connections (%), logarithmic": 1, "DIP updates (1/min), logarithmic": 1,
		"hash": 4, "cheetah": 2, "unheard of": 2, "faild-1": 2, // legends
		"reported: paper": 2, "reported: authors' data": 2, "reported: lab": 2,
		"16 small": 2, "64 small": 2, // categories
	} {
		if found[text] != n {
			t.Errorf("%q is there %d times, want %d", text, found[text], n)
		}
	}
}

// A name looks the same in all figures, and like no other of its result.
func TestStyles(t *testing.T) {
	seen := map[string]string{}
	for name, s := range named {
		for other, o := range named {
			if name != other && s.colour == o.colour && s.mark == o.mark && slices.Equal(s.dashes, o.dashes) {
				t.Errorf("%s and %s look alike", name, other)
			}
		}
	}
	r := sample()
	styles := stylesOf(r)
	for name, s := range styles {
		if st, ok := named[name]; ok && (s.colour != st.colour || s.mark != st.mark) {
			t.Errorf("%s has not its own style", name)
		}
		seen[name] = name
	}
	if a, b := styles["new"], styles["unheard of"]; a.colour == b.colour && a.mark == b.mark {
		t.Error("two new names look alike")
	}
	if len(seen) != 10 {
		t.Errorf("%d names have styles: %v", len(seen), seen)
	}
}

// What cannot be drawn is refused by name, not drawn anywhere.
func TestPlotRefusesNaN(t *testing.T) {
	r := sample()
	r.Figures[0].Series[1].Points[2].Y.Mean = math.NaN()
	err := Plot(io.Discard, r)
	if err == nil || !strings.Contains(err.Error(), "figure broken") || !strings.Contains(err.Error(), "series ring") {
		t.Errorf("error: %v", err)
	}
}

// Figures without points, with one, with zeros alone: each scale can be drawn.
func TestPlotOfLittle(t *testing.T) {
	for _, points := range [][]sim.Point{nil, {{X: 5, Y: sim.Value(0)}}, {{X: 5, Y: sim.Value(7)}}, {{X: 0, Y: sim.Value(-3)}}} {
		for i := range 8 {
			f := sim.Figure{Name: "f", Bars: i&1 > 0, Series: []sim.Series{{Name: "a", By: sim.Ours, Points: points}}}
			f.X.Log, f.Y.Log = i&2 > 0, i&4 > 0
			if err := Plot(io.Discard, &sim.Result{Figures: []sim.Figure{f}}); err != nil {
				t.Errorf("%+v: %v", f, err)
			}
		}
	}
	if err := Plot(io.Discard, &sim.Result{}); err != nil {
		t.Errorf("no figure: %v", err)
	}
}

func TestTicks(t *testing.T) {
	labels := func(s scale) string {
		var l []string
		ticks := s.linearTicks()
		if s.log {
			ticks = s.logTicks()
		}
		for _, tick := range ticks {
			if tick.Label != "" {
				l = append(l, tick.Label)
			}
		}
		return strings.Join(l, " ")
	}
	for _, c := range []struct {
		log     bool
		numbers []float64
		want    string
	}{
		{false, []float64{0, 80}, "0 10 20 30 40 50 60 70 80"},
		{false, []float64{20_000, 200_000}, "0 50,000 100,000 150,000 200,000"},
		{false, []float64{0.001, 0.003}, "0 0.0005 0.001 0.0015 0.002 0.0025 0.003"},
		{true, []float64{0.02, 80}, "0.1 1 10"},
		{true, []float64{0, 2, 80}, "0 1 2 5 10 20 50"},
		{true, []float64{40, 900}, "50 100 200 500"},
		{true, []float64{0}, "0 0.1 0.2 0.5 1"},
		{true, []float64{3e5, 4e9}, "1 M 10 M 100 M 1 G"},
		{true, []float64{2e-6, 3e-5, 1}, "1e-5 0.0001 0.001 0.01 0.1 1"},
		{false, []float64{0, 0}, "0 0.2 0.4 0.6 0.8 1"},
		{false, []float64{-3, -1}, "-3 -2.5 -2 -1.5 -1"},
	} {
		if got := labels(newScale(c.log, true, c.numbers)); got != c.want {
			t.Errorf("log %v, %v: %q, want %q", c.log, c.numbers, got, c.want)
		}
	}
}

func TestTicksAtNumbers(t *testing.T) {
	for _, c := range []struct {
		numbers []float64
		few     int
	}{{[]float64{16, 64, 32, 16}, 3}, {[]float64{1, 2, 100}, 0}, {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0}, {nil, 0}} {
		s := newScale(false, false, c.numbers)
		s.label(c.numbers)
		if len(s.few) != c.few {
			t.Errorf("%v: %v", c.numbers, s.few)
		}
	}
}

// Curves of one point are bars beside each other, named by their place.
func TestPlotAtOnePlace(t *testing.T) {
	f := sim.Figure{Name: "f", X: sim.Axis{Label: "servers", Decimals: 1}}
	for i, name := range []string{"hash", "cheetah"} {
		f.Series = append(f.Series, sim.Series{Name: name, By: sim.Ours, Points: []sim.Point{{X: 1617, Y: sim.Value(float64(i + 7))}}})
	}
	var b bytes.Buffer
	if err := Plot(&b, &sim.Result{Figures: []sim.Figure{f}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(texts(t, b.Bytes()), "1,617.0") || f.Bars || f.Series[0].Points[0].Label != "" {
		t.Errorf("no category in %v, or the figure itself has changed", texts(t, b.Bytes()))
	}
}
