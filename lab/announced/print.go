package announced

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fairlead/fairlead/vip"
)

// line is a step in one line.
func (s Step) line() string {
	return fmt.Sprintf("%s: the router's kernel was behind for %.1f ms", s.Name, 1000*s.Wrong)
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	fronts := "balancers"
	if vip.Scheme(r.Scheme).Row().Switched {
		fronts = "switches"
	}
	fmt.Fprintf(w, "seed %d, kernel %s, %.0f s; %d connections through two %s\n\n", r.Seed, r.Kernel, r.Seconds, r.Connections, fronts)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROUTER\tSTEP\tROUTER BEHIND FOR\tAT MOST")
	for _, run := range r.Runs {
		for _, s := range run.Steps {
			most := "-"
			if s.Most != nil {
				most = fmt.Sprintf("%.0f ms", 1000**s.Most)
			}
			fmt.Fprintf(t, "%s\t%s\t%.1f ms\t%s\n", run.Version, s.Name, 1000*s.Wrong, most)
		}
	}
	fmt.Fprintln(t, "\nROUTER\tANSWERS\tBROKEN\tLONGEST WAIT")
	for _, run := range r.Runs {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f ms\n", run.Version, run.Answers, run.Broken, 1000*run.LongestGap)
	}
	return t.Flush()
}
