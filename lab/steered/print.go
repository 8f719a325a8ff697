package steered

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// line is a phase in one line.
func (p *Phase) line() string {
	var spines []string
	for _, s := range p.Spines {
		spines = append(spines, fmt.Sprintf("%s %d packets", s.Name, s.Packets))
	}
	left := ""
	switch {
	case p.LeftAfter == nil:
	case *p.LeftAfter < 0:
		left = ", not left"
	default:
		left = fmt.Sprintf(", left after %.2f s", *p.LeftAfter)
	}
	return fmt.Sprintf("  %s, %.1f s: %s%s; %.1f Mbit/s, longest silence %.2f s, %d stalled", p.Name, p.Seconds, strings.Join(spines, ", "), left,
		p.Goodput/1e6, p.LongestGap, p.Stalled)
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "seed %d, kernel %s, %.0f s\n", r.Seed, r.Kernel, r.Seconds)
	fmt.Fprintf(w, "%d connections of %g Mbit/s to %d servers; link %s of %s is limited to %g Mbit/s, later cut\n\n",
		r.Connections, float64(r.ConnectionRate)/1e6, r.Servers, r.Link, r.BadSpine, float64(r.Limit)/1e6)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "STEER\tPHASE\tSECONDS"
	for _, s := range spines {
		head += "\tTO " + strings.ToUpper(s) + "\tSELECTED\tPASSED ON"
	}
	fmt.Fprintln(t, head+"\tLEFT AFTER\tMBIT/S\tSILENCE\tSTALLED\tBROKEN\tMOVED")
	for _, run := range r.Runs {
		for i, p := range run.Phases {
			fmt.Fprintf(t, "%s\t%s\t%.1f", run.Steer, p.Name, p.Seconds)
			for _, s := range p.Spines {
				fmt.Fprintf(t, "\t%d\t%d\t%d", s.Packets, s.Selected, s.Forwarded)
			}
			left := "-"
			if p.LeftAfter != nil {
				if left = "never"; *p.LeftAfter >= 0 {
					left = fmt.Sprintf("%.2f s", *p.LeftAfter)
				}
			}
			end := "\t\t"
			if i == len(run.Phases)-1 {
				end = fmt.Sprintf("\t%d\t%d", run.Broken, run.Moved)
			}
			fmt.Fprintf(t, "\t%s\t%.1f\t%.2f s\t%d%s\n", left, p.Goodput/1e6, p.LongestGap, p.Stalled, end)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, run := range r.Runs {
		for _, f := range run.Failures {
			fmt.Fprintf(w, "steer %s: broken: %s\n", run.Steer, f)
		}
	}
	_, err := fmt.Fprintf(w, `
TO        packets from leaf1 to this spine; SELECTED those whose fields say so; PASSED ON by the spine to leaf2 (read a moment later)
LEFT AFTER from the fault to the last tunnel's packet to the bad spine; SILENCE the longest pause of any connection
STALLED   connections silent for two seconds and more; MOVED parts of servers' connections (64 a server) put on another path

%s
`, r.verdict())
	return err
}

func (r *Result) verdict() string {
	if len(r.Verdict) > 0 {
		return "not as it must be: " + strings.Join(r.Verdict, "; ")
	}
	return "all is as it must be"
}
