// Command fairlead is the whole product in one program: the load balancer's
// daemon, the servers' agent, and everything that looks at them or changes
// them. The laboratory and the measurements are of fairlead-lab. This file holds
// the root command; each subcommand has its own file.
package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/fairlead/first"
)

func main() { cli.Main(newRootCommand()) }

func newRootCommand() *cobra.Command {
	first.Over()
	root := &cobra.Command{
		Use:   cli.Product,
		Short: "A load balancer for Linux that never breaks a connection",
		Long: `Fairlead balances TCP and UDP connections over servers (layer 4, in XDP) and
keeps every connection on its server while servers, balancers and keys come
and go.

Start with one file, fairlead.yaml, that names your balancers, servers and
VIPs (served addresses). The same file serves every machine:

  fairlead check -f fairlead.yaml        is the file right?
  fairlead lb -f fairlead.yaml           on each balancer
  fairlead host -f fairlead.yaml         on each server
  fairlead switch -f fairlead.yaml       on each switch (scheme faild)
  fairlead router -f fabric.yaml         on each router of a fabric (CFLB)
  fairlead status -f fairlead.yaml       what they do

To see it work on this machine alone, without any set-up: fairlead demo.

Exit status: 0 done, 1 refused or failed (one line on stderr says why and
what to do), 2 wrong usage.`,
	}
	addCommands(root)
	return root
}
