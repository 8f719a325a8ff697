package main

import "github.com/spf13/cobra"

// The groups under which `fairlead --help` lists the commands.
const (
	groupRun    = "run"
	groupShow   = "show"
	groupChange = "change"
	groupTry    = "try"
)

// adder adds subcommands to a group of root's.
func adder(root *cobra.Command) func(group string, commands ...*cobra.Command) {
	return func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
}

// addCommands is the list of subcommands that fairlead and fairleadctl have: they take a
// file and talk to daemons. A new one has its own file <verb>.go with func new<Verb>Command()
// and a line here; what is a daemon, or looks at this machine, is in whole.go.
func addCommands(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupShow, Title: "Commands that look:"},
		&cobra.Group{ID: groupChange, Title: "Commands that change:"},
	)
	add := adder(root)
	add(groupShow,
		newCheckCommand(),
		newPlanCommand(),
		newStatusCommand(),
		newBGPCommand(),
		newHistoryCommand(),
		newGetCommand(),
		newDescribeCommand(),
		newEventsCommand(),
		newConnectionsCommand(),
		newCookieCommand(),
		newVersionCommand(),
	)
	add(groupChange,
		newSecretCommand(),
		newCertsCommand(),
		newApplyCommand(),
		newRollbackCommand(),
		newAddCommand(),
		newDrainCommand(),
		newUndrainCommand(),
		newUnlockCommand(),
		newRemoveCommand(),
		newWeightCommand(),
		newRotateCommand(),
		newReloadCommand(),
	)
}
