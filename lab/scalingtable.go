package lab

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/vip"
)

// ScalingRow holds one scheme in the lab beside the simulation of the same
// requests and of the changes at the times at which the lab made them.
type ScalingRow struct {
	// Scheme by the simulator's name, Run by the lab's; empty: the lab has no
	// such VIP.
	Scheme string `json:"scheme"`
	Run    string `json:"run,omitempty"`
	// Requests and Broken ones of the lab: a client saw a reset, a timeout or
	// wrong bytes.
	Requests int `json:"requests"`
	Broken   int `json:"broken"`
	// SimulatedRequests, of which a packet of the client went to another
	// server before the answer was complete (SimulatedNoticed: what a lab's
	// client can see), and of which the connection belonged to another server
	// after a change (SimulatedBroken: what `fairlead sim` calls so).
	SimulatedRequests int `json:"simulated_requests"`
	SimulatedNoticed  int `json:"simulated_noticed"`
	SimulatedBroken   int `json:"simulated_broken"`
}

// simulated is a run's scheme by the simulator's name.
func (r RunTally) simulated() string {
	switch row, anchor := r.row(), r.Hash == string(chash.KindAnchor); {
	case row.Hops:
		return pcc.Beamer3
	case row.Forgets() && anchor:
		return pcc.AnchorTable // as the data plane walks it
	case row.Forgets():
		return r.Hash
	case row.Finds == vip.ByHash && row.Foresees() && !anchor:
		return pcc.JETTableHRW
	}
	return r.Scheme
}

// compare plays what the lab did in the simulator: its schemes, and the
// paper's two others for comparison.
func (r *runner) compare(ctx context.Context) error {
	found := r.result.Scaling
	made := make([]time.Duration, len(found.Steps))
	for i, s := range found.Steps {
		made[i] = seconds(s.Made)
	}
	rows := []ScalingRow{{Scheme: pcc.Hash}, {Scheme: pcc.Beamer1}}
	for _, run := range r.result.Runs {
		rows = append(rows, ScalingRow{Scheme: run.simulated(), Run: run.Name(), Requests: run.Connections, Broken: run.Broken})
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.Scheme)
	}
	tallies, err := r.o.Schedule.At(made).PlayAll(ctx, r.o.Seed, r.o.RateFactor, names)
	if err != nil {
		return fmt.Errorf("simulate what the lab did: %w", err)
	}
	for i, t := range tallies {
		rows[i].SimulatedRequests, rows[i].SimulatedNoticed, rows[i].SimulatedBroken = t.Requests, t.Noticed, t.Broken
	}
	slices.SortStableFunc(rows, func(a, b ScalingRow) int { return b.SimulatedNoticed - a.SimulatedNoticed })
	found.Table = rows
	r.result.Verdict = append(r.result.Verdict, disagreements(rows)...)
	return nil
}

// disagreements are the pairs of schemes of which clearly more broke under one
// in the lab, and clearly more under the other in the simulation.
func disagreements(rows []ScalingRow) (wrong []string) {
	for _, a := range rows {
		for _, b := range rows {
			if a.Run != "" && b.Run != "" && clearlyMore(a.Broken, b.Broken) && clearlyMore(b.SimulatedNoticed, a.SimulatedNoticed) {
				wrong = append(wrong, fmt.Sprintf("in the lab %s broke more than %s (%d and %d), in the simulation less (%d and %d)",
					a.Scheme, b.Scheme, a.Broken, b.Broken, a.SimulatedNoticed, b.SimulatedNoticed))
			}
		}
	}
	return wrong
}

// clearlyMore tells whether a is above b by more than chance does to such
// counts: three standard deviations of their difference.
func clearlyMore(a, b int) bool { return float64(a-b) > 3*math.Sqrt(float64(a+b)) }

// printScaling tells what scenario scaling found.
func (r *Result) printScaling(w io.Writer) error {
	s := r.Scaling
	if s == nil {
		return nil
	}
	fmt.Fprintf(w, "\n%d servers, %d at the start; %g of the paper's rate; the most belated request began %.2f s late, the most belated answer ended %.2f s late\n\n", s.Servers, s.ActiveServers, s.RateFactor, s.LatestStart, s.LatestEnd)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "change\tplanned s\tasked s\tmade s\t")
	for _, step := range s.Steps {
		fmt.Fprintf(t, "%s\t%.1f\t%.2f\t%.2f\t\n", step.text(), step.Planned, step.Asked, step.Made)
	}
	fmt.Fprintln(t, "\nscheme\tlab: requests\tbroken\tshare\tsimulation: requests\tnoticed\tshare\tbroken at the change\t")
	for _, row := range s.Table {
		lab := "-\t-\t-"
		if row.Run != "" {
			lab = fmt.Sprintf("%d\t%d\t%s", row.Requests, row.Broken, percent(row.Broken, row.Requests))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t\n", row.Scheme, lab, row.SimulatedRequests, row.SimulatedNoticed, percent(row.SimulatedNoticed, row.SimulatedRequests), row.SimulatedBroken)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe simulation has the lab's requests, and its changes when the lab had made them. \"Noticed\": a packet of the client went to another server before the answer was complete, as a lab's client sees it.")
	return s.printSeconds(w, r)
}

// secondsTogether is how many seconds a line of printSeconds has.
const secondsTogether = 5

// printSeconds is the paper's plot as a table: of the requests that ended in
// some seconds, how many were broken.
func (s *Scaling) printSeconds(w io.Writer, r *Result) error {
	fmt.Fprintln(w, "\nlab: broken requests / all that ended, by the time of their end")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	title, last := "seconds", 0
	for _, run := range r.Runs {
		title += "\t" + run.simulated()
		for n, second := range s.PerSecond[run.Name()] {
			if second.Broken > 0 {
				last = max(last, n)
			}
		}
	}
	fmt.Fprintln(t, title+"\t")
	for from := 0; from <= last; from += secondsTogether {
		fmt.Fprintf(t, "%d to %d", from, from+secondsTogether)
		for _, run := range r.Runs {
			ends := sum(s.PerSecond[run.Name()], from, from+secondsTogether)
			fmt.Fprintf(t, "\t%d/%d", ends.Broken, ends.Broken+ends.Completed)
		}
		fmt.Fprintln(t, "\t")
	}
	return t.Flush()
}

// sum adds up the seconds from one to before another, as far as there are any.
func sum(list []Second, from, to int) (ends Second) {
	for n := from; n < min(to, len(list)); n++ {
		ends.Completed, ends.Broken = ends.Completed+list[n].Completed, ends.Broken+list[n].Broken
	}
	return ends
}

func percent(part, whole int) string {
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(max(1, whole)))
}
