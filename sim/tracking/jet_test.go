package tracking

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// littleJet is a run of some milliseconds, of one point.
func littleJet(schemes ...string) *Jet {
	j := NewJet()
	j.Schemes, j.Hashes = schemes, []string{"anchor"}
	j.Servers, j.Seconds = 60, 600
	j.Kills, j.Ratios, j.Horizons, j.Actives = []float64{4}, []float64{.1}, []int{6}, []int{500}
	return j
}

// played is what happened at the standard points, by the curve's name.
func played(t *testing.T, j *Jet, seed uint64) map[string]outcome {
	t.Helper()
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	var points []point
	for _, c := range j.curves() {
		points = append(points, j.standard(c))
	}
	list, err := j.play(context.Background(), points, seed)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]outcome{}
	for i, o := range list {
		byName[points[i].name()] = o
	}
	return byName
}

// The same seeds give the same bytes, on one core and on two.
func TestJetRepeats(t *testing.T) {
	var before []byte
	for _, workers := range []int{1, 2} {
		j := littleJet(SchemeJET, SchemeFullCT, SchemeStateless)
		j.Hashes, j.Kills, j.Actives, j.Ratios = []string{"anchor", "table-hrw"}, []float64{2, 8}, []int{200, 500}, []float64{.1, .5}
		r, err := j.Run(context.Background(), sim.Common{Seed: 3, Seeds: 2, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && string(before) != string(bytes) {
			t.Fatalf("another run of the same seeds differs, with %d workers:\n%s\n%s", workers, before, bytes)
		}
		before = bytes
	}
}

// Who stands beside a scheme, behind the same servers or others, is of no
// consequence for it, and all see the same connections and failures.
func TestJetSideBySide(t *testing.T) {
	all := []string{SchemeJET, SchemeFullCT, SchemeStateless}
	j := littleJet(all...)
	j.Evict = []string{EvictRank, EvictLRU, EvictState}
	together := played(t, j, 1)
	for _, scheme := range all {
		for _, evict := range j.Evict {
			if evict == EvictRank && scheme != SchemeJET {
				continue
			}
			one := littleJet(scheme)
			one.Evict = []string{evict}
			for name, alone := range played(t, one, 1) {
				beside := together[name]
				if alone.laneSum != beside.laneSum || *alone.siteSum != *beside.siteSum {
					t.Errorf("%s: alone %+v %+v, beside others %+v %+v", name, alone.laneSum, *alone.siteSum, beside.laneSum, *beside.siteSum)
				}
			}
		}
	}
	for name, o := range together {
		if first := together[SchemeJET]; o.connections != first.connections || o.kills != first.kills {
			t.Errorf("%s: %d connections and %d failures, jet has %d and %d", name, o.connections, o.kills, first.connections, first.kills)
		}
	}
}

// Little's law: arrivals and lifetimes give the active connections asked for.
func TestJetLoad(t *testing.T) {
	j := littleJet(SchemeStateless)
	j.Actives, j.Kills, j.Seconds = []int{2000}, []float64{0}, 1000
	o := played(t, j, 1)["anchor"]
	want := 2000 * 1000 * float64(sim.Second) / workload.Hadoop.Mean()
	if got := float64(o.connections); math.Abs(got-want) > 5*math.Sqrt(want) {
		t.Errorf("%.0f connections, want about %.0f", got, want)
	}
	if o.broken != 0 || o.checks != 0 {
		t.Errorf("%d broken, %d checks, though no server failed", o.broken, o.checks)
	}
}

// With a table that has room for all, tracking breaks nothing, whatever the
// hash; without any table, servers that come back do.
func TestJetAllHashes(t *testing.T) {
	for _, k := range chash.Kinds() {
		schemes := []string{SchemeFullCT, SchemeStateless}
		if k.Minimal() {
			schemes = append(schemes, SchemeJET)
		}
		j := littleJet(schemes...)
		j.Hashes, j.Ratios = []string{string(k)}, []float64{2}
		for name, o := range played(t, j, 1) {
			if broken := o.broken > 0; broken != (name == string(k)) {
				t.Errorf("%s over %s: %d of %d broken", name, k, o.broken, o.connections)
			}
			if o.kills == 0 || o.additions == 0 || o.killed == 0 {
				t.Errorf("%s over %s: %+v: nothing happened", name, k, *o.siteSum)
			}
		}
	}
}

// More servers fail than the horizon has room for: those that it let go warm
// up before they work, and still nothing breaks.
func TestJetUnforeseen(t *testing.T) {
	j := littleJet(SchemeJET)
	j.Hashes, j.Kills, j.Horizons, j.Ratios = []string{"anchor", "table-hrw"}, []float64{12}, []int{3}, []float64{2}
	for name, o := range played(t, j, 1) {
		if o.unforeseen == 0 || o.broken > 0 {
			t.Errorf("%s: %d unforeseen, %d broken", name, o.unforeseen, o.broken)
		}
	}
}

// The program's own flow table breaks nothing where it has the size that
// docs/jet.md says, and refuses entries where it has a sixth of it.
func TestJetProgramsTable(t *testing.T) {
	for ratio, fits := range map[float64]bool{0.7: true, 0.1: false} {
		j := NewJet()
		j.Schemes, j.Hashes, j.Evict, j.Ratios = []string{SchemeJET}, []string{"anchor"}, []string{EvictState}, []float64{ratio}
		o := played(t, j, 1)["jet-state"]
		if (o.broken == 0) != fits || !fits && o.refused == 0 {
			t.Errorf("ratio %g: %d broken, %d refused", ratio, o.broken, o.refused)
		}
	}
}

// JET's slides, "PCC Violations", with a table of a tenth of the active
// connections and ten failures a minute: nothing breaks; full tracking with
// the same table breaks hundreds. Its table is worth something where
// connections are silent.
func TestJetPaper(t *testing.T) {
	j := NewJet()
	j.Hashes = []string{"anchor"}
	j.Ratios = []float64{.1}
	for name, o := range played(t, j, 2) {
		if (o.broken > 100) != (name != SchemeJET) || name == SchemeJET && o.broken > 0 {
			t.Errorf("%s: %d of %d broken", name, o.broken, o.connections)
		}
		if name != SchemeJET {
			continue
		}
		if ratio := float64(o.wanted) / o.expected; math.Abs(ratio-1) > .05 {
			t.Errorf("%d of %d connections are to be tracked, want %.0f", o.wanted, o.connections, o.expected)
		}
	}
	j.Speak, j.Ratios = SpeakNever, []float64{.5}
	silent := played(t, j, 2)
	if full, none := silent[SchemeFullCT].broken, silent["anchor"].broken; full == 0 || full > none*3/4 {
		t.Errorf("silent connections: full-ct breaks %d, no memory %d", full, none)
	}
}

func TestJetResult(t *testing.T) {
	j := littleJet(SchemeJET, SchemeFullCT, SchemeStateless)
	j.Kills, j.Ratios = []float64{2, 4}, []float64{.1, 2}
	r, err := j.Run(context.Background(), sim.Common{Seed: 1, Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.Figures {
		names = append(names, f.Name)
		for _, s := range f.Series {
			for _, p := range s.Points {
				if s.By == sim.Ours && p.Y.Samples != 2 {
					t.Errorf("figure %s, %s: %+v: want two samples", f.Name, s.Name, p)
				}
			}
		}
	}
	if got := strings.Join(names, " "); got != "standard update-rate table-ratio table-ratio-silent entries tracked" {
		t.Errorf("figures %s", got)
	}
	for _, c := range r.Checks {
		// A table of a tenth is worth nothing to full tracking.
		small := c.Reported == fullCTToStateless.says
		if strings.HasPrefix(c.What, "broken under") && c.Holds == small {
			t.Errorf("%+v: holds %t", c, c.Holds)
		}
	}
}

// A run that could not have shown a difference is an error.
func TestJetNothingToSee(t *testing.T) {
	for want, change := range map[string]func(*Jet){
		"no server that failed came back": func(j *Jet) { j.Kills = []float64{0} },
		"raise --seconds":                 func(j *Jet) { j.Seconds = 50 },
		"even without memory":             func(j *Jet) { j.Actives = []int{1} },
	} {
		j := littleJet(SchemeJET, SchemeStateless)
		change(j)
		if _, err := j.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestJetOptions(t *testing.T) {
	for want, change := range map[string]func(*Jet){
		`--scheme "x"`:    func(j *Jet) { j.Schemes = []string{"x"} },
		`--hash "x"`:      func(j *Jet) { j.Hashes = []string{"x"} },
		`--hash "maglev"`: func(j *Jet) { j.Hashes = []string{"anchor", "maglev"} },
		"--hash []":       func(j *Jet) { j.Hashes = nil },
		"--servers 1:":    func(j *Jet) { j.Servers = 1 },
		"--horizon -1":    func(j *Jet) { j.Horizons = []int{47, -1} },
		"--horizon is":    func(j *Jet) { j.Horizons = nil },
		"--seconds 0":     func(j *Jet) { j.Seconds = 0 },
		"--active 0":      func(j *Jet) { j.Actives = []int{0} },
		"--kills -1":      func(j *Jet) { j.Kills = []float64{1, -1} },
		"--kills NaN":     func(j *Jet) { j.Kills = []float64{math.NaN()} },
		"--ratio -0.1":    func(j *Jet) { j.Ratios = []float64{-0.1} },
		`--evict "x"`:     func(j *Jet) { j.Evict = []string{"x"} },
		`--evict "rank"`:  func(j *Jet) { j.Schemes, j.Evict = []string{SchemeFullCT}, []string{EvictRank} },
		"--warm-up -1":    func(j *Jet) { j.WarmUp = -1 },
		`--speak "x"`:     func(j *Jet) { j.Speak = "x" },
	} {
		j := NewJet()
		change(j)
		if err := j.Check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %q in one line", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewJet().Run(ctx, sim.Common{Seed: 1, Seeds: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
