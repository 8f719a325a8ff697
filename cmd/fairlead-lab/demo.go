package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab"
)

func newDemoCommand() *cobra.Command {
	var seed uint64
	c := &cobra.Command{
		Use: "demo",
		Long: `Builds a small data centre of network namespaces on this machine, changes it
under hundreds of real connections, and shows what breaks with Fairlead's
cookie and what breaks without. Everything is removed at the end. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			program, err := cli.Beside(cli.Product)
			if err != nil {
				return err
			}
			result, err := lab.Demo(cmd.Context(), out, cli.Terminal(out), seed, program)
			if err != nil {
				return err
			}
			if len(result.Verdict) > 0 {
				return errors.New(strings.Join(result.Verdict, "; "))
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "another seed makes other connections and other victims")
	return c
}
