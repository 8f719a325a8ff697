package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/controller"
)

// desiredState is what `get config -o json` prints.
type desiredState struct {
	// Version is the newest, which apply --expect takes.
	Version uint64 `json:"version"`
	Config  string `json:"config"`
}

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show what is wanted of the deployment",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newGetConfigCommand())
	return cmd
}

func newGetConfigCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the desired state as the fairlead.yaml that gives it",
		Long: `Prints what the deployment's store has as the desired state: what was applied
last, with what verbs (drain, add, weight, …) changed since. Applied again it
changes nothing. A secret that stood in the file itself is left out.`,
		Example: "  fairlead get config > fairlead.yaml\n  fairlead get config -o json | jq .version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			c, done, err := coordinator(cmd, file)
			if err != nil {
				return err
			}
			defer done()
			text, version, err := c.Desired(cmd.Context())
			if err == nil && text == nil {
				err = controller.NotFound("the store has no configuration yet; begin with `fairlead apply`")
			}
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, desiredState{version, string(text)}, func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	return cmd
}
