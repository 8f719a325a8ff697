package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

func newSimWorkloads() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "workloads [NAME|FILE]",
		Short: "The workloads of the simulations; one of them, or a file of yours",
		Long: `Without an argument, lists what the simulations are run under and where it was
measured. With a name, shows that one: mean, quantiles, and a distribution's
values. With a file, reads it as the simulations do and shows what is in it:

  a distribution for --lifetimes: lines of a value and its count, or its
  probability, or the cumulated one, below a head of
      # unit: s            (ns, us, ms, s, min, h; bytes, KiB, MiB)
      # form: counts       (or probabilities, cumulated)

  a flow file, CSV: its first line names the columns start, duration (seconds),
  source, source_port, destination, destination_port, and if you like protocol
  (tcp, udp) and bytes; then a line a connection

  a capture (pcap)`,
		Example: `  fairlead sim workloads
  fairlead sim workloads web-server
  fairlead sim workloads flows.csv -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if len(args) == 0 {
				list := workload.List()
				for i := range list {
					list[i].Steps = nil
				}
				return cli.PrintAs(cmd.OutOrStdout(), output, list, func(w io.Writer) error { return printWorkloads(w, list) })
			}
			e, err := workload.Describe(args[0])
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, e, func(w io.Writer) error { return printWorkload(w, e) })
		},
	}
	cli.OutputFlag(c, &output)
	return c
}

func printWorkloads(out io.Writer, list []workload.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tKIND\tMEAN\tABOUT")
	for _, e := range list {
		mean := "-"
		if e.Unit != "" {
			mean = quantity(e.Mean, e.Unit)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Kind, mean, e.About)
	}
	return w.Flush()
}

func printWorkload(out io.Writer, e *workload.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", what, value)
		}
	}
	line("name", e.Name)
	line("kind", e.Kind)
	line("about", e.About)
	line("source", e.Source)
	line("used by", e.Use)
	if r := e.Record; r != nil {
		line("connections", sim.Grouped(float64(r.Connections), 0))
		line("span", quantity(float64(r.Span), "ns"))
		line("active", sim.Grouped(r.Active, 1)+" in the mean")
		line("skipped", sim.Grouped(float64(r.Skipped), 0)+" packets: neither TCP nor UDP, fragments, malformed")
	}
	if e.Unit != "" {
		line("mean", quantity(e.Mean, e.Unit))
	}
	for _, q := range e.Quantiles {
		line(strconv.FormatFloat(100*q.Share, 'f', -1, 64)+" %", "up to "+quantity(float64(q.Value), e.Unit))
	}
	if err := w.Flush(); err != nil || len(e.Steps) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "VALUE\tSHARE\t")
	for _, s := range e.Steps {
		fmt.Fprintf(w, "%s\t%.3f %%\t\n", quantity(float64(s.Value), e.Unit), 100*s.Share)
	}
	return w.Flush()
}

// quantity writes a duration or a size with three or more digits.
func quantity(x float64, unit string) string {
	if unit == "bytes" {
		return sim.Grouped(x, 0) + " B"
	}
	d := time.Duration(x)
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= 2*u.unit || d >= u.unit && u.unit < time.Minute {
			return strconv.FormatFloat(float64(d)/float64(u.unit), 'g', 5, 64) + " " + u.name
		}
	}
	return sim.Grouped(x, 0) + " ns"
}
