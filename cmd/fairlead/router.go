//go:build !ctl

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/daemon/router"
)

func newRouterCommand() *cobra.Command {
	var f daemonFlags
	var o router.Options
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Run the daemon of a router that lets packets choose their path",
		Long: `Make this machine a router of a fabric in which packets choose their path
(CFLB): where the kernel has several equal next hops to a destination, a digit
of the packet's selector says which, and packets that select nothing spread
evenly by a hash. An XDP program beside the kernel's own forwarding does it; it
follows the kernel's routes, nexthop groups, neighbours and links, whoever
makes them (ip route, BIRD, FRR). Needs root.

fabric.yaml names the routers, the links with their port numbers, and the
selector that all routers and hosts share; see docs/router.md.

What the program does not do is left to the kernel: packets to the machine
itself, time exceeded, fragmentation, neighbours that have to be asked for.
Stopping or killing the daemon stops no packet: program and tables stay, and
the next daemon takes them over. 'fairlead unload' takes them out, and the
kernel forwards alone. SIGHUP reads the file again.`,
		Example: "  fairlead router -f fabric.yaml --name leaf1\n  fairlead router -f fabric.yaml --name leaf1 --interface eth1,eth2",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd); err != nil {
				return err
			}
			o.Name, o.StateDir, o.PinDir, o.PrivatePins, o.Log = f.options.Name, f.options.StateDir, f.options.PinDir, f.options.PrivatePins, f.options.Log
			return router.Run(cmd.Context(), o)
		},
	}
	f.addOwn(cmd)
	f.addPinDir(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "file", "f", "/etc/fairlead/fabric.yaml", "the fabric's file")
	flags.StringSliceVar(&o.Interfaces, "interface", nil, "devices that packets come in by (default: the router's interfaces in the file, else all Ethernet devices)")
	return cmd
}
