package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/draintime"
)

func newLabDrain() *cobra.Command {
	var o draintime.Options
	var output string
	c := &cobra.Command{
		Use:   "drain-time",
		Short: "How long after a drain's command the last balancer gives the server a connection",
		Long: `Builds a lab of ten balancers and two servers, to which clients open connections all
the time, and drains and undrains one of the servers. Measured is, from the start of the
command 'fairleadctl drain' to the last new connection that came to the server, by the
kernel's time of its SYN; beside it the same of 'fairlead drain', how long 'fairleadctl
version' takes here, and one put to the store.

Exit status 1 if a connection fails. It needs root, and takes about a minute.`,
		Example: "  fairlead lab run drain-time\n  fairlead lab run drain-time --drains 100 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if o.Drains < 1 || o.Drains > 10_000 {
				return cli.Usagef("--drains %d: must be 1 to 10000", o.Drains)
			}
			if o.LBs < 1 || o.LBs > lab.MaxLBs {
				return cli.Usagef("--lbs %d: must be 1 to %d", o.LBs, lab.MaxLBs)
			}
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(text string) { fmt.Fprintln(out, text) }
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := draintime.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, 0, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().IntVar(&o.Drains, "drains", 20, "how many drains, each with an undrain")
	c.Flags().IntVar(&o.LBs, "lbs", 10, "number of balancers")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	cli.OutputFlag(c, &output)
	return c
}
