package pcc

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/simtest"
	"github.com/fairlead/fairlead/sim/workload"
)

// TestCheetahSchedule holds the schedule to the paper's: 24 servers, 8 added, 9
// drained, the times of the data's notes, and about 105,000 requests.
func TestCheetahSchedule(t *testing.T) {
	s := CheetahSchedule()
	var text strings.Builder
	for i, step := range s.Steps {
		if i > 0 && step.At > s.Steps[i-1].At {
			text.WriteByte(' ')
		}
		text.WriteByte("-+"[map[bool]int{true: 1}[step.Add]])
	}
	if want := "+ + + + ++ -+ + -- - - -- - -"; text.String() != want {
		t.Errorf("steps %q, want %q", text.String(), want)
	}
	if last := s.Steps[len(s.Steps)-1].At; s.Steps[0].At != 20*sim.Second || last != 39500*sim.Millisecond {
		t.Errorf("steps from %v to %v ns, want 20 s to 39.5 s", s.Steps[0].At, last)
	}
	for seed := range uint64(3) {
		if n := len(s.Requests(seed, 1)); n < 104_000 || n > 106_500 {
			t.Errorf("seed %d: %d requests, the authors had 105,053 to 107,352", seed, n)
		}
	}
	working := s.Active
	for _, c := range s.Changes(1) {
		if c.Add {
			working++
		} else {
			working--
		}
	}
	if working != 23 {
		t.Errorf("%d servers at the end, want 23", working)
	}
}

// TestScheduleStreams: what one source draws changes no other's.
func TestScheduleStreams(t *testing.T) {
	s := CheetahSchedule()
	first := s.Requests(1, 0.05)
	other := s
	other.Lifetimes = 0.5
	for i, r := range other.Requests(1, 0.05) {
		if r.At != first[i].At || r.Chunks != first[i].Chunks || r.Lasts != first[i].Lasts/2 {
			t.Fatalf("request %d: %+v, with whole lifetimes %+v", i, r, first[i])
		}
	}
	if !slices.Equal(first, s.At(nil).Requests(1, 0.05)) || !slices.Equal(s.Changes(1), s.Changes(1)) {
		t.Error("the same seed gives other requests or changes")
	}
	small := s.Small(6, 4, 0.1)
	for _, r := range small.Requests(1, 0.05) {
		if r.At >= small.Span {
			t.Errorf("a request at %v, after the end at %v", r.At, small.Span)
		}
	}
	working := small.Active
	for _, c := range small.Changes(1) {
		if working += map[bool]int{true: 1, false: -1}[c.Add]; working < small.Active-1 || int(c.Server) >= small.Servers {
			t.Errorf("%+v: %d servers work", c, working)
		}
	}
}

// TestSends: a client's packets after a change.
func TestSends(t *testing.T) {
	r := Request{At: 100, Lasts: 100, Chunks: 4} // acknowledged at 125, 150, 175
	for _, c := range []struct {
		from, at sim.Time
		sends    bool
	}{{101, 125, true}, {125, 125, true}, {126, 150, true}, {175, 175, true}, {176, 200, false}, {199, 200, false}} {
		if at, sends := r.sends(c.from); sends != c.sends || sends && at != c.at {
			t.Errorf("from %d: %d %v, want %d %v", c.from, at, sends, c.at, c.sends)
		}
	}
	for _, r := range []Request{{At: 1, Lasts: 0, Chunks: 9}, {At: 1, Lasts: 9, Chunks: 1}, {At: 1, Lasts: 9}} {
		if _, sends := r.sends(2); sends {
			t.Errorf("%+v sends", r)
		}
	}
}

// TestPlayIsRun: what Play calls broken is what Run does with the same
// connections, where no two changes are one version, which they are not in a
// Run. (Run sizes jet's tables by the population of the start: here, nobody.)
func TestPlayIsRun(t *testing.T) {
	s := CheetahSchedule()
	var times []time.Duration
	for i, step := range s.Steps {
		times = append(times, time.Duration(step.At)+time.Duration(i)*time.Millisecond)
	}
	s = s.At(times)
	requests := s.Requests(3, 0.05)
	for _, name := range []string{Hash, "table-hrw", Beamer1, Cheetah} {
		tally, err := s.PlayAll(t.Context(), 3, 0.05, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		scheme, err := s.scalingScheme(name, 3)
		if err != nil {
			t.Fatal(err)
		}
		run := &Run{Arrivals: &planned{keys: scalingKeys(3, len(requests)), requests: requests}, Working: s.Active, Standby: s.Servers - s.Active,
			Changes: s.Changes(3), End: s.End(requests) + 1, Contenders: []Contender{{Name: name, Scheme: scheme}}}
		want, err := run.Play(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(tally[0].Broken); got != want.Schemes[0].Broken {
			t.Errorf("%s: %d broken, by Run %d", name, got, want.Schemes[0].Broken)
		}
	}
}

// planned yields requests as connections.
type planned struct {
	requests []Request
	keys     []uint64
}

func (p *planned) Next() (c workload.Connection, ok bool) {
	if len(p.requests) == 0 {
		return c, false
	}
	c = workload.Connection{Start: p.requests[0].At, Lifetime: p.requests[0].Lasts, Key: p.keys[0]}
	p.requests, p.keys = p.requests[1:], p.keys[1:]
	return c, true
}

// TestScaling: a small run has the same bytes twice and on one core, the order
// of schemes is the paper's, and fewer are noticed than broken.
func TestScaling(t *testing.T) {
	run := func(workers int) (*sim.Result, []byte) {
		s := ScalingKind.New()
		if err := simtest.Check(s, "--rate-factor", "0.1", "--lifetimes-factor", "0.1"); err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(t.Context(), sim.Common{Seed: 5, Seeds: 2, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return r, data
	}
	r, data := run(2)
	if _, again := run(1); !bytes.Equal(data, again) {
		t.Error("another number of cores gives other bytes")
	}
	mean := map[string]map[string]float64{}
	for _, series := range r.Figures[0].Series {
		if series.By == sim.Ours {
			mean[series.Name] = map[string]float64{}
			for _, p := range series.Points {
				mean[series.Name][p.Label] = p.Y.Mean
			}
		}
	}
	order := []string{Hash, "table-hrw", Beamer1, Cheetah}
	for i, name := range order {
		broken, noticed := mean["broken"][name], mean["noticed"][name]
		if i > 0 && broken >= mean["broken"][order[i-1]] || noticed > broken {
			t.Errorf("%s: %.3f %% broken, %.3f %% noticed; %v", name, broken, noticed, mean)
		}
	}
	if mean["broken"][Cheetah] != 0 {
		t.Errorf("%.3f %% broken under cheetah", mean["broken"][Cheetah])
	}
}

func TestScalingOptions(t *testing.T) {
	for _, flags := range [][]string{{"--rate-factor", "0"}, {"--rate-factor", "NaN"}, {"--schemes", "hash,best"}, {"--schemes", ""}, {"--schemes", "hash,hash"},
		{"--lifetimes-factor", "0.1,-1"}} {
		s := ScalingKind.New()
		if err := simtest.Check(s, flags...); err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), flags[0]) {
			t.Errorf("%v: %v", flags, err)
		}
	}
	few := &scaling{schemes: []string{Cheetah}, factor: 0.000001}
	if _, err := few.Run(t.Context(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "--rate-factor") {
		t.Errorf("a run without requests: %v", err)
	}
}
