package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/host"
)

func newUnloadCommand() *cobra.Command {
	var all bool
	var pinDir string
	cmd := &cobra.Command{
		Use:   "unload [NAME...]",
		Short: "Take a daemon's programs out of the kernel",
		Long: `Detach the programs of the named daemons of this machine and remove their pins.
From then on packets go to the kernel untouched: connections through them
break. Stop the daemon first. Without a name, the only daemon that has
anything pinned is meant.`,
		Example: "  fairlead unload lb1",
		RunE: func(cmd *cobra.Command, names []string) error {
			if pinDir != "" {
				if all || len(names) > 0 {
					return usagef("--pin-dir names the folder: give neither names nor --all with it")
				}
				return unload(pinDir)
			}
			root := filepath.Dir(dataplane.DefaultPinDir("x"))
			pinned, err := os.ReadDir(root)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("look for what is pinned: %w", err)
			}
			var found []string
			for _, e := range pinned {
				found = append(found, e.Name())
			}
			switch {
			case all:
				if len(names) > 0 {
					return usagef("give names or --all, not both")
				}
				names = found
			case len(names) == 0 && len(found) == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "nothing is loaded")
				return nil
			case len(names) == 0 && len(found) == 1:
				names = found
			case len(names) == 0:
				return usagef("several daemons' programs are loaded (%s): name the ones to take out, or --all", strings.Join(found, ", "))
			}
			for _, n := range names {
				dir := dataplane.DefaultPinDir(n)
				if _, err := os.Stat(dir); err != nil {
					return fmt.Errorf("nothing is loaded for %q (loaded: %s)", n, strings.Join(found, ", "))
				}
				if err := unload(dir); err != nil {
					return fmt.Errorf("unload %s: %w", n, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s unloaded\n", n)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all daemons of this machine")
	cmd.Flags().StringVar(&pinDir, "pin-dir", "", "folder of bpffs where the daemon was started with its own --pin-dir")
	return cmd
}

// unload takes out whichever daemon pinned its programs in dir.
func unload(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "programs", "host_in")); err == nil {
		return host.Unload(dir)
	}
	return dataplane.Unload(dir)
}
