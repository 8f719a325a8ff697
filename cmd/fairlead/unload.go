//go:build !ctl

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/kernel/router"
	"github.com/fairlead/fairlead/kernel/swtch"
)

func newUnloadCommand() *cobra.Command {
	var all, privatePins bool
	var pinDir, bridge string
	cmd := &cobra.Command{
		Use:   "unload [NAME...]",
		Short: "Take a daemon's programs out of the kernel",
		Long: `Detach the programs of the named daemons of this machine and remove their pins.
From then on packets go to the kernel untouched: connections through a
balancer or agent break, and a router's packets are forwarded by the kernel,
which knows no selectors. Stop the daemon first. VIPs' addresses that an agent put on the loopback
go too, those that stood there before it stay; the daemon's state folder stays, and a daemon started again goes on
from it. Without a name, the only daemon that has
anything pinned is meant. Of several each is told of, and the exit status is 1 if one
could not be taken out.

A switch has no programs: with --switch its routes, nexthops, neighbours and
bridge entries go. The sysctls that say how the kernel hashes stay.`,
		Example: "  fairlead unload lb1\n  fairlead unload --switch br0",
		RunE: func(cmd *cobra.Command, names []string) error {
			if bridge != "" {
				if all || pinDir != "" || len(names) > 0 {
					return cli.Usagef("--switch names a bridge: give neither names, --all nor --pin-dir with it")
				}
				return unloadSwitch(cmd, bridge)
			}
			if pinDir != "" {
				if all || len(names) > 0 {
					return cli.Usagef("--pin-dir names the folder: give neither names nor --all with it")
				}
				left, err := unload(pinDir)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s unloaded%s; the daemon's state folder stays, and a daemon started again goes on from it\n", pinDir, left)
				return err
			}
			// What the machine's daemons pinned is not to be seen from there.
			if err := kernel.Lasting(kernel.Root); err != nil && !privatePins {
				return fmt.Errorf("%w; or say --private-pins for daemons that were started so, here", err)
			}
			root := filepath.Dir(kernel.Dir("x"))
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
					return cli.Usagef("give names or --all, not both")
				}
				names = found
			case len(names) == 0 && len(found) == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "nothing is loaded")
				return nil
			case len(names) == 0 && len(found) == 1:
				names = found
			case len(names) == 0:
				return cli.Usagef("several daemons' programs are loaded (%s): name the ones to take out, or --all", strings.Join(found, ", "))
			}
			return unloadAll(cmd.OutOrStdout(), names, func(name string) (left string, err error) {
				dir := kernel.Dir(name)
				if _, err := os.Stat(dir); err != nil {
					return "", notLoaded(name, found)
				}
				if left, err = unload(dir); err != nil {
					return "", fmt.Errorf("unload %s: %w", name, err)
				}
				return left, nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all daemons of this machine that have programs")
	cmd.Flags().BoolVar(&privatePins, "private-pins", false, "of daemons that were started with it, in this mount namespace")
	cmd.Flags().StringVar(&bridge, "switch", "", "the bridge of this machine's switch, such as br0")
	cmd.Flags().StringVar(&pinDir, "pin-dir", "", "folder of bpffs where the daemon was started with its own --pin-dir")
	return cmd
}

// unloadAll has one take out each of names, whatever becomes of the others.
func unloadAll(w io.Writer, names []string, one func(name string) (left string, err error)) error {
	var failed []error
	for _, n := range names {
		left, err := one(n)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintf(w, "%s unloaded%s; its state stays in %s (or its own --state-dir), and a daemon started again goes on from it\n",
			n, left, filepath.Join(daemon.DefaultStateDir, n))
	}
	return errors.Join(failed...)
}

func unloadSwitch(cmd *cobra.Command, bridge string) error {
	if _, err := net.InterfaceByName(bridge); err != nil {
		return fmt.Errorf("no device %s on this machine, so no switch of it is loaded: name the bridge that the daemon had (switches[].bridge)", bridge)
	}
	sw, err := swtch.Open(swtch.Options{Bridge: bridge})
	if err != nil {
		return err
	}
	defer sw.Close()
	if err := sw.Remove(); err != nil {
		return fmt.Errorf("unload the switch of %s: %w", bridge, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s's switch unloaded; the sysctls stay, its state stays in %s, and a daemon started again goes on from it\n", bridge, daemon.DefaultStateDir)
	return err
}

// unload takes out whichever daemon pinned its programs in dir; of an agent
// the VIPs' addresses that it put on the loopback, too, and then left says
// what of them stays.
func unload(dir string) (left string, err error) {
	if router.PinnedAt(dir) {
		return "; the kernel forwards alone, by its own hash", router.Unload(dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "programs", "host_in")); err == nil {
		return "; its VIPs are off the loopback, except where an address stood there before it", host.Unload(dir)
	}
	return "", lb.Unload(dir)
}

// notLoaded is the error of a name for which nothing is pinned; others are
// those for which something is.
func notLoaded(name string, others []string) error {
	if len(others) == 0 {
		return fmt.Errorf("nothing is loaded for %q, nor for any other here; a daemon that `ip netns exec` started has a bpffs of its own, which goes with it", name)
	}
	return fmt.Errorf("nothing is loaded for %q; loaded are %s", name, strings.Join(others, ", "))
}
