package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/rollout"
)

func newApplyCommand() *cobra.Command {
	var file, output string
	var o rollout.Options
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Bring all daemons to what the file says",
		Long: `Makes the file the desired state, and brings all daemons there: asks every
daemon that it names what it has in force, computes the way from there as a
series of versions whose neighbours mix, and has every daemon go by each before
the next. Daemons take what else the file says of them from the store, too: no
other machine's file need be changed. No connection breaks by it: what
would break one (removing a server that has connections, changing a VIP's
scheme, cookie width, hash or capacity) is refused unless --force. If it stops half way, run
it again: it goes on from there.`,
		Example: `  fairlead plan -f fairlead.yaml
  fairlead apply -f fairlead.yaml
  fairlead apply -f fairlead.yaml --expect 41     # what plan said
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
			text, _, err := yamlfile.ReadFile(file)
			if err != nil {
				return err
			}
			ch, err := c.Apply(cmd.Context(), text, o)
			if err != nil {
				return refusedAs(cmd, output, ch, err)
			}
			return resultOf(ch).print(cmd, output, "nothing to do: the daemons have what "+file+" wants")
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	changeFlags(cmd, &o)
	cmd.Flags().Uint64Var(&o.Expect, "expect", 0, "the version that the change was planned on: refused, with what was done since, if another is the newest")
	return cmd
}
