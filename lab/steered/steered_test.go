package steered

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/lab/netspace"
	choices "github.com/fairlead/fairlead/vip"
)

// A small run of the whole scenario: what is steered leaves the bad link in time
// and breaks nothing, what is not stalls.
func TestFabric(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	// A phase of the cut is longer than what counts as a stall.
	r, err := Run(t.Context(), Options{Servers: 2, Connections: 16, Phase: 2500 * time.Millisecond, Program: built.Fairlead(t),
		Watch: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	for _, v := range r.Verdict {
		t.Error(v)
	}
	if left := netspace.List("fl-steer"); len(left) > 0 {
		t.Logf("other fabrics: %v", left)
	}
	if len(r.Runs) != 2 || r.Runs[0].Moved == 0 || r.Runs[1].Moved != 0 {
		t.Errorf("moved: %+v", r.Runs)
	}
	for _, p := range r.Runs[0].Phases {
		if p.Name == "cut" && p.Spines[1].Forwarded == 0 {
			t.Error("nothing went over the good spine while the other's link was cut")
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"":                 {},
		"--steer path":     {Steer: []string{"path"}},
		"named twice":      {Steer: []string{choices.SteerOff, choices.SteerOff}},
		"--servers 17":     {Servers: 17},
		"--connections 1:": {Connections: 1},
		"--limit 4000000":  {Limit: 4_000_000},
		"--phase 1s":       {Phase: time.Second},
	} {
		err := CheckOptions(o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// The verdict says what does not hold, and that a run proves nothing.
func TestJudge(t *testing.T) {
	late, never := 1.5, -1.0
	phase := func(name string, left *float64, stalled int) Phase {
		return Phase{Name: name, LeftAfter: left, Stalled: stalled, Spines: []Spine{{Packets: 100, Selected: 95}}}
	}
	// Probes alone, and what ports name by chance: as if nothing were steered.
	unsteered := phase("healthy", nil, 0)
	unsteered.Spines = append(unsteered.Spines, Spine{Packets: 100, Selected: 20})
	r := Result{BadSpine: "spine1", Runs: []RunResult{
		{Steer: choices.SteerConnection, Broken: 2, Phases: []Phase{phase("healthy", nil, 0), phase("degraded", &late, 0), phase("cut", &never, 3)}},
		{Steer: choices.SteerOff, Broken: 1, Phases: []Phase{unsteered, phase("cut", nil, 0)}},
		{Steer: choices.SteerServer, Phases: []Phase{unsteered, {Name: "healthy", Spines: []Spine{{}}}}},
		{Steer: choices.SteerOff, Phases: []Phase{phase("healthy", nil, 0)}},
	}}
	r.judge()
	for _, want := range []string{"2 connections broke", "after 1.50 s in phase degraded", "did not leave spine1 in phase cut", "3 connections stalled", "nothing stalled while the link was cut, so this run proves nothing",
		"steer server: the way of 57 % of", "steer server: the way of NaN %", "steer off: the way of 95 % of the packets was chosen by their fields all the same"} {
		if !strings.Contains(strings.Join(r.Verdict, "\n"), want) {
			t.Errorf("no %q in %q", want, r.Verdict)
		}
	}
	if len(r.Verdict) != 8 {
		t.Errorf("%q", r.Verdict)
	}
}
