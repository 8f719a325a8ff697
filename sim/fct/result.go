package fct

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

// result draws up what was found.
func (o *Options) result(c sim.Common, all []*sweep) (*sim.Result, error) {
	r := &sim.Result{Scenario: "fct", Source: "Cheetah (NSDI'20), figures 6, 7, 8", Machine: sim.ThisMachine(),
		Seeds: c.SeedList(), Parameters: o.parameters()}
	completed, runs := int64(0), int64(0)
	for _, s := range all {
		r.Figures = append(r.Figures, o.figure(s))
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
	for _, f := range r.Figures {
		if o.asStated(f.Name) && o.asFitted(f.Name) {
			r.Checks = append(r.Checks, checks(f.Name, r.Figures)...)
		}
	}
	r.Samples = []sim.Sample{{What: "runs", Count: runs}, {What: "requests completed", Count: completed}}
	return r, nil
}

func (o *Options) parameters() []sim.Parameter {
	text := func(name string, value any) sim.Parameter { return sim.Parameter{Name: name, Value: fmt.Sprint(value)} }
	list := func(values any) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(values)), ", "), "[]")
	}
	fitted := func(figure string) string {
		if o.asFitted(figure) {
			return "fitted: "
		}
		return ""
	}
	return []sim.Parameter{
		text("policies", list(o.Policies)),
		text("a run", fmt.Sprintf("%d s, %d runs a seed", o.Seconds, o.Runs)),
		text("figure 6", fmt.Sprintf("%d servers, %s requests/s/server; %swork %v, variation %g", o.Servers, list(o.Rates), fitted(byLoad), o.Work, o.Variation)),
		text("figure 7", fmt.Sprintf("%s servers, %g requests/s/server; %swork %v, variation %g, load averaged over %v", list(o.Sizes), o.Rate, fitted(bySize), o.LoadWork, o.LoadVariation, o.Window)),
		text("figure 8", fmt.Sprintf("%s servers on %d cores; %sspeed %g while both work, %g requests/s/server, reports %v on their way", list(o.Sizes), o.Cores, fitted(byBimodal), o.Slowed, o.BimodalRate, o.Delay)),
		text("reports", fmt.Sprintf("every %v; answers to probes %v on their way", o.Report, o.ProbeDelay)),
		text("clients", o.Clients),
	}
}

// figure of a sweep, the authors' points beside ours.
func (o *Options) figure(s *sweep) sim.Figure {
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
		f.Note = "Others than awrr and least-reported hear no reports: they are there to compare with."
	case byDelay:
		f.Title = "Bimodal work: how long reports are on their way"
		f.X = sim.Axis{Label: "delay of a report", Unit: "ms", Log: true}
		f.Note = "Others than awrr and least-reported hear no reports: they are there to compare with."
	}
	f.Series = s.curves(of)
	if o.asStated(s.name) {
		f.Series = append(f.Series, s.others()...)
	}
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
