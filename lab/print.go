package lab

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// PrintResult is the table of `lab run`.
func (r *Result) PrintResult(w io.Writer) error {
	fmt.Fprintf(w, "scenario %s, seed %d, kernel %s, %.0f s, %d changes\n\n", r.Scenario, r.Seed, r.Kernel, r.Seconds, len(r.Timeline))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scheme\tpolicy, hash\tforwarding\tfamily\tconnections\tcompleted\tlost with server\tbroken\t")
	for _, run := range r.Runs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t\n", run.Scheme, cmp.Or(run.Hash, run.Policy), run.Forwarding, run.Family,
			run.Connections, run.Completed, run.LostWithServer, run.Broken)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\n\"lost with server\" had a server that crashed; \"broken\" had one that lives.")
	for _, f := range r.Failures {
		run := r.run(f.Target)
		if run.mustHold() || r.Scenario == "control" {
			fmt.Fprintf(w, "%s: broken %.1f s after the start, aged %.1f s, %s from %s with %q: %s\n", f.Target, f.At, f.Age, f.Kind, f.Local, f.Server, f.Error)
		}
	}
	return nil
}

// run is the run of a name.
func (r *Result) run(name string) RunTally {
	for _, run := range r.Runs {
		if run.Name() == name {
			return run
		}
	}
	return RunTally{}
}

// Line is a moment of the time line as a line of text.
func (m Moment) Line() string {
	var started, alive, broken int
	for _, t := range m.Tallies {
		started, alive, broken = started+t.Started, alive+t.Alive, broken+t.Broken
	}
	return fmt.Sprintf("%5.1f s  %5d started  %4d open  %4d broken  %s", m.At, started, alive, broken, m.Text)
}
