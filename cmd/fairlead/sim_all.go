package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/scenarios"
	"github.com/fairlead/fairlead/sim/show"
	"github.com/fairlead/fairlead/version"
)

func newSimAll() *cobra.Command {
	var output, report string
	var only []string
	common := sim.Common{Seed: 1}
	c := &cobra.Command{
		Use:   "all",
		Short: "Run all scenarios and write one page with every figure beside the papers'",
		Long: `Runs every scenario with its default options, one after the other, and writes
a directory with one page of HTML that needs nothing else (index.html), the same
as Markdown (README.md), every figure as SVG (figures/) and all figures as data
(results.json). Only jet-trace, which measures the machine, is left out.

Nothing is written until all have run; then the new report takes the place of
an older one in one step, so that an interruption leaves the older one as it
was. A scenario that fails is shown as failed with its error, the others run on,
and the exit status is 1.

All of them take about a quarter of an hour on two cores.`,
		Example: `  fairlead sim all --report results
  fairlead sim all --report results --only imbalance,fct --seeds 3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkOutput(output), checkAll(common, report)); err != nil {
				return err
			}
			kinds, err := chosen(only)
			if err != nil {
				return usageError{err}
			}
			return simAll(cmd, kinds, common, report, output)
		},
	}
	f := c.Flags()
	f.StringVar(&report, "report", "", "write the report to this directory; an older report there is replaced")
	f.StringSliceVar(&only, "only", nil, "these scenarios alone, comma-separated")
	commonFlags(f, &common)
	f.Lookup("seeds").Usage = "how many seeds of each scenario, from --seed on (0: as many as each has by default)"
	f.VisitAll(plainList)
	outputFlag(c, &output)
	return c
}

func checkAll(common sim.Common, report string) error {
	if common.Seeds < 0 {
		return usagef("--seeds %d: must be 1 to 10,000, or 0 for as many as each has by default", common.Seeds)
	}
	common.Seeds = max(1, common.Seeds) // each has its own
	if err := checkCommon(common); err != nil {
		return err
	}
	if report == "" {
		return usagef("--report: name the directory that the report is to be written to")
	}
	return nil
}

// chosen are the scenarios with these names, in the order of all; none: all.
func chosen(names []string) ([]sim.Kind, error) {
	all := scenarios.All()
	if len(names) == 0 {
		return all, nil
	}
	var kinds []sim.Kind
	var known []string
	for _, k := range all {
		known = append(known, k.Name)
		if slices.Contains(names, k.Name) {
			kinds = append(kinds, k)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("--only %s: there is no such scenario; there are %s", n, strings.Join(known, ", "))
		}
	}
	return kinds, nil
}

func simAll(cmd *cobra.Command, kinds []sim.Kind, common sim.Common, report, output string) (err error) {
	place, err := show.NewPlace(report)
	if err != nil {
		return usagef("--report %w", err)
	}
	defer func() { err = errors.Join(err, place.Discard()) }()
	done := func() {}
	entries, err := scenarios.Run(cmd.Context(), kinds, scenarios.Options{
		Seed: common.Seed, Seeds: common.Seeds, Workers: common.Workers,
		Begin: func(i, n int, k sim.Kind) (progress func(share float64)) {
			progress, done = simProgress(fmt.Sprintf("%d of %d, %s", i+1, n, k.Name))
			return progress
		},
		End: func(e show.Entry) {
			done()
			if output == "table" {
				fmt.Fprintln(cmd.OutOrStdout(), entryLine(e))
			}
		},
	})
	if err != nil { // nothing else ends a run of all
		done()
		return errors.New("interrupted: no report was written, and an older one is as it was; --only and fewer --seeds take less time")
	}
	r := &show.Report{Command: allCommand(cmd), Version: version.String(), Machine: sim.ThisMachine(), Entries: entries}
	if err := place.Write(r); err != nil {
		return err
	}
	written := func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "written: %s\n", report)
		return err
	}
	return errors.Join(printAs(cmd.OutOrStdout(), output, r, written), failures(entries))
}

func entryLine(e show.Entry) string {
	if e.Error != "" {
		return e.Name + ": failed: " + e.Error
	}
	return fmt.Sprintf("%s: %d of %d statements agree", e.Name, e.Agree(), len(e.Checks()))
}

// allCommand is the command line without what no figure depends on.
func allCommand(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	for _, name := range []string{"only", "seed", "seeds"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			line += " --" + name + " " + strings.Trim(f.Value.String(), "[]")
		}
	}
	return line + " --report DIR"
}

func failures(entries []show.Entry) error {
	var names []string
	for _, e := range entries {
		if e.Error != "" {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s failed; the report says why", strings.Join(names, ", "))
}
