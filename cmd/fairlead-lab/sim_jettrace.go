package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/sim/tracking"
)

func newSimJetTrace() *cobra.Command {
	var output, plot, capture string
	o := tracking.DefaultJetTrace()
	hashes := kindNames(o.Hashes)
	c := &cobra.Command{
		Use:   "jet-trace",
		Short: "JET's trace benchmark: balance, tracked connections, packets a second",
		Long: `JET's trace benchmark (the table "Balance, Tracking and Rate" of its slides):
full connection tracking against JET for each hash, over a trace of 34.1 M
packets in 1.6 M flows, or over a capture.

Oversubscription is the most connections of a server divided by the mean.
Rates are of one thread and of its processor time; the tuple's hash counts.
Cases take turns pass by pass, and of a seed's passes the best counts for each
twentieth of the trace, as what else the machine does only makes it slower; the
spread of whole passes is beside it.

All cases with all seeds take about ten minutes and 1.5 GB of memory.`,
		Example: `  fairlead sim jet-trace
  fairlead sim jet-trace --n 500 --hash table-hrw,anchor --plot rates.svg -o json
  fairlead sim jet-trace --pcap capture.pcap --n 20`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Hashes = nil
			for _, h := range hashes {
				o.Hashes = append(o.Hashes, chash.Kind(h))
			}
			if err := errors.Join(cli.CheckOutput(output), cli.CheckPlot(plot)); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			if capture != "" {
				for _, flag := range []string{"flows", "packets", "zipf"} {
					if cmd.Flags().Changed(flag) {
						return cli.Usagef("--%s: a capture (--pcap) has its own", flag)
					}
				}
				var err error
				if o.Capture, err = readCapture(capture); err != nil {
					return cli.Usage(err) // as of --flows
				}
			}
			var done func()
			o.Progress, done = traceProgress()
			r, err := tracking.JetTrace(cmd.Context(), o)
			done()
			if err != nil {
				return interrupted(err)
			}
			return errors.Join(cli.PrintAs(cmd.OutOrStdout(), output, r, r.Print), cli.WritePlot(plot, r.Plot))
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Servers, "n", o.Servers, "numbers of working servers")
	f.Float64Var(&o.Horizon, "horizon", o.Horizon, "size of the horizon, as a share of the servers")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "how many seeds, from --seed on")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "first seed")
	f.Float64Var(&o.Trace.Zipf, "zipf", o.Trace.Zipf, "exponent of the flows' sizes, 0 to 4 (0: all alike)")
	f.IntVar(&o.Trace.Flows, "flows", o.Trace.Flows, "flows of the trace")
	f.IntVar(&o.Trace.Packets, "packets", o.Trace.Packets, "packets of the trace")
	f.StringVar(&capture, "pcap", "", "run over this capture's packets instead, as fast as they go")
	f.StringSliceVar(&hashes, "hash", hashes, "hashes, comma-separated")
	f.IntVar(&o.Passes, "passes", o.Passes, "passes over the trace, of each case and seed")
	f.Float64Var(&o.Load, "load", o.Load, "entries for each set of the flow table, which holds seven")
	f.BoolVar(&o.Native, "native", false, "look hashes up as objects (ring's tree, hrw's race), not as the program's tables")
	f.BoolVar(&o.Plain, "plain", false, "also full-ct over a plain open-addressing table, to measure full-ct's own table by")
	f.StringVar(&plot, "plot", "", "write the rates to this file, an SVG")
	f.VisitAll(plainList)
	cli.OutputFlag(c, &output)
	return c
}

func kindNames(kinds []chash.Kind) []string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return names
}

// traceProgress shows the steps on a terminal; done clears the line.
func traceProgress() (progress func(step, steps int, what string), done func()) {
	if !cli.Terminal(os.Stderr) {
		return nil, func() {}
	}
	return func(step, steps int, what string) {
		fmt.Fprintf(os.Stderr, "\r\033[K%d %% · %s", 100*step/steps, what)
	}, func() { fmt.Fprint(os.Stderr, "\r\033[K") }
}

func readCapture(file string) (*tracking.Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--pcap %s: %w", file, errors.Unwrap(err))
	}
	defer f.Close()
	t, err := tracking.ReadTrace(f, filepath.Base(file))
	if err != nil {
		return nil, fmt.Errorf("--pcap %s: %w", file, err)
	}
	return t, nil
}
