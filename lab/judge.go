package lab

import (
	"fmt"
	"os"
	"runtime"
	"slices"
)

// Timing is how a time stands to its bound.
type Timing struct {
	// Bound is the most that it may be, in its own unit.
	Bound float64 `json:"bound"`
	// Load is the machine's load of the last minute. Where it is not below
	// the number of processors, others take their time from what is
	// measured, and the bound is not judged.
	Load   float64 `json:"load"`
	Judged bool    `json:"judged"`
}

// timed compares a time with its bound, and fails the run if it is over it on
// a machine that was free to measure.
func (r *runner) timed(what string, value, bound float64) Timing {
	t := Timing{Bound: bound}
	data, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(data), &t.Load)
	}
	t.Judged = err == nil && t.Load < float64(runtime.NumCPU())
	if t.Judged && value > bound {
		r.result.Verdict = append(r.result.Verdict, fmt.Sprintf("%s: %.2f, must be at most %g", what, value, bound))
	}
	return t
}

// note says for people what is over its bound.
func (t Timing) note(value float64) string {
	if value <= t.Bound {
		return ""
	}
	return fmt.Sprintf("over the bound of %g (load %.1f: busy machine?)", t.Bound, t.Load)
}

// judge says what is not as it must be.
func (r *runner) judge() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	control := r.o.Scenario == "control"
	full := r.o.Scenario == "churn" && r.o.Scale.Steps == nil
	if r.o.Scenario == "attack" {
		return r.judgeAttacks()
	}
	if r.o.Scenario == "synflood" {
		r.judgeFlood(say)
	}
	if r.o.Scenario == "offload" {
		r.judgeOffload(say)
	}
	if r.o.Scenario == "two-tier" {
		r.judgeOneTier(say)
	}
	for _, run := range r.result.Runs {
		switch {
		case run.Completed+run.Broken+run.LostWithServer != run.Connections:
			say("%s: %d connections, but %d completed, broken or lost", run.Name(), run.Connections, run.Completed+run.Broken+run.LostWithServer)
		case control && run.Completed != run.Connections:
			say("%s: %d connections broken without any balancer", run.Name(), run.Connections-run.Completed)
		case !control && run.mustHold() && run.Broken > 0:
			say("%s: %d connections broken, must be 0", run.Name(), run.Broken)
		case !control && run.mustHold() && run.Resets > 0:
			say("%s: %d RSTs came to clients whose server lived, must be 0", run.Name(), run.Resets)
		case !control && run.row().Chains() && run.LateResets > 0:
			say("%s: %d RSTs came to clients that had completed, must be 0", run.Name(), run.LateResets)
		case !control && r.changes > 0 && run.Survived == 0:
			say("%s: no connection lived through a change, so the run proves nothing", run.Name())
		case r.o.Scenario == "scaling" && run.row().Forgets() && run.Broken == 0:
			say("%s: no connection broken, so the run proves nothing about the others", run.Name())
		case r.o.Scenario == "migrate-scheme" && run.Anew && r.o.Scale.Steps == nil && run.Broken == 0:
			say("%s: no connection broken where the VIP was made anew, so the run proves nothing about migration", run.Name())
		case full && run.row().Forgets() && run.Broken == 0:
			say("%s: no connection broken, so the churn proves nothing about the others", run.Name())
		}
		// What a scenario compares with may have fewer.
		whole := full || slices.Contains([]string{"chain", "stale-mux", "drain-switch"}, r.o.Scenario) && run.mustHold()
		if whole && run.Connections < r.o.Scale.Connections {
			say("%s: %d connections, must be at least %d", run.Name(), run.Connections, r.o.Scale.Connections)
		}
	}
	if r.result.MissedResets > 0 {
		say("%d RSTs at the client were seen and not kept: what they were is not known", r.result.MissedResets)
	}
	if full && r.changes < minChanges {
		say("%d changes, must be at least %d", r.changes, minChanges)
	}
	return wrong
}

// judgeCounters compares the client's kernel with what its connections saw:
// where all of them had to hold and none had a server that crashed, its kernel
// has ended none.
func (r *runner) judgeCounters() {
	for _, run := range r.result.Runs {
		if !run.mustHold() || run.Broken+run.LostWithServer > 0 {
			return
		}
	}
	if n := r.result.Counters["client"]["TcpEstabResets"]; n > 0 {
		r.result.Verdict = append(r.result.Verdict, fmt.Sprintf("the client's kernel counts %d established connections that were reset (TcpEstabResets), and none of the load's was", n))
	}
}
