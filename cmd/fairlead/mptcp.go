//go:build !ctl

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	mptcpdaemon "github.com/fairlead/fairlead/daemon/mptcp"
	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newMPTCPCommand() *cobra.Command {
	var f daemonFlags
	var o mptcpdaemon.Options
	cmd := &cobra.Command{
		Use:   "mptcp",
		Short: "Give Multipath TCP connections subflows over chosen paths",
		Long: `Give every connection of Multipath TCP that a program of this host opens to
another host of the fabric further subflows: over paths that share no links
with those it has, but for the links that all paths share. Their ports make
the fabric's routers take them there (CFLB). A subflow whose path does not
answer is replaced by one over other links. Needs root.

Programs need no change if they open sockets of Multipath TCP; others can be
started with mptcpize. The daemon is the kernel's path manager for connections
that begin while it runs (net.mptcp.path_manager=userspace, set back when it
stops). The peer must take subflows: it runs this daemon, too, or
'ip mptcp limits set subflows 8'.

Stopping the daemon leaves all subflows as they are. SIGHUP reads the file
again. 'fairlead mptcp list' shows connections, subflows and their paths.`,
		Example: "  fairlead mptcp -f fabric.yaml\n  fairlead mptcp -f fabric.yaml --subflows 2 --metrics 127.0.0.1:9190",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd); err != nil {
				return err
			}
			if o.Subflows < 0 || o.Subflows > mptcp.MaxSubflows || cmd.Flags().Changed("subflows") && o.Subflows == 0 {
				return cli.Usagef("--subflows %d: must be 1 to %d", o.Subflows, mptcp.MaxSubflows)
			}
			if o.RandomPorts && o.Subflows == 0 {
				return cli.Usagef("--random-ports: say --subflows, too; without chosen paths nobody knows how many are disjoint")
			}
			o.Log = f.options.Log
			return mptcpdaemon.Run(cmd.Context(), o)
		},
	}
	f.addLog(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "file", "f", "/etc/fairlead/fabric.yaml", "the fabric's file")
	flags.IntVar(&o.Subflows, "subflows", 0, fmt.Sprintf("subflows of a connection, its first one included, 1 to %d (default: as many as there are disjoint paths)", mptcp.MaxSubflows))
	flags.BoolVar(&o.RandomPorts, "random-ports", false, "give subflows random ports, to compare with")
	flags.StringVar(&o.Metrics, "metrics", "", "address:port of the metrics page (default: none)")
	cmd.AddCommand(newMPTCPListCommand())
	return cmd
}

func newMPTCPListCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show this host's Multipath TCP connections, their subflows and paths",
		Long: `Show the connections of Multipath TCP that this host has now, with the path that
packets from here take by each subflow. It asks the kernel, whoever opened the
subflows.`,
		Example: "  fairlead mptcp list -f fabric.yaml\n  fairlead mptcp list -f fabric.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			f, err := topology.Read(file)
			if err != nil {
				return err
			}
			net, err := paths.New(f)
			if err != nil {
				return err
			}
			list, err := mptcp.List(net)
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, map[string]any{"connections": list}, func(w io.Writer) error { return printMPTCP(w, list) })
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "/etc/fairlead/fabric.yaml", "the fabric's file")
	cli.OutputFlag(cmd, &output)
	return cmd
}

func printMPTCP(w io.Writer, list []mptcp.Listed) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no connections of Multipath TCP")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONNECTION\tFROM\tTO\tSTATE\tRTT\tMBIT/S\tPATH")
	for _, c := range list {
		for _, s := range c.Subflows {
			path := strings.Join(s.Links, " ")
			path = cmp.Or(path, "unknown")
			fmt.Fprintf(t, "%08x\t%s\t%s\t%s\t%v\t%.1f\t%s\n", c.Token, s.Local, s.Remote, s.State,
				(time.Duration(s.RTT) * time.Microsecond).Round(10*time.Microsecond), float64(s.Rate)/1e6, path)
		}
	}
	return t.Flush()
}
