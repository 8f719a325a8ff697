package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/bench"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newBenchCommand() *cobra.Command {
	var output string
	var list bool
	o := bench.Options{Rounds: 15}
	c := &cobra.Command{
		Use: "bench",
		Long: `Measure what a packet costs in the loaded programs, in nanoseconds, next to a
floor program that does the least any balancer does: parse IPv4 and TCP, VIP in
a BPF hash map, hash of the tuple, a table of 65,537 entries, a per-CPU
counter, IPIP. Test runs only: no interface is touched and no traffic sent.

What the measuring loop costs is measured in the same rounds and subtracted.
The ratio is to the case in the last column, which is "floor" for all but the
router's; "at most" is what it shall be on a machine that does nothing else, for
the cases that have a bound. Nothing is judged by
it: the exit status is 0 whatever was measured. Names end in -1 for one flow and
-1m for a million flows in turn; the others run a million, but jet-tracked 1,024.

It takes about 2 minutes on a machine of two cores that does nothing else, and
prints its table at the end. Ctrl-C or SIGTERM ends it with what the rounds so
far say. Fewer cases (--cases) take less; --list names them.

The jet cases have 500 servers and 50 in the horizon, on 65,536 rows or on 600
buckets of anchor, and a flow table of the default size, half full; jet-known
runs connections that nobody tracks, jet-tracked such as have an entry, jet-new
all, of which the eleventh that the horizon would take gets one. full-ct has a
table with room for four million flows.

The beamer cases have 100 servers on 4,096 buckets, none of which has moved, or
all (beamer-known-moved); those that end in -6m have 6.4 million, a third of
which has moved: beamer-known-6m runs connections of the others,
beamer-known-6m-moved all. They read memory that no cache holds, so that they
follow what else the machine does.

The host-in and host-out cases are a server's: of scheme cheetah, with -ts1 where
sockets are asked for their timestamp offset; of scheme beamer host-in-settled,
where nothing is asked, host-in-owned, where a socket is found for each packet,
and host-forward, to the previous server. The answer that a connection is not
here is kept for a second; host-forward-first is what the first packet costs.

The router cases are of "fairlead router": one of 64 routes, with four next hops,
for a million flows that nobody steered, and under radix 16. router-hash chooses
by its hash alone and is what the others are compared with: router-cflb reads
selectors behind our permutation (-steered: of flows that all select a hop),
router-rc5 and router-skip32 behind the paper's ciphers.

What it costs to change a bucket table is measured by "fairlead bench buckets";
"fairlead bench fig5" repeats figure 5 of Cheetah's paper.`,
		Example: "  fairlead bench\n  fairlead bench --list\n  fairlead bench --cases novip,cheetah-known-1m -o json\n  fairlead bench --cases router-cflb,router-rc5,router-skip32",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(bench.Names(), "\n"))
				return err
			}
			if err := bench.Known(o.Only); err != nil {
				return cli.Usage(err)
			}
			if o.Rounds < bench.MinRounds {
				return cli.Usagef("--rounds %d: a median needs at least %d", o.Rounds, bench.MinRounds)
			}
			// A round of all cases takes 8 s.
			about := fmt.Sprintf("about %.0f minutes on two cores", max(2, float64(o.Rounds)*8/60))
			if len(o.Only) > 0 {
				about += " for all cases, less for some"
			}
			if !cli.Terminal(os.Stderr) {
				about += "; nothing is printed until the end"
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "fairlead bench:", about)
			if cli.Terminal(os.Stderr) {
				fmt.Fprint(os.Stderr, "loading programs and flows")
				o.Progress = func(round int) {
					if round == 0 {
						fmt.Fprint(os.Stderr, "\r\033[Kwarming up")
						return
					}
					fmt.Fprintf(os.Stderr, "\r\033[Kround %d of %d", round, o.Rounds)
				}
			}
			r, err := bench.Run(cmd.Context(), o)
			if o.Progress != nil {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			if r == nil {
				return err
			}
			// An interrupted run has a result, too: of its whole rounds.
			return errors.Join(cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error { return benchTable(w, r) }), err)
		},
	}
	c.AddCommand(newBenchBucketsCommand(), newBenchControlCommand(), newBenchFig5Command())
	cli.OutputFlag(c, &output)
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often every case is measured (at least 10)")
	c.Flags().StringSliceVar(&o.Only, "cases", nil, "cases to measure beside those they are compared with (default all; --list names them)")
	c.Flags().BoolVar(&list, "list", false, "print the names of the cases and measure nothing")
	return c
}

func benchTable(out io.Writer, r *bench.Result) error {
	fmt.Fprintf(out, "kernel %s · %s · %d rounds · nanoseconds a packet, the loop subtracted\n\n", r.Kernel, r.CPU, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\tns\tmin\tmax\tratio\tat most\tto\t")
	for _, c := range r.Cases {
		bound := ""
		if c.Bound > 0 {
			bound = fmt.Sprint(c.Bound)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f\t%s\t%s\t\n", c.Name, c.NS, c.Min, c.Max, c.Ratio, bound, c.Floor)
	}
	return w.Flush()
}
