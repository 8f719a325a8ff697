package lab

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim/pcc"
)

// TestScaling is a short run with few servers: what must hold does, and the
// table has the lab beside the simulation.
func TestScaling(t *testing.T) {
	t.Parallel()
	schedule := pcc.CheetahSchedule().Small(6, 4, 0.08)
	result := small(t, RunOptions{Scenario: "scaling", Seed: 4, RateFactor: 0.05, Schedule: schedule,
		Schemes: []string{"cheetah", "beamer", "stateless"}, Hashes: []string{"table-hrw"}})
	s := result.Scaling
	if s == nil || len(s.Steps) != len(schedule.Steps) {
		t.Fatalf("%+v, want %d steps", s, len(schedule.Steps))
	}
	for i, step := range s.Steps {
		if step.Asked < step.Planned || step.Made <= step.Asked || i > 0 && step.Planned != s.Steps[i-1].Planned && step.Asked < s.Steps[i-1].Made {
			t.Errorf("step %d: %+v", i, step)
		}
	}
	requests := len(schedule.Requests(4, 0.05))
	for _, row := range s.Table {
		if row.SimulatedRequests != requests || row.Run != "" && row.Requests != requests {
			t.Errorf("%+v, want %d requests", row, requests)
		}
	}
	for _, run := range result.Runs {
		if ends := sum(s.PerSecond[run.Name()], 0, math.MaxInt); ends != (Second{run.Completed, run.Broken}) {
			t.Errorf("%s: %+v by seconds, %d completed and %d broken in all", run.Name(), ends, run.Completed, run.Broken)
		}
	}
	var text strings.Builder
	if err := result.PrintResult(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
}

// TestPaced: the answer's bytes, its length in time, and what is refused.
func TestPaced(t *testing.T) {
	server := httptest.NewServer(handler("s1"))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		query   string
		status  int
		body    string
		atLeast time.Duration
	}{
		{"seconds=0.2&chunks=3", 200, string(pattern[:3*chunkBytes]), 200 * time.Millisecond},
		{"seconds=0&chunks=600", 200, string(pattern) + string(pattern[:600*chunkBytes-len(pattern)]), 0},
		{"seconds=0.1&chunks=0", 200, "", 100 * time.Millisecond},
		{"seconds=-1&chunks=1", 400, "seconds=-1: must be 0 to 3600\n", 0},
		{"seconds=NaN&chunks=1", 400, "seconds=NaN: must be 0 to 3600\n", 0},
		{"seconds=1&chunks=x", 400, "chunks=x: must be 0 to 1048576\n", 0},
	} {
		began := time.Now()
		answer, err := http.Get(server.URL + "/paced?" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d, %d bytes %.40q, %v; want %d, %d bytes", c.query, answer.StatusCode, len(body), body, err, c.status, len(c.body))
		}
		if took := time.Since(began); took < c.atLeast {
			t.Errorf("%s took %v", c.query, took)
		}
	}
}

// TestDisagreements: only what chance cannot explain.
func TestDisagreements(t *testing.T) {
	row := func(run string, broken, noticed int) ScalingRow {
		return ScalingRow{Scheme: run, Run: run, Broken: broken, SimulatedNoticed: noticed}
	}
	for i, c := range []struct {
		rows []ScalingRow
		want int
	}{
		{[]ScalingRow{row("a", 500, 400), row("b", 0, 0)}, 0},
		{[]ScalingRow{row("a", 110, 120), row("b", 120, 110)}, 0},
		{[]ScalingRow{row("a", 500, 0), row("b", 0, 400)}, 1},
		{[]ScalingRow{row("a", 500, 100), row("b", 100, 400)}, 1},
		{[]ScalingRow{row("", 0, 900), row("b", 100, 40)}, 0},
	} {
		if got := disagreements(c.rows); len(got) != c.want {
			t.Errorf("case %d: %q", i, got)
		}
	}
}
