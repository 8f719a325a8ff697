package tracking

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fairlead/fairlead/sim"
)

// Print writes the table of the slides, with others' figures below ours.
func (r *JetTraceResult) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n", r.Machine)
	fmt.Fprintf(out, "trace: %s · %s packets, %s flows", r.Trace, sim.Grouped(float64(r.Packets), 0), sim.Grouped(float64(r.Flows), 0))
	if r.Skipped > 0 {
		fmt.Fprintf(out, " (%d of the capture's packets are no TCP or UDP, or malformed)", r.Skipped)
	}
	fmt.Fprintf(out, "\n%s · %d passes each, the best of every part · one thread, its processor time · mean ± deviation over seeds\n", seedsText(r.Seeds), r.Passes)
	if r.Native {
		fmt.Fprintln(out, "hashes are looked up as objects, not as the program's tables")
	}
	for i, c := range r.Cases {
		if i == 0 || r.Cases[i-1].Servers != c.Servers {
			fmt.Fprintln(out)
			if err := r.printServers(out, c.Servers, c.Horizon); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *JetTraceResult) printServers(out io.Writer, servers, horizon int) error {
	fmt.Fprintf(out, "n = %d, horizon %d\n", servers, horizon)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "hash\tscheme\toversubscription\ttracked\tshare\tMpps\tspread\tto full CT\ttables KiB\tflow table KiB\t")
	for _, c := range r.Cases {
		if c.Servers != servers {
			continue
		}
		if c.NotApplicable != "" {
			fmt.Fprintf(w, "%s\t%s\tnot applicable\t\t\t\t\t\t\t\t\n", c.Hash, c.Scheme)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f %%\t%s\t%.1f–%.1f\t%s\t%d\t%d\t\n", c.Hash, c.Scheme, c.Oversubscription.Text(3), c.Tracked.Text(0),
			100*c.Share.Mean, c.Mpps.Text(1), c.Passes.Min, c.Passes.Max, r.ratioText(c), (c.TableBytes+512)/1024, (c.FlowTableBytes+512)/1024)
	}
	if servers == reportedServers {
		for _, n := range r.Noted {
			over, tracked := "", ""
			if n.Oversubscription > 0 {
				over = sim.Grouped(n.Oversubscription, 3)
			}
			if n.Tracked > 0 {
				tracked = sim.Grouped(n.Tracked, 0)
			}
			fmt.Fprintf(w, "%s\t%s, %s\t%s\t%s\t\t%s\t\t\t\t\t\n", n.Hash, n.Scheme, n.By, over, tracked, sim.Grouped(n.Mpps, 1))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cases {
		if c.Servers != servers {
			continue
		}
		if c.NotApplicable != "" {
			fmt.Fprintf(out, "%s under %s: %s\n", c.Hash, c.Scheme, c.NotApplicable)
		} else if c.Replaced.Mean+c.Refused.Mean > c.Tracked.Mean/20 {
			fmt.Fprintf(out, "%s under %s: %s entries of a pass gave way and %s were refused: lower --load\n",
				c.Hash, c.Scheme, sim.Grouped(c.Replaced.Mean, 0), sim.Grouped(c.Refused.Mean, 0))
		}
	}
	return nil
}

func (r *JetTraceResult) ratioText(c TraceCase) string {
	for _, x := range r.Ratios {
		if x.Servers == c.Servers && x.Hash == c.Hash && x.Of == c.Scheme {
			return x.Ratio.Text(2)
		}
	}
	return ""
}

// seedsText is "seed 3", "seeds 1 to 7".
func seedsText(seeds []uint64) string {
	if len(seeds) == 1 {
		return fmt.Sprintf("seed %d", seeds[0])
	}
	return fmt.Sprintf("seeds %d to %d", seeds[0], seeds[len(seeds)-1])
}
