package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim/tracking"
)

func newSimCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sim",
		Short: "Repeat the papers' simulations with the program's own hashes and tables",
		Long: `Simulations of the papers, run on the hashes and the flow table that the
program itself uses. Nothing of the system is touched and no root is needed.
Each prints its seeds; the same seed gives the same figures, measured rates
excepted.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: cobra.NoArgs,
	}
	c.AddCommand(newSimJetTrace(), newSimJetEvents())
	return c
}

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
			if err := errors.Join(checkOutput(output), checkPlot(plot)); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			if capture != "" {
				for _, flag := range []string{"flows", "packets", "zipf"} {
					if cmd.Flags().Changed(flag) {
						return usagef("--%s: a capture (--pcap) has its own", flag)
					}
				}
				var err error
				if o.Capture, err = readCapture(capture); err != nil {
					return err
				}
			}
			var done func()
			o.Progress, done = traceProgress()
			r, err := tracking.JetTrace(cmd.Context(), o)
			done()
			if err != nil {
				return interrupted(err)
			}
			return errors.Join(printAs(cmd.OutOrStdout(), output, r, r.Print), writePlot(plot, r.Plot))
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
	f.Float64Var(&o.Load, "load", o.Load, "entries for each bucket of the flow table, which holds seven")
	f.BoolVar(&o.Native, "native", false, "look hashes up as objects (ring's tree, hrw's race), not as the program's tables")
	f.BoolVar(&o.Plain, "plain", false, "also full-ct over a plain open-addressing table, to measure full-ct's own table by")
	f.StringVar(&plot, "plot", "", "write the rates to this file, an SVG")
	outputFlag(c, &output)
	return c
}

func newSimJetEvents() *cobra.Command {
	var output, hash string
	o := tracking.DefaultJetEvents()
	c := &cobra.Command{
		Use:   "jet-events",
		Short: "JET's event simulation: connections broken by failing servers",
		Long: `JET's event simulation ("PCC Violations" of its slides): connections arrive and
end, servers fail and come back, and the tracking table has room for a share of
the active connections. A connection is broken when a packet of it goes to
another server than its first: looked for after every change and at its end.
Connections of the failed server itself do not count.

Which entry gives way when the table is full (--evict): "rank" asks the hash.
Entries that it says nothing new with go first, then those that only a standby
server would take, then those that a failed server would take when it is back;
entries that alone hold a connection never go, and none goes for an entry of
its own rank. "state" is the program's own flow table, which knows no ranks:
what fades or is new goes, a confirmed connection never. "lru" takes the one
used longest ago.`,
		Example: `  fairlead sim jet-events
  fairlead sim jet-events --scheme full-ct --seeds 7 -o json
  fairlead sim jet-events --kills 40 --ratio 0.25 --active 100000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Hash = chash.Kind(hash)
			if err := checkOutput(output); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			done := func() {}
			if terminal(os.Stderr) {
				o.Progress = func(run, runs int, share float64) {
					fmt.Fprintf(os.Stderr, "\r\033[Krun %d of %d: %.0f %%", run, runs, 100*share)
				}
				done = func() { fmt.Fprint(os.Stderr, "\r\033[K") }
			}
			r, err := tracking.JetEvents(cmd.Context(), o)
			done()
			if err != nil {
				return interrupted(err)
			}
			return printAs(cmd.OutOrStdout(), output, r, r.Print)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Scheme, "scheme", o.Scheme, "jet, full-ct or stateless")
	f.StringVar(&hash, "hash", string(o.Hash), "consistent hash: "+strings.Join(kindNames(chash.Kinds()), ", "))
	f.IntVar(&o.Servers, "servers", o.Servers, "servers that work at first")
	f.IntVar(&o.Horizon, "horizon", o.Horizon, "servers in the horizon")
	f.IntVar(&o.Seconds, "seconds", o.Seconds, "simulated seconds")
	f.IntVar(&o.Active, "active", o.Active, "connections that live at a time in the mean")
	f.Float64Var(&o.Kills, "kills", o.Kills, "servers that fail a minute, in the mean")
	f.Float64Var(&o.Ratio, "ratio", o.Ratio, "entries of the tracking table for each active connection")
	f.StringVar(&o.Evict, "evict", "", "what gives way when the table is full: rank (default of jet), state or lru (default of full-ct)")
	f.IntVar(&o.WarmUp, "warm-up", o.WarmUp, "seconds that a server is in the horizon before it works, if it had fallen out")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "how many seeds, from --seed on")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "first seed")
	outputFlag(c, &output)
	return c
}

// interrupted says what a Ctrl-C meant.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: no run was whole; fewer --seeds take less time")
	}
	return err
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
	if !terminal(os.Stderr) {
		return nil, func() {}
	}
	return func(step, steps int, what string) {
		fmt.Fprintf(os.Stderr, "\r\033[K%d %% · %s", 100*step/steps, what)
	}, func() { fmt.Fprint(os.Stderr, "\r\033[K") }
}

func readCapture(file string) (*tracking.Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := tracking.ReadTrace(f, filepath.Base(file))
	if err != nil {
		return nil, fmt.Errorf("--pcap %s: %w", file, err)
	}
	return t, nil
}

// checkPlot refuses a --plot that cannot be written, before anything is done.
func checkPlot(file string) error {
	if file == "" {
		return nil
	}
	if !strings.EqualFold(filepath.Ext(file), ".svg") {
		return usagef("--plot %q: must be named *.svg, as it is one", file)
	}
	if dir := filepath.Dir(file); !isDirectory(dir) {
		return usagef("--plot %q: there is no directory %q; make it first", file, dir)
	}
	return nil
}

func isDirectory(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// writePlot draws to memory first, so that an error leaves no half file.
func writePlot(file string, draw func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
