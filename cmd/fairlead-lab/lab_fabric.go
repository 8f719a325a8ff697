package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/steered"
)

func newLabFabric() *cobra.Command {
	var o steered.Options
	var output, rate, limit string
	c := &cobra.Command{
		Use:   "fabric",
		Short: "Steered tunnels in a leaf-spine fabric in which a link turns bad",
		Long: `Builds a leaf-spine fabric in network namespaces: two leaves, two spines, all
'fairlead router', a balancer and a client behind one leaf, servers with agents
behind the other. Connections of TCP upload through the balancer, all the time,
while the link from the first spine to the servers' leaf is degraded (limited in
rate), mended, cut and restored. Nobody tells the first leaf.

The same is done for each setting of steer. What goes over each spine is counted by
the routers; for the connections: what is acknowledged, and how long each of them
is silent.

Exit status 1 if steered tunnels take more than a second to leave the bad link, or a
connection breaks or is silent for more than two seconds; or if nothing is silent
that is not steered, for then the run proves nothing. It needs root, and takes
about a minute.`,
		Example: "  fairlead lab run fabric\n  fairlead lab run fabric --steer server,off -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			for _, f := range []struct {
				flag, text string
				to         *int
			}{{"rate", rate, &o.ConnectionRate}, {"limit", limit, &o.Limit}} {
				bits, err := topology.ParseRate(f.text)
				if err != nil {
					return cli.Usagef("--%s %q: %v; write bit/s such as 400kbit or 1Mbit", f.flag, f.text, err)
				}
				*f.to = int(bits)
			}
			drawSeed(cmd, &o.Seed)
			if err := steered.CheckOptions(o); err != nil {
				return cli.Usagef("%v", err)
			}
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(text string) { fmt.Fprintln(out, text) }
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := steered.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "fabric", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().StringSliceVar(&o.Steer, "steer", nil, "settings to compare, comma-separated: off, server, connection (default connection,off)")
	c.Flags().IntVar(&o.Servers, "servers", 3, "servers behind the VIP, 1 to 16")
	c.Flags().IntVar(&o.Connections, "connections", 24, "connections at a time, 2 to 256")
	c.Flags().StringVar(&rate, "rate", "400kbit", "what each connection uploads")
	c.Flags().StringVar(&limit, "limit", "1Mbit", "rate of the degraded link")
	c.Flags().DurationVar(&o.Phase, "phase", 0, "how long each phase lasts, 2s to 1m (default 5s)")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the fabric there if the run fails")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
