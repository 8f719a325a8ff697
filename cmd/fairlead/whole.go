//go:build !ctl

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/fairlead/first"
)

// What is fairlead's alone.
const (
	program = cli.Product
	inShort = "A load balancer for Linux that never breaks a connection"
	long    = `Fairlead balances TCP and UDP connections over servers (layer 4, in XDP) and
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
what to do), 2 wrong usage.`
)

func begin() { first.Over() }

// addMore is the list of subcommands that are daemons, or look at this machine.
func addMore(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Daemons:"},
		&cobra.Group{ID: groupTry, Title: "Trying it out and measuring:"},
	)
	add := adder(root)
	add(groupRun,
		newLBCommand(),
		newHostCommand(),
		newSwitchCommand(),
		newControllerCommand(),
		newRouterCommand(),
		newMPTCPCommand(),
	)
	add(groupShow,
		newDoctorCommand(),
		newTraceCommand(),
		newPathCommand(),
	)
	add(groupChange,
		newUnloadCommand(),
	)
	add(groupTry, newExperimentCommands()...)
}
