package steered

import (
	"fmt"

	choices "github.com/fairlead/fairlead/vip"
)

const (
	// leaveLimit is within how many seconds tunnels shall have left a bad link.
	leaveLimit = 1.0
	// chosenShare of the packets to the spines go where their fields say, at least,
	// if tunnels are steered. If not, probes do, and of the tunnels those whose
	// ports name a spine by chance: two digits of sixteen.
	chosenShare = 0.9
)

// judge says what does not hold: what is steered leaves in time, breaks nothing and
// does not stall; what is not steered does stall, or the run proves nothing.
func (r *Result) judge() {
	say := func(format string, args ...any) { r.Verdict = append(r.Verdict, fmt.Sprintf(format, args...)) }
	for _, run := range r.Runs {
		steered := run.Steer != choices.SteerOff
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
			if chosen := chosen(p); p.Name == "healthy" && steered && !(chosen >= chosenShare) {
				say("steer %s: the way of %.0f %% of the packets was chosen by their fields while all was well, at least %.0f %% are wanted", run.Steer, 100*chosen, 100*chosenShare)
			} else if p.Name == "healthy" && !steered && chosen >= chosenShare {
				say("steer off: the way of %.0f %% of the packets was chosen by their fields all the same, so this run proves nothing", 100*chosen)
			}
		}
	}
}

// chosen is the share of the packets to the spines that went where their fields
// say; NaN if there were none.
func chosen(p Phase) float64 {
	var selected, all uint64
	for _, s := range p.Spines {
		selected, all = selected+s.Selected, all+s.Packets
	}
	return float64(selected) / float64(all)
}
