//go:build !ctl

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
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
will do, and so will nodes without links. Routers must read the selector already
('fairlead router').

A router answers each side from another address. Before you learn from the other
side, write all addresses of each router under addresses of one router; what
looks like one router under two names is told.

Routers answer about one such packet a second (net.ipv4.icmp_ratelimit), so that
each router with a choice takes a minute or more (radix 16), each without a
quarter of that; with net.ipv4.icmp_ratelimit=0 on the routers, seconds. Without
key_file the selector's key is in what is written: keep it from others.`,
		Example: `  fairlead path learn h2=10.1.2.2 h3=10.1.3.2 >learned.yaml
  fairlead path learn --from h2 -f learned.yaml h1 >fabric.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return cli.Usagef("--timeout %s: must be more than 0, such as %s", timeout, probe.DefaultTimeout)
			}
			f, err := topology.ReadDraft(file)
			if err != nil {
				return err
			}
			if from == "" {
				if from, err = thisHost(f); err != nil {
					return err
				}
			}
			for _, arg := range args {
				if err := learn(cmd.Context(), f, from, arg, timeout, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			for _, name := range nameless(f) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is left out: no way that was learned passes it\n", name)
			}
			if _, err := paths.New(f); err != nil {
				return fmt.Errorf("what was learned makes no fabric: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d routers and hosts, %d links\n", len(f.Nodes), len(f.Links))
			if err := placeKey(f, file); err != nil {
				return err
			}
			return writeFabric(cmd, f)
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
			return cli.Usagef("%q: %q is no address; write NAME=ADDRESS, such as h2=192.0.2.10", target, text)
		}
	} else {
		i, err := f.Find(name)
		if err != nil || len(f.Nodes[i].Addresses) == 0 {
			return cli.Usagef("%q: the file has no address of it; write %s=ADDRESS", target, name)
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
		return cli.Usagef("%q: is this host; name another, to which there is a way to learn", target)
	}
	before := topology.Fabric{Nodes: slices.Clone(f.Nodes), Links: slices.Clone(f.Links)}
	if err := probe.Learn(ctx, f, probe.LearnConfig{
		Host: from, Source: source, Target: name, Address: to, Timeout: timeout,
		Progress: func(s string) { fmt.Fprintln(progress, s) },
	}); err != nil {
		return err
	}
	// What they are called in the file, which may have known their addresses.
	if i, ok := f.ByAddress(source); ok {
		from = f.Nodes[i].Name
	}
	if i, ok := f.ByAddress(to); ok {
		name = f.Nodes[i].Name
	}
	if twice := twiceText(probe.LearnedTwice(&before, f, from, name)); twice != "" {
		fmt.Fprintf(progress, "warning: ways between %s and %s were in the file, over other routers: %s; write the addresses of what is one router under its addresses in the file, once, and learn again\n", from, name, twice)
	}
	return nil
}

// twiceText names routers that may be others, in a line.
func twiceText(found []probe.Twice) string {
	var text []string
	for _, t := range found {
		if len(t.Old) == 0 {
			t.Old = []string{"any of them"}
		}
		text = append(text, t.New+" may be "+strings.Join(t.Old, " or "))
	}
	return strings.Join(text, ", ")
}

// thisHost is the host of the file that has an address of this machine, else
// the machine's name.
func thisHost(f *topology.Fabric) (string, error) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("this machine's addresses: %w; name this host by --from", err)
	}
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || prefix.Addr().IsLoopback() {
			continue
		}
		if i, ok := f.ByAddress(prefix.Addr()); ok && f.Nodes[i].Host {
			return f.Nodes[i].Name, nil
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("this machine has no name: %w; name this host by --from", err)
	}
	return name, nil
}

// placeKey makes key_file of a fabric that was read from file right for any
// folder that it is written to.
func placeKey(f *topology.Fabric, file string) (err error) {
	if f.KeyFile == "" || filepath.IsAbs(f.KeyFile) || filepath.Dir(file) == "." {
		return nil
	}
	f.KeyFile, err = filepath.Abs(filepath.Join(filepath.Dir(file), f.KeyFile))
	return err
}

// writeFabric writes the file, and says if it has to be kept from others.
func writeFabric(cmd *cobra.Command, f *topology.Fabric) error {
	if f.KeyFile == "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "the selector's key is in this file: chmod 600 it, or write key_file instead (`fairlead secret`)")
	}
	return topology.Write(cmd.OutOrStdout(), f)
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

// nameless takes out nodes that no link leads to, as a file must not have them,
// and says which.
func nameless(f *topology.Fabric) (names []string) {
	linked := make([]bool, len(f.Nodes))
	for _, l := range f.Links {
		linked[l.Ends[0].Node], linked[l.Ends[1].Node] = true, true
	}
	kept := make([]int, len(f.Nodes)) // their new indices
	var nodes []topology.Node
	for i, n := range f.Nodes {
		if kept[i] = len(nodes); linked[i] {
			nodes = append(nodes, n)
		} else {
			names = append(names, n.Name)
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
	return names
}
