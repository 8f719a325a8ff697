//go:build !ctl

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/inspect/doctor"
)

func newDoctorCommand() *cobra.Command {
	var file, fabric, output, name, pinDir string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what would keep this machine from working, and say the remedy",
		Long: `Look at this machine: privileges, kernel features, bpffs, interfaces and their
offloads, room for the tunnels' headers, sysctls, clocks, the way to every
server. Each line is ok, warn or fail and says what to do; one run says all that
is wrong. Nothing is changed. Exit status 1 if a line fails, also where the file
does not say which of its entries this machine is, so that none was looked at.

With --fabric all the fabric's routers are asked for their routes, which are
compared with the file: the first disagreement is named. On a machine that is
one of them, or with --name, that router is looked at, too: rules, forwarding,
devices that take what XDP sends, next hops and their numbers. On a host of the
fabric, or with its --name, what 'fairlead mptcp' needs: Multipath TCP, its path
manager, the addresses that the file names, and how many subflows came of it.

Without a configuration only the machine itself is looked at.`,
		Example: "  fairlead doctor -f fairlead.yaml --name lb1\n  fairlead doctor --fabric fabric.yaml --name leaf1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fabric != "" {
				if cmd.Flags().Changed("file") {
					return cli.Usagef("--fabric looks at routers, --file at the other daemons: give one of them")
				}
				return doctorFabric(cmd, fabric, name, output)
			}
			var options doctor.Options
			var alone []doctor.Check
			cfg, note, err := deployed(cmd, &control{file: file}, lookTimeout)
			switch {
			case err == nil:
				if note != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
				}
				if options, err = doctor.Find(cfg, name); err != nil {
					return err
				}
				options.PinDir = pinDir
			case noFile(cmd, err):
				alone = []doctor.Check{{Name: "configuration", Status: doctor.Warn,
					Detail: "there is no " + file + ": only the machine is looked at, not what fairlead is to do on it", Remedy: "give the file with -f"}}
			default:
				return err
			}
			return printChecks(cmd, output, append(alone, doctor.Run(cmd.Context(), options)...))
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().StringVar(&fabric, "fabric", "", "look at the routers of this fabric.yaml, and at this machine if it is one of them or a host")
	cli.OutputFlag(cmd, &output)
	cmd.Flags().StringVar(&name, "name", "", "which entry of the file this machine is (default: the one of the host name, else the only one)")
	cmd.Flags().StringVar(&pinDir, "pin-dir", "", "folder of bpffs where the daemon was started with its own --pin-dir")
	return cmd
}

// doctorFabric compares a fabric's file with its routers, and looks at the host
// or router that this machine is, if it is one.
func doctorFabric(cmd *cobra.Command, file, name, output string) error {
	f, err := topology.Read(file)
	if err != nil {
		return err
	}
	var checks []doctor.Check
	if host := doctor.FindHost(f, name); host >= 0 {
		checks = doctor.MPTCP(f, host)
	} else if node, err := config.FindRouter(f, name); err == nil {
		checks = doctor.Run(cmd.Context(), doctor.Options{Fabric: f, Router: node})
	} else if name != "" {
		return err
	}
	return printChecks(cmd, output, append(checks, doctor.Topology(cmd.Context(), f)...))
}

func printChecks(cmd *cobra.Command, output string, checks []doctor.Check) error {
	value := struct {
		Checks []doctor.Check `json:"checks"`
		Failed bool           `json:"failed"`
	}{checks, doctor.Failed(checks)}
	err := cli.PrintAs(cmd.OutOrStdout(), output, value, func(w io.Writer) error { return doctorTable(w, checks) })
	if err == nil && value.Failed {
		return cli.ErrSilent
	}
	return err
}

func doctorTable(w io.Writer, checks []doctor.Check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, c.Detail)
		if c.Remedy != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", c.Remedy)
		}
	}
	return t.Flush()
}
