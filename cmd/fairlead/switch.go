//go:build !ctl

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/swtch"
)

func newSwitchCommand() *cobra.Command {
	var f daemonFlags
	var controller bool
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Run the daemon of a switch, for VIPs of scheme faild",
		Long: `Make this machine a switch for the file's VIPs of scheme faild: their routes
lead to one group of virtual nexthops, whose MAC addresses name the server
that has them and those that had them before. No balancer is needed; every
server runs 'fairlead host'. All of it is done by netlink: packets take the
kernel's own way, or that of the hardware below it. Needs root.

The bridge that the servers are on must be there; 'fairlead doctor' looks for
what else is missing. The VIPs' routes stand a second time in a routing table
of their own (177 unless the file says otherwise), for a routing daemon to
announce; 'fairlead drain SWITCH' takes them out there.

Stopping or killing the daemon stops no packet: what it put into the kernel
stays, and the next daemon changes nothing of it that is right. 'fairlead
unload --switch BRIDGE' takes it out. SIGHUP reads the file again.`,
		Example: "  fairlead switch -f fairlead.yaml --name sw1",
		Args:    cobra.NoArgs,
		RunE:    f.run(func(ctx context.Context, _ member.Options) error { return f.beside(ctx, controller, swtch.Run) }),
	}
	f.addCommon(cmd)
	controllerFlag(cmd, &controller)
	f.addUnguarded(cmd)
	return cmd
}
