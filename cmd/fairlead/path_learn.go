package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newPathLearnCommand() *cobra.Command {
	var file, from string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "learn HOST[=ADDRESS]...",
		Short: "Learn the fabric's file by traceroute",
		Long: `Trace the ways from this machine to other hosts and write fabric.yaml, with all
that was found, to standard output. Packets with selectors show which port of
which router leads where, so the file has the numbers of the ports towards the
hosts that are named; run it on those, too, for the others.

--file is where the selector is taken from, and the names of nodes whose
addresses it has; what it knows besides is kept. A file with the selector alone
will do. Routers must read the selector already ('fairlead router').

Routers answer about one such packet a second (net.ipv4.icmp_ratelimit), so that
each choice of theirs takes some ten seconds.`,
		Example: `  fairlead path learn h2=10.1.2.2 h3=10.1.3.2 >learned.yaml
  fairlead path learn --from h2 -f learned.yaml h1 >fabric.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := topology.Read(file)
			if err != nil {
				return err
			}
			if from == "" {
				if from, err = os.Hostname(); err != nil {
					return fmt.Errorf("%w; name this host by --from", err)
				}
			}
			for _, arg := range args {
				if err := learn(cmd.Context(), f, from, arg, timeout, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			nameless(f)
			if _, err := paths.New(f); err != nil {
				return fmt.Errorf("what was learned makes no fabric: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d routers and hosts, %d links\n", len(f.Nodes), len(f.Links))
			return topology.Write(cmd.OutOrStdout(), f)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", defaultFabric, "the fabric's file, at least its selector")
	cmd.Flags().StringVar(&from, "from", "", "this host's name in the fabric (default: the machine's)")
	cmd.Flags().DurationVar(&timeout, "timeout", probe.DefaultTimeout, "how long an answer may take")
	return cmd
}

// learn learns the ways to one host, NAME=ADDRESS or a name of the file.
func learn(ctx context.Context, f *topology.Fabric, from, target string, timeout time.Duration, progress io.Writer) error {
	name, text, given := strings.Cut(target, "=")
	var to netip.Addr
	if given {
		var err error
		if to, err = netip.ParseAddr(text); err != nil {
			return usagef("%q: %w; write NAME=ADDRESS", target, err)
		}
	} else {
		i, err := f.Find(name)
		if err != nil || len(f.Nodes[i].Addresses) == 0 {
			return usagef("%q: the file has no address of it; write %s=ADDRESS", target, name)
		}
		name, to = f.Nodes[i].Name, f.Nodes[i].Addresses[0]
	}
	var source netip.Addr
	if name != from {
		var err error
		if source, err = sourceFor(to); err != nil {
			return fmt.Errorf("no way to %s: %w", to, err)
		}
	}
	if name == from || source == to {
		return usagef("%q: is this host; name another, to which there is a way to learn", target)
	}
	return probe.Learn(ctx, f, probe.LearnConfig{
		Host: from, Source: source, Target: name, Address: to, Timeout: timeout,
		Progress: func(s string) { fmt.Fprintln(progress, s) },
	})
}

// sourceFor is the address that this machine would send from.
func sourceFor(to netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, probe.DefaultPort)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// nameless takes out nodes that no link leads to: a file must not have them.
func nameless(f *topology.Fabric) {
	linked := make([]bool, len(f.Nodes))
	for _, l := range f.Links {
		linked[l.Ends[0].Node], linked[l.Ends[1].Node] = true, true
	}
	kept := make([]int, len(f.Nodes)) // their new indices
	var nodes []topology.Node
	for i, n := range f.Nodes {
		if kept[i] = len(nodes); linked[i] {
			nodes = append(nodes, n)
		}
	}
	f.Nodes = nodes
	f.Links = slices.Clone(f.Links)
	for i := range f.Links {
		for side := range 2 {
			e := &f.Links[i].Ends[side]
			e.Node = kept[e.Node]
		}
	}
}
