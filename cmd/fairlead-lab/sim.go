package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/sim/scenarios"
)

func newSimCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sim",
		Long: `Simulations of the papers, and of what no paper has, run on the schemes, the
policies and the hashes that the program itself uses. Nothing of the system is
touched and no root is needed. Each prints its seeds; the same seed gives the
same figures (measured rates of jet-trace excepted), on however many cores.

Each figure stands beside what the paper reports, and each statement of the
paper is held against ours: "agrees", or "differs" and why.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: cli.CommandsAlone,
	}
	for _, k := range scenarios.All() {
		c.AddCommand(newSimScenario(k))
	}
	c.AddCommand(newSimAll(), newSimJetTrace(), newSimWorkloads())
	return c
}

// interrupted says what a Ctrl-C meant.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: not all runs were whole, so there is no result; fewer --seeds or a smaller site take less time")
	}
	return err
}
