package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab/held"
)

func newLabL2() *cobra.Command {
	var o held.Options
	var output string
	c := &cobra.Command{
		Use:   "l2-vip",
		Short: "Balancers hold their VIPs' addresses on an Ethernet, and stop, die and come back",
		Long: `Builds a lab whose client is on one Ethernet with three balancers and two servers and
finds the VIPs by ARP and neighbour discovery, once with each scheme. While connections
go on and a datagram goes to each address every 10 ms, the holder of an address is told
to stop and starts again, another is killed and comes back, the store is away for longer
than leases last, and a holder loses its power and has it again.

Exit status 1 if a connection breaks, or datagrams to an address stay unanswered for
more than a second when its holder loses its power, or more than a moment when anything
else happens. It needs root, and takes two minutes.`,
		Example: "  fairlead lab run l2-vip\n  fairlead lab run l2-vip --scheme jet --seed 3 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
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
			result, err := held.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().StringSliceVar(&o.Schemes, "scheme", nil, "schemes of balancers, comma-separated, each in a lab of its own (default cheetah,jet)")
	c.Flags().IntVar(&o.Connections, "connections", 64, "connections at a time, 1 to 1024")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
