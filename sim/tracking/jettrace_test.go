package tracking

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
)

// small is a benchmark that takes a second.
func small() JetTraceOptions {
	o := DefaultJetTrace()
	o.Servers, o.Seeds, o.Passes = []int{40, 20}, 2, 2
	o.Trace.Flows, o.Trace.Packets = 20_000, 60_000
	return o
}

func TestJetTrace(t *testing.T) {
	o := small()
	o.Plain = true
	steps := 0
	o.Progress = func(step, of int, _ string) {
		if step != steps || step >= of {
			t.Errorf("progress %d of %d, want step %d", step, of, steps)
		}
		steps++
	}
	r, err := JetTrace(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2*6*3 || len(r.Seeds) != 2 {
		t.Fatalf("%d cases, %d seeds", len(r.Cases), len(r.Seeds))
	}
	for i, c := range r.Cases {
		if c.Hash == chash.KindMaglev && c.Scheme == SchemeJET {
			if c.NotApplicable == "" || c.Mpps != nil {
				t.Errorf("maglev under JET: %+v", c)
			}
			continue
		}
		if c.Mpps.Mean <= 0 || c.Oversubscription.Mean < 1 || c.Oversubscription.Mean > 2 {
			t.Errorf("%d servers, %s, %s: %g Mpps, oversubscription %g", c.Servers, c.Hash, c.Scheme, c.Mpps.Mean, c.Oversubscription.Mean)
		}
		if c.Scheme != SchemeJET {
			if c.Tracked.Mean != 20_000 || c.Tracked.Deviation != 0 {
				t.Errorf("%s, %s tracks %v", c.Hash, c.Scheme, c.Tracked)
			}
			continue
		}
		// JET's share, and the same balance as full tracking.
		if math.Abs(c.Share.Mean/c.Expected-1) > 0.25 {
			t.Errorf("%d servers, %s tracks %.4f, want about %.4f", c.Servers, c.Hash, c.Share.Mean, c.Expected)
		}
		if full := r.Cases[i-1]; *full.Oversubscription != *c.Oversubscription {
			t.Errorf("%s: oversubscription %v under full-ct, %v under jet", c.Hash, full.Oversubscription, c.Oversubscription)
		}
	}
	var table, svg bytes.Buffer
	if err := errors.Join(r.Print(&table), r.Plot(&svg)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kernel", "seeds 1 to 2", "n = 40, horizon 4", "not applicable", "±"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	if !strings.Contains(svg.String(), "<svg") || !strings.Contains(svg.String(), "table-hrw") {
		t.Error("the plot is no SVG, or names no hash")
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
}

// All but what is measured repeats.
func TestJetTraceRepeats(t *testing.T) {
	o := small()
	o.Servers = []int{20}
	var runs [2]*JetTraceResult
	for i := range runs {
		r, err := JetTrace(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		r.Ratios = nil
		for j := range r.Cases {
			r.Cases[j].Mpps, r.Cases[j].Passes = nil, nil
			// When the clock ticks decides which entry is the oldest.
			r.Cases[j].Replaced, r.Cases[j].Refused = nil, nil
		}
		runs[i] = r
	}
	if !reflect.DeepEqual(runs[0], runs[1]) {
		t.Errorf("two runs of the same seeds differ:\n%+v\n%+v", runs[0], runs[1])
	}
}

// Every form of every hash, and every table, sends each flow to one server,
// the same under all schemes.
func TestSchemesAgree(t *testing.T) {
	trace, err := NewTrace(t.Context(), TraceOptions{Flows: 5000, Packets: 20_000, Zipf: 1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, native := range []bool{false, true} {
		for _, k := range DefaultJetTrace().Hashes {
			p, err := newPlacement(k, native, 30, 3, 5)
			if err != nil {
				t.Fatal(err)
			}
			var want forwarder
			for i := range trace.Packets {
				slot, _ := p.place(trace.hash(&trace.Packets[i]))
				want.counts[slot]++
			}
			for _, f := range []*forwarder{
				{flows: jet.NewFlows(2000)}, {flows: jet.NewFlows(300), jet: true}, {plain: newPlainTable(5000)},
			} {
				f.trace, f.place = trace, p
				if f.jet && noJET(k) != "" {
					continue
				}
				if _, err := f.run(context.Background()); err != nil {
					t.Fatal(err)
				}
				if f.counts != want.counts {
					t.Errorf("%s, native %v, jet %v, plain %v: packets of servers differ from the hash's", k, native, f.jet, f.plain != nil)
				}
				if f.counts[chash.None] != 0 {
					t.Errorf("%s: %d packets found no server", k, f.counts[chash.None])
				}
			}
		}
	}
}

func TestJetTraceOptions(t *testing.T) {
	for want, change := range map[string]func(*JetTraceOptions){
		"servers 0":      func(o *JetTraceOptions) { o.Servers = []int{0} },
		"servers 16384":  func(o *JetTraceOptions) { o.Servers = []int{16384} },
		"horizon 0":      func(o *JetTraceOptions) { o.Horizon = 0 },
		"horizon NaN":    func(o *JetTraceOptions) { o.Horizon = math.NaN() },
		"seeds 0":        func(o *JetTraceOptions) { o.Seeds = 0 },
		"seed 429496729": func(o *JetTraceOptions) { o.Seed = 1<<32 - 3 },
		`hash "x"`:       func(o *JetTraceOptions) { o.Hashes = []chash.Kind{"x"} },
		"passes 0":       func(o *JetTraceOptions) { o.Passes = 0 },
		"load 8":         func(o *JetTraceOptions) { o.Load = 8 },
		"zipf -1":        func(o *JetTraceOptions) { o.Trace.Zipf = -1 },
		"flows 0":        func(o *JetTraceOptions) { o.Trace.Flows = 0 },
		"packets 1":      func(o *JetTraceOptions) { o.Trace.Packets = 1 },
		"at least one":   func(o *JetTraceOptions) { o.Hashes = nil },
	} {
		o := DefaultJetTrace()
		change(&o)
		if _, err := JetTrace(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestJetTraceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := JetTrace(ctx, small()); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
}

func TestStat(t *testing.T) {
	if s := sim.NewStat([]float64{2, 4, 4, 4, 5, 5, 7, 9}); s.Mean != 5 || math.Abs(s.Deviation-2.138) > 0.001 || s.Min != 2 || s.Max != 9 || s.Samples != 8 {
		t.Errorf("%+v", s)
	}
	if s := sim.NewStat([]float64{3}); s.Mean != 3 || s.Deviation != 0 {
		t.Errorf("%+v", s)
	}
	for want, got := range map[string]string{
		"1,602,007": sim.Grouped(1602007, 0), "145,378.50": sim.Grouped(145378.5, 2), "12": sim.Grouped(12, 0), "-1,000": sim.Grouped(-1000, 0), "0.9": sim.Grouped(0.9, 1),
	} {
		if got != want {
			t.Errorf("grouped: %q, want %q", got, want)
		}
	}
}
