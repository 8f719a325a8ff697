package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/scenarios"
	"github.com/fairlead/fairlead/sim/show"
	"github.com/fairlead/fairlead/version"
)

func newSimAll() *cobra.Command {
	var output, report string
	var only, renew []string
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

With --renew, the scenarios that it names are run, and what an older report has
of all others is kept as it is.

All of them take about 20 minutes on two cores.`,
		Example: `  fairlead sim all --report results
  fairlead sim all --report results --only imbalance,fct --seeds 3
  fairlead sim all --report results --renew fat-tree`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cli.CheckOutput(output), checkAll(common, report)); err != nil {
				return err
			}
			names, flag := only, "--only"
			if len(renew) > 0 && len(only) > 0 {
				return cli.Usagef("--only and --renew: give one of them: --renew keeps what an older report has of the other scenarios, --only does not")
			}
			if len(renew) > 0 {
				names, flag = renew, "--renew"
			}
			kinds, err := chosen(flag, names)
			if err != nil {
				return cli.Usage(err)
			}
			kept, err := keptBy(report, renew)
			if err != nil {
				return err
			}
			return simAll(cmd, kinds, kept, common, report, output)
		},
	}
	f := c.Flags()
	f.StringVar(&report, "report", "", "write the report to this directory; an older report there is replaced")
	f.StringSliceVar(&only, "only", nil, "these scenarios alone, comma-separated")
	f.StringSliceVar(&renew, "renew", nil, "run these scenarios alone, comma-separated, and keep what the older report has of the others")
	commonFlags(f, &common)
	f.Lookup("seeds").Usage = "how many seeds of each scenario, from --seed on (0: as many as each has by default)"
	f.VisitAll(plainList)
	cli.OutputFlag(c, &output)
	return c
}

func checkAll(common sim.Common, report string) error {
	if common.Seeds < 0 {
		return cli.Usagef("--seeds %d: must be 1 to 10,000, or 0 for as many as each has by default", common.Seeds)
	}
	common.Seeds = max(1, common.Seeds) // each has its own
	if err := checkCommon(common); err != nil {
		return err
	}
	if report == "" {
		return cli.Usagef("--report: name the directory that the report is to be written to")
	}
	return nil
}

// chosen are the scenarios with these names, of a flag, in the order of all;
// none: all.
func chosen(flag string, names []string) ([]sim.Kind, error) {
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
			return nil, fmt.Errorf("%s %s: there is no such scenario; there are %s", flag, n, strings.Join(known, ", "))
		}
	}
	return kinds, nil
}

// keptBy are the older report's entries of scenarios that are not renewed.
func keptBy(report string, renewed []string) (kept []show.Entry, err error) {
	if len(renewed) == 0 {
		return nil, nil
	}
	older, err := show.ReadReport(report)
	if err != nil {
		return nil, cli.Usagef("--renew: %w; run all scenarios first", err)
	}
	for _, e := range older.Entries {
		if !slices.Contains(renewed, e.Name) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// inOrder are entries in the order of all scenarios, as those are told now; of
// scenarios that there are no more, none.
func inOrder(entries []show.Entry) (all []show.Entry) {
	for _, k := range scenarios.All() {
		for _, e := range entries {
			if e.Name == k.Name {
				e.Short, e.Long = k.Short, k.Long
				all = append(all, e)
			}
		}
	}
	return all
}

func simAll(cmd *cobra.Command, kinds []sim.Kind, kept []show.Entry, common sim.Common, report, output string) (err error) {
	place, err := show.NewPlace(report)
	if err != nil {
		return cli.Usagef("--report %w", err)
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
	all := inOrder(append(kept, entries...))
	r := &show.Report{Command: allCommand(cmd, all), Version: version.String(), Machine: sim.ThisMachine(), Entries: all}
	if err := place.Write(r); err != nil {
		return err
	}
	written := func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "written: %s\n", report)
		return err
	}
	return errors.Join(cli.PrintAs(cmd.OutOrStdout(), output, r, written), failures(entries))
}

func entryLine(e show.Entry) string {
	if e.Error != "" {
		return e.Name + ": failed: " + e.Error
	}
	return fmt.Sprintf("%s: %d of %d statements agree", e.Name, e.Agree(), len(e.Checks()))
}

// allCommand is the command line without what no figure depends on. A report that
// was renewed in part is as one of all its scenarios, made at once.
func allCommand(cmd *cobra.Command, entries []show.Entry) string {
	line := cmd.CommandPath()
	if cmd.Flags().Changed("renew") && len(entries) < len(scenarios.All()) {
		var names []string
		for _, e := range entries {
			names = append(names, e.Name)
		}
		line += " --only " + strings.Join(names, ",")
	}
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
