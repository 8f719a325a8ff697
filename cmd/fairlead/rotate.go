package main

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

func newRotateCommand() *cobra.Command {
	var v verb
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Begin a new epoch: a fresh key for new connections' cookies",
		Long: `Hands a fresh random key to every daemon, then has new connections stamped
under it. Connections of the epoch before go on decoding; those of the epoch
before that no longer would, so the rotation is refused while any is live,
unless --force, which sends them to the fallback.`,
		Example: "  fairlead rotate -f fairlead.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.run(cmd, func(ctx context.Context, c controlClient) (*changed, error) {
				return c.RotateKey(ctx, connect.NewRequest(&fairleadv1.RotateKeyRequest{Force: v.options.Force, Without: v.options.Without}))
			})
		},
	}
	v.flags(cmd)
	return cmd
}
