//go:build !ctl

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/first"
	"github.com/fairlead/fairlead/daemon/ctl"
)

func newControllerCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Make changes, and keep what was agreed on",
		Long: `Run a member of the deployment's store: an etcd in this process, on one machine
or three of the file's controllers. Versions of the assignment are agreed on
there, so that a change that was acknowledged is not lost, and one that a
minority of the controllers would make is refused. Needs no root.

Packets need no controller: where the store is gone, everything forwards on as
it does, and changes wait.`,
		Example: "  fairlead controller -f fairlead.yaml --name c1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd); err != nil {
				return err
			}
			first.Metrics()
			return ctl.Run(cmd.Context(), ctl.Options{File: f.options.File, Name: f.options.Name, StateDir: f.options.StateDir, Log: f.options.Log})
		},
	}
	f.addCommon(cmd)
	return cmd
}
