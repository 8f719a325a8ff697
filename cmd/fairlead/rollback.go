package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/rollout"
)

func newRollbackCommand() *cobra.Command {
	var file, output string
	var o rollout.Options
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Make what was wanted with a version the desired state again",
		Long: `Takes the desired state of an earlier version ('fairlead history' lists them) and
applies it, as a new version after the newest: what would break connections is
refused as in any change. Keys do not go back.`,
		Example: "  fairlead history\n  fairlead rollback 41",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			version, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || version == 0 {
				return cli.Usagef("rollback %s: not a version; `fairlead history` lists them", args[0])
			}
			c, done, err := coordinator(cmd, file)
			if err != nil {
				return err
			}
			defer done()
			ch, err := c.Rollback(cmd.Context(), version, o)
			if err != nil {
				return refusedAs(cmd, output, ch, err)
			}
			return resultOf(ch).print(cmd, output, fmt.Sprintf("nothing to do: the desired state is that of version %d", version))
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	changeFlags(cmd, &o)
	return cmd
}
