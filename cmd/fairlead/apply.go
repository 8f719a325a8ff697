package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/rollout"
)

func newApplyCommand() *cobra.Command {
	var file, output string
	var o rollout.Options
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Bring all daemons to what the file says",
		Long: `Asks every daemon that the file names what it has in force, computes the way
from there to the file as a series of versions whose neighbours mix, and hands
each version to every daemon before the next. No connection breaks by it: what
would break one (removing a server that has connections, changing a VIP's
scheme, cookie width, hash or capacity) is refused unless --force. If it stops half way, run
it again: it goes on from there.`,
		Example: `  fairlead plan -f fairlead.yaml
  fairlead apply -f fairlead.yaml
  fairlead apply -f fairlead.yaml --without lb2   # which is gone for good`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			c, done, err := coordinator(cmd, file)
			if err != nil {
				return err
			}
			defer done()
			ch, err := c.Apply(cmd.Context(), o)
			if err != nil {
				return refusedAs(cmd, output, ch, err)
			}
			return resultOf(ch).print(cmd, output, "nothing to do: the daemons have what "+file+" wants")
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	changeFlags(cmd, &o)
	return cmd
}
