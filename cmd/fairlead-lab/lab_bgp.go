package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab/announced"
)

func newLabBGP() *cobra.Command {
	var o announced.Options
	var output string
	c := &cobra.Command{
		Use:   "bgp",
		Short: "Balancers announce their VIPs to BIRD and FRR, and stop, die and come back",
		Long: `Builds a lab whose router has no routes to the VIPs but those that the balancers
announce by BGP, to BIRD and then to FRR. All servers fail their checks and are well
again; then, while connections go on, a balancer is told to stop, starts again, is
killed and comes back within graceful restart.

Exit status 1 if a withdrawn route stays in the router's kernel for more than a
second, a route goes away while the balancer that announced it is killed and comes
back, or a connection breaks. It needs root, bird2 and frr, and takes a minute.`,
		Example: "  fairlead lab run bgp\n  fairlead lab run bgp --router bird -o json",
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
			result, err := announced.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().StringSliceVar(&o.Routers, "router", nil, "what the router runs, comma-separated: bird, frr (default both)")
	c.Flags().StringVar(&o.Scheme, "scheme", "cheetah", "scheme of the VIP: cheetah, or faild, whose switches announce it")
	c.Flags().IntVar(&o.Connections, "connections", 64, "connections at a time, 1 to 1024")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
