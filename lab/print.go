package lab

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// PrintResult is the table of `lab run`.
func (r *Result) PrintResult(w io.Writer) error {
	fmt.Fprintf(w, "scenario %s, seed %d, kernel %s, %.0f s, %d changes\n\n", r.Scenario, r.Seed, r.Kernel, r.Seconds, r.Runs[0].Changes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	flood := len(r.Floods) > 0
	title := "scheme\tpolicy, hash\tforwarding\tfamily\ttimestamps\tconnections\tcompleted\tsurvived\tlost with server\tbroken\tRSTs\tlate RSTs\t"
	drained := r.Runs[0].Drained != nil
	if drained {
		title = "drained\t" + title
	}
	if flood {
		title += "tracked\treplaced\tfull\t"
	}
	fmt.Fprintln(t, title)
	for _, run := range r.Runs {
		stamps := "yes"
		if run.NoTimestamps {
			stamps = "no"
		}
		if drained {
			fmt.Fprintf(t, "%d\t", *run.Drained)
		}
		scheme := run.Scheme
		switch {
		case run.Migrates:
			scheme += " migrates"
		case run.Anew:
			scheme += " anew"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t", scheme, cmp.Or(run.Hash, run.Policy, "-"), run.Forwarding, run.Family,
			stamps, run.Connections, run.Completed, run.Survived, run.LostWithServer, run.Broken, run.Resets, run.LateResets)
		if flood {
			fmt.Fprintf(t, "%d\t%d\t%d\t", run.Tracked, run.FlowReplaced, run.FlowFull)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, print := range []func(io.Writer) error{r.printFlood, r.printHandshakes, r.printAttacks, r.printChain, r.printDrains, r.printPartitions, r.printScaling} {
		if err := print(w); err != nil {
			return err
		}
	}
	printCounters(w, "kernel counters of the client", r.Counters["client"])
	printCounters(w, "kernel counters of the servers", r.Counters["servers"])
	printCounters(w, "agents' counters", r.Reasons)
	fmt.Fprintln(w, "\n\"survived\" lived through a change; \"lost with server\" had a server that crashed; \"broken\" had one that lives, as had who got RSTs.")
	if r.WithoutGuards { // which are meant to be many
		return nil
	}
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

// printChain tells what scenario chain found.
func (r *Result) printChain(w io.Writer) error {
	if len(r.Chain) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nopened on\tbuckets reassigned since\tconnections\tcompleted\tbroken\tRSTs\t")
	for _, s := range r.Chain {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", s.Server, s.Reassigned, s.Tally.Started, s.Tally.Completed, s.Tally.Broken, s.Tally.Resets+s.Tally.LateResets)
	}
	fmt.Fprintln(t, "\ndetour of\trounds\tdirect µs\tby one previous server µs\tadded µs (median)\tadded µs (p95)\t\t")
	for _, d := range r.Detours {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t\n", d.Run, d.Rounds, d.DirectUs, d.DetourUs, d.AddedUs, d.AddedP95Us, d.note(d.AddedUs))
	}
	return t.Flush()
}

// printDrains tells what scenario drain-switch counted.
func (r *Result) printDrains(w io.Writer) error {
	if len(r.Drains) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	change := ""
	for _, d := range r.Drains {
		if d.Change != change {
			change = d.Change
			fmt.Fprintf(t, "\n%s\n  scheme\tflows\ton the server\tothers moved\tswitches differ\tbroken so far\tlost so far\n", change)
		}
		fmt.Fprintf(t, "  %s\t%d\t%d\t%d\t%d\t%d\t%d\n", d.Run, d.Flows, d.OnServer, d.Moved, d.SwitchesDiffer, d.Broken, d.LostWithServer)
	}
	for _, p := range r.Repoints {
		fmt.Fprintf(t, "\n%d nexthops repointed in %.2f ms (median of %d rounds, the fastest of %d blocks), %.2f ms (p95), %.2f ms at most %s\n", p.Nexthops, p.MedianMs, p.Rounds, p.Blocks, p.P95Ms, p.MaxMs, p.note(p.P95Ms))
	}
	return t.Flush()
}

// printCounters is one line of what moved.
func printCounters(w io.Writer, title string, c Counters) {
	if len(c) == 0 {
		return
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		words = append(words, fmt.Sprint(name, " ", c[name]))
	}
	fmt.Fprintf(w, "\n%s: %s\n", title, strings.Join(words, ", "))
}

// run is the run of a name.
func (r *Result) run(name string) RunTally {
	if i := slices.IndexFunc(r.Runs, func(run RunTally) bool { return run.Name() == name }); i >= 0 {
		return r.Runs[i]
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
