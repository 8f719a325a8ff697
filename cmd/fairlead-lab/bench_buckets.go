package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/bench"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newBenchBucketsCommand() *cobra.Command {
	var output string
	o := bench.BucketsOptions{Runs: 5}
	c := &cobra.Command{
		Use:   "buckets",
		Short: "Measure what it costs to change the bucket table of a large VIP",
		Long: `Measure what it costs to change the bucket table of a VIP of scheme beamer or
faild, on one core, by pure computation: nothing is loaded and no root needed.

double      32,000 servers get 32,000 more, 6.4 million buckets, a new table
double-aged the same table after a long life: any bucket anywhere, moved at any
            time of the last day, with chains of every length
largest-…   32,767 servers get as many more and one, 8,388,608 buckets (the most
            servers and buckets that there can be)
one-aged    63,999 servers get one more
drain-aged  one of 64,000 servers drains

assign      which buckets move
apply       the table after it
effective   a daemon takes the table over: health, chains, agents' reports
idle        the same again, nothing having changed
delta       what to hand out is made, and written to a file
read        the delta is read from the file and makes the new table of the old

minimal     an aged table's way to one contiguous range a server, in steps that
            change no server's load

Times are the fastest of the runs, in milliseconds (-o json has the medians,
too); sizes are in megabytes (10^6 bytes).
It takes about half a minute and a gigabyte of memory.`,
		Example: "  fairlead bench buckets\n  fairlead bench buckets --runs 9 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Runs < 1 {
				return cli.Usagef("--runs %d: must be 1 or more", o.Runs)
			}
			if o.Seed == 0 {
				o.Seed = rand.Uint64()
			}
			if cli.Terminal(os.Stderr) {
				o.Progress = func(name string) { fmt.Fprintf(os.Stderr, "\r\033[K%s", name) }
			}
			r, err := bench.Buckets(cmd.Context(), o)
			if o.Progress != nil {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error { return bucketsTable(w, r) })
		},
	}
	cli.OutputFlag(c, &output)
	c.Flags().IntVar(&o.Runs, "runs", o.Runs, "how often each change is measured")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "seed of the aged tables (default random; it is printed)")
	return c
}

func bucketsTable(out io.Writer, r *bench.BucketsResult) error {
	fmt.Fprintf(out, "kernel %s · %s · one core · %d runs · seed %d\n\n", r.Kernel, r.CPU, r.Rounds, r.Seed)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "change\tbuckets\tservers\tmoves\tleast\tforgotten\tassign ms\tapply ms\teffective ms\tidle ms\tdelta MB\tdelta ms\tread ms\tsnapshot MB\ttable MB\tassign MB\t")
	mb := func(n int) float64 { return float64(n) / 1e6 }
	for _, c := range r.Cases {
		fmt.Fprintf(w, "%s\t%d\t%d → %d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.1f\t%.1f\t%.2f\t%.1f\t%.1f\t\n",
			c.Name, c.Buckets, c.Before, c.After, c.Moves, c.Least, c.Forgotten, c.AssignMS, c.ApplyMS, c.EffectiveMS, c.IdleMS,
			mb(c.DeltaBytes), c.DeltaMS, c.ReadMS, mb(c.SnapshotBytes), mb(c.TableBytes), mb(int(c.AssignBytes)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	m := r.Minimal
	fmt.Fprintf(out, "\nminimal: %d buckets of %d servers from %d rules to %d: %d steps of at most %d moves, %d moves, %.0f ms\n",
		m.Buckets, m.Servers, m.Before, m.After, m.Steps, m.Churn, m.Moves, m.MS)
	_, err := fmt.Fprintf(out, "at most %.0f MB resident\n", float64(r.PeakBytes)/1e6)
	return err
}
