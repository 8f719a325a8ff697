//go:build !ctl

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/daemon/host"
)

func newHostCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Run the agent on a server",
		Long: `Run the agent on a server: take tunnelled packets out of their tunnels, stamp
Cheetah's cookie into the TCP timestamps of the server's answers, which go
straight to the clients, and pass packets of connections that a previous
server owns on to it (schemes beamer and faild). Where the file names a fabric,
probes of its paths are answered (docs/probing.md). Needs root.

The server's programs (nginx and the like) need no change: they listen as
always. Stopping or killing the agent stops no packet; 'fairlead unload' takes
its programs out. SIGHUP reads the file again.`,
		Example: "  fairlead host -f fairlead.yaml --name s1",
		Args:    cobra.NoArgs,
		RunE:    f.run(host.Run),
	}
	f.add(cmd)
	return cmd
}
