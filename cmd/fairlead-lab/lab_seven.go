package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/sevenpaths"
)

func newLabSevenPaths() *cobra.Command {
	var o sevenpaths.Options
	var output, rate string
	c := &cobra.Command{
		Use:   "seven-paths",
		Short: "Multipath TCP over seven links, with chosen and with random ports",
		Long: `Builds the testbed of CFLB's paper in network namespaces: a client, a server, two
routers ('fairlead router') with seven links of limited rate between them, and
'fairlead mptcp' at the client. Real connections of Multipath TCP send with one to
seven subflows, with chosen and with random ports; then to a server that has
two such links. Goodput is in units of what TCP gets over one link.

Exit status 1 if not all links carry a subflow in every run with as many chosen
subflows as links, or if goodput is less than 6.3 times one link (of seven), or 1.9
times (of two). It needs root, and takes six minutes with 50 runs, two with one.`,
		Example: "  fairlead lab run seven-paths\n  fairlead lab run seven-paths --runs 400 --rate 100Mbit -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if o.Rate, err = topology.ParseRate(rate); err != nil {
				return cli.Usagef("--rate %q: %w; such as 20Mbit", rate, err)
			}
			drawSeed(cmd, &o.Seed)
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(text string) { fmt.Fprintln(out, text) }
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := sevenpaths.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "testbed", err)
			}
			return tell(cmd, output, result.Head, result, result.PrintResult)
		},
	}
	c.Flags().IntVar(&o.Runs, "runs", sevenpaths.DefaultRuns, fmt.Sprintf("runs with seven subflows, for each kind of ports, 1 to %d", sevenpaths.MostRuns))
	c.Flags().StringVar(&rate, "rate", "20Mbit", "rate of each link, 1Mbit to 200Mbit")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
