package fct

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// result draws up what was found.
func (o *Options) result(c sim.Common, all []*sweep) (*sim.Result, error) {
	r := &sim.Result{Scenario: "fct", Source: "Cheetah (NSDI'20), figures 6, 7, 8", Machine: sim.ThisMachine(),
		Seeds: c.SeedList(), Parameters: o.parameters()}
	completed, runs := int64(0), int64(0)
	for _, s := range all {
		f := s.figure()
		r.Figures = append(r.Figures, f)
		r.Checks = append(r.Checks, checks(s.name, f.Series)...)
		for _, seeds := range s.outcomes {
			for _, ofSeed := range seeds {
				for _, ofRun := range ofSeed {
					for _, x := range ofRun {
						completed += int64(x.completed)
						runs++
					}
				}
			}
		}
	}
	if completed == 0 {
		return nil, sim.NothingToSee("fct", "no request ended within a run", "give more --seconds, or less --work")
	}
	r.Samples = []sim.Sample{{What: "runs", Count: runs}, {What: "requests completed", Count: completed}}
	return r, nil
}

func (o *Options) parameters() []sim.Parameter {
	text := func(name string, value any) sim.Parameter { return sim.Parameter{Name: name, Value: fmt.Sprint(value)} }
	list := func(values any) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(values)), ", "), "[]")
	}
	return []sim.Parameter{
		text("policies", list(o.Policies)),
		text("a run", fmt.Sprintf("%d s, %d runs a seed", o.Seconds, o.Runs)),
		text("figure 6", fmt.Sprintf("%d servers, %s requests/s/server, work %v, variation %g", o.Servers, list(o.Rates), o.Work, o.Variation)),
		text("figure 7", fmt.Sprintf("%s servers, %g requests/s/server, work %v, variation %g, load averaged over %v", list(o.Sizes), o.Rate, o.LoadWork, o.LoadVariation, o.Window)),
		text("figure 8", fmt.Sprintf("%s servers on %d cores, speed %g while both work, %g requests/s/server", list(o.Sizes), o.Cores, o.Slowed, o.BimodalRate)),
		text("reports", fmt.Sprintf("every %v, %v on their way; answers to probes %v", o.Report, o.Delay, o.ProbeDelay)),
		text("clients", o.Clients),
	}
}

// figure of a sweep, the authors' points beside ours.
func (s *sweep) figure() sim.Figure {
	f := sim.Figure{Name: s.name, Y: sim.Axis{Label: "99th percentile of flow completion time", Unit: "ms", Log: true}}
	of := p99
	switch s.name {
	case byLoad:
		f.Title = "Flow completion time against load (Cheetah, figure 6)"
		f.X = sim.Axis{Label: "requests a second and server"}
	case bySize:
		f.Title = "Variance of the servers' load (Cheetah, figure 7)"
		f.X = sim.Axis{Label: "servers"}
		f.Y = sim.Axis{Label: "variance of load", Unit: "%²", Log: true, Decimals: 1}
		of = variance
	case byBimodal:
		f.Title = "Flow completion time, bimodal work (Cheetah, figure 8)"
		f.X = sim.Axis{Label: "servers"}
		f.Note = "Above --cores servers, pairs of them share a core."
	case byReports:
		f.Title = "Bimodal work: how often servers report"
		f.X = sim.Axis{Label: "reports a second and server", Log: true}
		f.Note = "hash and p2c hear no reports: they are there to compare with."
	case byDelay:
		f.Title = "Bimodal work: how long reports are on their way"
		f.X = sim.Axis{Label: "delay of a report", Unit: "ms", Log: true}
		f.Note = "hash and p2c hear no reports: they are there to compare with."
	}
	f.Series = append(s.curves(of), s.others()...)
	return f
}

// others are the authors' points at places and for policies that were run.
func (s *sweep) others() (some []sim.Series) {
	for _, r := range reported[s.name] {
		kept := sim.Series{Name: r.Name, By: r.By}
		for _, p := range r.Points {
			if _, ok := valueAt(s.curves(p99), r.Name, p.X); ok {
				kept.Points = append(kept.Points, p)
			}
		}
		if len(kept.Points) > 0 {
			some = append(some, kept)
		}
	}
	return some
}

// checks of a figure's series.
func checks(figure string, series []sim.Series) (all []sim.Check) {
	switch figure {
	case byLoad:
		for _, x := range loads {
			what := fmt.Sprintf("figure 6: p99 of hash over rr at %g requests/s/server", x)
			all = append(all, ratio(series, what, figure, nameHash, policy.RR, x, 1.7, 3.5, whyLoad)...)
		}
	case bySize:
		for _, name := range []string{policy.RR, nameHash, nameCRC} {
			for _, x := range sizes {
				all = append(all, near(series, figure, name, x)...)
			}
		}
	case byBimodal:
		const x = 64
		for _, worse := range []string{nameHash, policy.RR} {
			for _, better := range []string{policy.AWRR, policy.P2C} {
				what := fmt.Sprintf("figure 8: p99 of %s over %s, %d servers", worse, better, x)
				all = append(all, ratio(series, what, figure, worse, better, x, 1.8, sim.Unbounded, whyBimodal)...)
			}
		}
		for _, better := range []string{nameHash, policy.RR} {
			what := fmt.Sprintf("figure 8: p99 of least-reported over %s, %d servers", better, x)
			all = append(all, ratio(series, what, figure, policy.LeastReported, better, x, 1, sim.Unbounded, whyReports)...)
		}
	}
	return all
}

// What experiments said about figures that need a reservation; their numbers
// are in docs/simulation.md.
const (
	whyLoad    = "--work and --variation are fitted: with --variation 1.2 p99 at low load is nearer to the paper's, and all ratios below 180 are under 1.7"
	whySize    = "--load-variation and --window are fitted: with the service that fits figure 6 and the whole run as window, rr has the paper's variance and hash a third of it"
	whyBimodal = "64 servers are hyper-threads of 32 cores: with --slowed 1, 64 servers are no worse than 16"
	whyReports = "what reports lack is freshness: figure report-delay; with 1 ms least-reported is better than hash"
)

// ratio checks one policy against another at x; none if one was not run.
func ratio(series []sim.Series, what, figure, worse, better string, x, low, high float64, why string) []sim.Check {
	a, okA := valueAt(series, worse, x)
	b, okB := valueAt(series, better, x)
	if !okA || !okB || b == 0 {
		return nil
	}
	text := ""
	if ra, ok := valueAt(reported[figure], worse, x); ok {
		if rb, ok := valueAt(reported[figure], better, x); ok {
			text = fmt.Sprintf("%.2f", ra/rb)
		}
	}
	c := sim.NewCheck(what, "×", a/b, low, high, text)
	c.Why = why
	return []sim.Check{c}
}

// near checks a policy against the authors' point at x: within 25 %.
func near(series []sim.Series, figure, name string, x float64) []sim.Check {
	ours, ok := valueAt(series, name, x)
	theirs, okTheirs := valueAt(reported[figure], name, x)
	if !ok || !okTheirs {
		return nil
	}
	c := sim.NewCheck(fmt.Sprintf("figure 7: variance of load under %s, %g servers", name, x), "%²", ours, 0.75*theirs, 1.25*theirs, fmt.Sprint(theirs))
	c.Why = whySize
	return []sim.Check{c}
}
