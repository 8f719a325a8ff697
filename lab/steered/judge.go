package steered

import (
	"fmt"

	"github.com/fairlead/fairlead/config"
)

// leaveLimit is within how many seconds tunnels shall have left a bad link.
const leaveLimit = 1.0

// judge says what does not hold: what is steered leaves in time, breaks nothing and
// does not stall; what is not steered does stall, or the run proves nothing.
func (r *Result) judge() {
	say := func(format string, args ...any) { r.Verdict = append(r.Verdict, fmt.Sprintf(format, args...)) }
	for _, run := range r.Runs {
		steered := run.Steer != config.SteerOff
		if steered && run.Broken > 0 {
			say("steer %s: %d connections broke", run.Steer, run.Broken)
		}
		for _, p := range run.Phases {
			switch {
			case p.LeftAfter == nil:
			case *p.LeftAfter < 0:
				say("steer %s: tunnels did not leave %s in phase %s", run.Steer, r.BadSpine, p.Name)
			case *p.LeftAfter > leaveLimit:
				say("steer %s: tunnels left %s after %.2f s in phase %s, at most %g s are allowed", run.Steer, r.BadSpine, *p.LeftAfter, p.Name, leaveLimit)
			}
			if steered && p.Stalled > 0 {
				say("steer %s: %d connections stalled in phase %s", run.Steer, p.Stalled, p.Name)
			}
			if !steered && p.Name == "cut" && p.Stalled == 0 {
				say("steer off: nothing stalled while the link was cut, so this run proves nothing")
			}
			if p.Name == "healthy" && steered && selected(p) == 0 {
				say("steer %s: no packet's way was chosen by its fields", run.Steer)
			}
		}
	}
}

func selected(p Phase) (n uint64) {
	for _, s := range p.Spines {
		n += s.Selected
	}
	return n
}
