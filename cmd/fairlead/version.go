package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/version"
)

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print this program's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			value := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
			}{version.String(), runtime.Version()}
			return cli.PrintAs(cmd.OutOrStdout(), output, value, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "fairlead %s (%s)\n", value.Version, value.Go)
				return err
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}
