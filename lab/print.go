package lab

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// PrintResult is the table of `lab run`.
func (r *Result) PrintResult(w io.Writer) error {
	fmt.Fprintf(w, "scenario %s, seed %d, kernel %s, %.0f s, %d changes\n\n", r.Scenario, r.Seed, r.Kernel, r.Seconds, r.Runs[0].Changes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	flood := len(r.Floods) > 0
	title := "scheme\tpolicy, hash\tforwarding\tfamily\ttimestamps\tconnections\tcompleted\tlost with server\tbroken\t"
	if flood {
		title += "tracked\treplaced\tfull\t"
	}
	fmt.Fprintln(t, title)
	for _, run := range r.Runs {
		stamps := "yes"
		if run.NoTimestamps {
			stamps = "no"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t", run.Scheme, cmp.Or(run.Hash, run.Policy), run.Forwarding, run.Family,
			stamps, run.Connections, run.Completed, run.LostWithServer, run.Broken)
		if flood {
			fmt.Fprintf(t, "%d\t%d\t%d\t", run.Tracked, run.FlowReplaced, run.FlowFull)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.printFlood(w); err != nil {
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

// printFlood tells what a flood was and what it left in the tables.
func (r *Result) printFlood(w io.Writer) error {
	for _, f := range r.Floods {
		fmt.Fprintf(w, "\nflood: %d SYNs and %d ACKs in %.0f s, %.0f packets/s (%d not taken by the kernel)\n", f.SYNs, f.ACKs, f.Seconds, f.Rate, f.Refused)
	}
	if len(r.Tables) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nflow tables at the flood's end:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "schemes\tbalancer\tplaces\tused\tnew\tconfirmed\tfading\tdatagram\tKiB\tall maps KiB\t")
	for _, u := range r.Tables {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f %%\t%d\t%d\t%d\t%d\t%d\t%d\t\n", strings.Join(u.Schemes, ","), u.Balancer, u.Limit,
			100*float64(u.used())/float64(u.Limit), u.New, u.Confirmed, u.Fading, u.Datagram, u.FlowBytes>>10, u.MapBytes>>10)
	}
	return t.Flush()
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
