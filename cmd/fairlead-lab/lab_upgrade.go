package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab/upgrade"
)

func newLabUpgrade() *cobra.Command {
	var o upgrade.Options
	var output string
	c := &cobra.Command{
		Use:   "rolling-upgrade",
		Short: "A deployment under traffic changes its program, process by process",
		Long: `Builds a lab of three controllers, two balancers and four servers that run the program
of --from, and while clients have connections has controllers, then balancers, then agents
run this one, one at a time, with a change made after each. A program of before there was
a store, which knows no controllers, has these written into its file and started first;
then each daemon changes its program, and 'fairlead apply' makes what they have the
store's first version.

Exit status 1 if a connection breaks, a change is not made, or at the end something runs
the program of before or goes by another version than the store has. It needs root, and
takes about a minute.`,
		Example: "  fairlead lab run rolling-upgrade\n  fairlead lab run rolling-upgrade --from /usr/local/bin/fairlead-before -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			drawSeed(cmd, &o.Seed)
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(text string) { fmt.Fprintln(out, text) }
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := upgrade.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().StringVar(&o.From, "from", "", "the program that everything runs at first (default: a copy of this one)")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
