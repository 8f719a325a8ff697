// Command fairlead is the whole product in one program: the load balancer's
// daemon, the servers' agent, and everything that looks at them or changes
// them. The laboratory and the measurements are of fairlead-lab. Built with the tag ctl it
// is fairleadctl, which has only the commands that take a file and talk to daemons: small,
// and started in a third of the time. This file holds the root command; each subcommand has
// its own file, and whole.go and ctl.go what the two programs differ in.
package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
)

func main() { cli.Main(newRootCommand()) }

func newRootCommand() *cobra.Command {
	begin()
	root := &cobra.Command{Use: program, Short: inShort, Long: long}
	addCommands(root)
	addMore(root)
	return root
}
