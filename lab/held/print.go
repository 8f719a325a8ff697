package held

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// line is a step in one line.
func (s Step) line() string {
	return fmt.Sprintf("%s: %d addresses moved, datagrams lost for %.0f ms", s.Name, s.Moved, 1000*s.Lost)
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "seed %d, kernel %s, %.0f s; %d connections, and a datagram every %v to each of %d addresses, through three balancers\n\n", r.Seed, r.Kernel, r.Seconds, r.Connections, every, len(addresses))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCHEME\tSTEP\tMOVED\tLOST FOR\tAT MOST")
	for _, run := range r.Runs {
		for _, s := range run.Steps {
			fmt.Fprintf(t, "%s\t%s\t%d\t%.0f ms\t%.0f ms\n", run.Scheme, s.Name, s.Moved, 1000*s.Lost, 1000*s.Most)
		}
	}
	fmt.Fprintln(t, "\nSCHEME\tANSWERS\tBROKEN\tLONGEST WAIT")
	for _, run := range r.Runs {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f ms\n", run.Scheme, run.Answers, run.Broken, 1000*run.LongestGap)
	}
	return t.Flush()
}
