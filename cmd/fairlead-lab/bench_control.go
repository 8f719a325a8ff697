package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/bench/control"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newBenchControlCommand() *cobra.Command {
	var output, part string
	o := control.Options{Servers: 32_000, Buckets: 6_400_000, Watchers: 100}
	c := &cobra.Command{
		Use:   "control",
		Short: "Measure a large change: as many servers join a VIP as it has, and all balancers watch",
		Long: `Measure what a change of a large deployment costs: a VIP of scheme beamer with
6.4 million buckets over 32,000 servers gets 32,000 more, which is two versions: all
daemons learn of the servers, then half of the buckets move.

The versions are computed here as "fairlead apply" does, and written to three
"fairlead controller" on loopback with TLS. One balancer loads its programs into a
network namespace of its own and fills their maps. 100 more fetch, verify, accept and
report as balancers do, each by its own connection, and put nothing into a kernel; they
are one process of the lowest priority and begin each version from one table, as a
hundred of them do not fit a machine. No agents run.

plan       the versions are computed
append     a version is in the store
notice to installed
           of the balancer: it hears of the version, fetches and verifies it, accepts
           it, and packets go by it
disk       since then, until it is on the balancer's disk
all        every watcher has said that it goes by it
floor      as many bytes are written to the store one value after the other

Times are in milliseconds and follow what else the machine does: the load is printed,
and the processor's time beside. It takes about a minute and 3 gigabytes of memory, and
needs root.`,
		Example: "  fairlead bench control\n  fairlead bench control --aged -o json\n  fairlead bench control --servers 1000 --buckets 100000 --watchers 10",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if part != "" {
				return control.RunPart(cmd.Context(), part, os.Stdin, cmd.OutOrStdout())
			}
			for _, f := range []struct {
				name     string
				n, least int
				most     int
			}{{"servers", o.Servers, 1, 32_767}, {"buckets", o.Buckets, 2 * o.Servers, 1 << 23}, {"watchers", o.Watchers, 0, 1000}} {
				if f.n < f.least || f.n > f.most {
					return cli.Usagef("--%s %d: must be %d to %d", f.name, f.n, f.least, f.most)
				}
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			if o.Self, err = os.Executable(); err != nil {
				return err
			}
			if o.Seed == 0 {
				o.Seed = rand.Uint64()
			}
			if cli.Terminal(os.Stderr) {
				o.Progress = func(what string) { fmt.Fprintf(os.Stderr, "\r\033[K%s", what) }
			}
			r, err := control.Run(cmd.Context(), o)
			if o.Progress != nil {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error { return controlTable(w, r) })
		},
	}
	cli.OutputFlag(c, &output)
	c.Flags().IntVar(&o.Servers, "servers", o.Servers, "servers before the change; as many join")
	c.Flags().IntVar(&o.Buckets, "buckets", o.Buckets, "buckets of the VIP")
	c.Flags().IntVar(&o.Watchers, "watchers", o.Watchers, "balancers that watch beside the one with maps; 0: it is alone")
	c.Flags().BoolVar(&o.Aged, "aged", false, "begin with a table after a long life: any bucket anywhere, with chains of every length")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "seed of an aged table (default random; it is printed)")
	c.Flags().StringVar(&part, "part", "", "")
	_ = c.Flags().MarkHidden("part")
	return c
}

func controlTable(out io.Writer, r *control.Result) error {
	mb := func(n uint64) float64 { return float64(n) / 1e6 }
	table := "a new table"
	if r.Aged {
		table = fmt.Sprintf("an aged table, seed %d", r.Seed)
	}
	fmt.Fprintf(out, "kernel %s · load %s · %d → %d servers, %d buckets (%s), %d watchers\n\n", r.Kernel, r.Load, r.Servers, r.After, r.Buckets, table, r.Watchers)
	fmt.Fprintf(out, "controller to store %.0f ms (plan %.0f; its processor time %.0f); floor %.0f ms\n\n", r.StoreMS, r.PlanMS, r.CPUMS, r.FloorMS)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "version\t\tappend ms\tnotice to installed ms\tfetch\tread\taccept\tapply\ttables\tways\tlines\tfill\tcpu ms\tread\tdisk ms\tMB a balancer\tall ms\ta watcher's cpu ms\t")
	for _, v := range r.Versions {
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t\n", v.Version, v.What, v.AppendMS, v.InForceMS,
			v.FetchMS, v.ReadMS, v.AcceptMS, v.ApplyMS, v.PlanMS, v.WaysMS, v.LinesMS, v.FillMS, v.CPUMS, v.ReadCPUMS, v.DiskMS, mb(v.ReadBytes), v.AllMS, v.WatcherCPUMS)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nthis process had at most %.0f MB\n", mb(r.PlannerBytes))
	for i := range r.NodeBytes {
		fmt.Fprintf(out, "controller %d has %.0f MB, at most %.0f, and %.0f on disk\n", i+1, mb(r.NodeBytes[i]), mb(r.NodePeakBytes[i]), mb(r.NodeDiskBytes[i]))
	}
	return nil
}
