package main

import "github.com/spf13/cobra"

// The groups under which `fairlead --help` lists the commands.
const (
	groupRun    = "run"
	groupShow   = "show"
	groupChange = "change"
	groupTry    = "try"
)

// addCommands is the one list of subcommands: a new one has its own file
// <verb>.go with func new<Verb>Command() and a line here.
func addCommands(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Daemons:"},
		&cobra.Group{ID: groupShow, Title: "Commands that look:"},
		&cobra.Group{ID: groupChange, Title: "Commands that change:"},
		&cobra.Group{ID: groupTry, Title: "Trying it out and measuring:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupRun,
		newLBCommand(),
		newHostCommand(),
		newSwitchCommand(),
		newControllerCommand(),
		newRouterCommand(),
		newMPTCPCommand(),
	)
	add(groupShow,
		newCheckCommand(),
		newPlanCommand(),
		newStatusCommand(),
		newBGPCommand(),
		newHistoryCommand(),
		newGetCommand(),
		newDescribeCommand(),
		newEventsCommand(),
		newDoctorCommand(),
		newTraceCommand(),
		newConnectionsCommand(),
		newPathCommand(),
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
		newUnloadCommand(),
	)
	add(groupTry, newExperimentCommands()...)
}
