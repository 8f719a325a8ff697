package main

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

func newApplyCommand() *cobra.Command {
	var v verb
	var expect uint64
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Bring all daemons to what the file says",
		Long: `Hands the file to a controller, which computes the way from what is in force to
the file as a series of versions whose neighbours mix, and has every daemon go by
each version before the next. No connection breaks by it: what
would break one (removing a server that has connections, changing a VIP's
scheme, cookie width, hash or capacity) is refused unless --force. If it stops half way, run
it again: it goes on from there.

With --expect it is refused if another version than the one that a plan was made on
is in force by now. Takes the role administer.`,
		Example: `  fairlead plan -f fairlead.yaml
  fairlead apply -f fairlead.yaml
  fairlead apply -f fairlead.yaml --without lb2   # which is gone for good`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.runFile(cmd, func(ctx context.Context, c controlClient, text string) (*changed, error) {
				return c.Apply(ctx, connect.NewRequest(&fairleadv1.ApplyRequest{Text: text, File: v.called(), ExpectedVersion: expect, Force: v.options.Force, Without: v.options.Without}))
			})
		},
	}
	v.flags(cmd)
	cmd.Flags().Uint64Var(&expect, "expect", 0, "version that a plan was made on (from, of plan -o json): refused if it is another by now")
	return cmd
}

func newRollbackCommand() *cobra.Command {
	var v verb
	var expect uint64
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Bring all daemons back to what an earlier version was",
		Long: `Makes what was wanted at an earlier version the desired state again, as a new
version: a change as any other, planned from what is in force now, so that no
connection breaks by it. Keys do not go back. 'fairlead history' lists versions.
Takes the role administer.`,
		Example: "  fairlead history\n  fairlead rollback 41",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := versionArgument(args[0])
			if err != nil {
				return err
			}
			return v.run(cmd, func(ctx context.Context, c controlClient) (*changed, error) {
				return c.Rollback(ctx, connect.NewRequest(&fairleadv1.RollbackRequest{Version: version, ExpectedVersion: expect, Force: v.options.Force, Without: v.options.Without}))
			})
		},
	}
	v.flags(cmd)
	cmd.Flags().Uint64Var(&expect, "expect", 0, "version that is in force: refused if it is another by now")
	return cmd
}
