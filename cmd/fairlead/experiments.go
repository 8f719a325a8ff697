//go:build !ctl

package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/version"
)

// newExperimentCommands are those of fairlead-lab. To run, to explain and to
// complete them, this process becomes that program, with the same arguments.
func newExperimentCommands() (commands []*cobra.Command) {
	for name, short := range cli.Experiments {
		c := &cobra.Command{
			Use:                name,
			Short:              short,
			DisableFlagParsing: true,
			RunE:               func(*cobra.Command, []string) error { return becomeLab() },
			ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				_ = becomeLab() // what is not there completes nothing
				return nil, cobra.ShellCompDirectiveNoFileComp
			},
		}
		c.SetHelpFunc(func(*cobra.Command, []string) { // of `fairlead help lab`
			fmt.Fprintln(os.Stderr, "fairlead:", becomeLab())
			os.Exit(cli.ExitFailed)
		})
		commands = append(commands, c)
	}
	return commands
}

// becomeLab returns only if it cannot.
func becomeLab() error {
	program, err := cli.Beside(cli.Lab)
	if err != nil {
		return err
	}
	if os.Getenv(cli.HandedOver) != "" {
		return fmt.Errorf("%s is not fairlead-lab but a copy of, or a link to, fairlead: put the one that `make build` made there", program)
	}
	if err := os.Setenv(cli.HandedOver, version.String()); err != nil {
		return err
	}
	if err := syscall.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}
