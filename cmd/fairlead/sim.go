package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/sim/scenarios"
)

func newSimCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sim",
		Short: "Repeat the papers' simulations with the program's own schemes, policies and hashes",
		Long: `Simulations of the papers, and of what no paper has, run on the schemes, the
policies and the hashes that the program itself uses. Nothing of the system is
touched and no root is needed. Each prints its seeds; the same seed gives the
same figures (measured rates of jet-trace excepted), on however many cores.

Each figure stands beside what the paper reports, and each statement of the
paper is held against ours: "agrees", or "differs" and why.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: cobra.NoArgs,
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
		return errors.New("interrupted: no run was whole; fewer --seeds take less time")
	}
	return err
}

// checkPlot refuses a --plot that cannot be written, before anything is done.
func checkPlot(file string) error {
	if file == "" {
		return nil
	}
	if !strings.EqualFold(filepath.Ext(file), ".svg") {
		return usagef("--plot %q: must be named *.svg, as it is one", file)
	}
	if dir := filepath.Dir(file); !isDirectory(dir) {
		return usagef("--plot %q: there is no directory %q; make it first", file, dir)
	}
	return nil
}

func isDirectory(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// writePlot draws to memory first, so that an error leaves no half file.
func writePlot(file string, draw func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
