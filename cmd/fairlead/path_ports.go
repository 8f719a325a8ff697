//go:build !ctl

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// wantedFlags are what of a flow is decided.
type wantedFlags struct {
	m                  fairleadv1.WantedFields
	srcPorts, dstPorts string
}

func (w *wantedFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.m.Src, "src", "", "source address (default: A's)")
	flags.StringVar(&w.m.Dst, "dst", "", "destination address (default: B's)")
	flags.BoolVarP(&w.m.Ipv6, "ipv6", "6", false, "take IPv6 addresses")
	flags.StringVar(&w.m.Protocol, "protocol", "tcp", "tcp, udp or a number")
	flags.Uint32Var(&w.m.SrcPort, "src-port", 0, "source port; 0: it is chosen")
	flags.Uint32Var(&w.m.DstPort, "dst-port", 0, "destination port; 0: it is chosen")
	flags.StringVar(&w.srcPorts, "src-ports", "", "bounds of source ports that are chosen, such as 40000-49999")
	flags.StringVar(&w.dstPorts, "dst-ports", "", "bounds of destination ports that are chosen")
	flags.Uint32Var(&w.m.Ttl, "ttl", 0, "time to live that packets begin with (default: as the file says of A)")
}

// wanted is the flags as the API has them.
func (w *wantedFlags) wanted() (_ *fairleadv1.WantedFields, err error) {
	for _, p := range []struct {
		flag string
		port uint32
	}{{"--src-port", w.m.SrcPort}, {"--dst-port", w.m.DstPort}} {
		if p.port > math.MaxUint16 {
			return nil, cli.Usagef("%s %d: must be 65535 at most", p.flag, p.port)
		}
	}
	if w.m.SrcPorts, err = portBounds("--src-ports", w.srcPorts); err != nil {
		return nil, err
	}
	w.m.DstPorts, err = portBounds("--dst-ports", w.dstPorts)
	return &w.m, err
}

// portBounds reads 40000-49999.
func portBounds(flag, text string) (*fairleadv1.PortRange, error) {
	if text == "" {
		return nil, nil
	}
	a, b, ok := strings.Cut(text, "-")
	first, err1 := strconv.ParseUint(a, 10, 16)
	last, err2 := strconv.ParseUint(b, 10, 16)
	switch {
	case !ok || err1 != nil || err2 != nil || last == 0:
		return nil, cli.Usagef("%s %s: must be two ports, such as 40000-49999", flag, text)
	case first > last:
		return nil, cli.Usagef("%s %s: the first is above the last; write %d-%d", flag, text, last, first)
	}
	return &fairleadv1.PortRange{First: uint32(first), Last: uint32(last)}, nil
}

func newPathPortsCommand() *cobra.Command {
	var f pathFlags
	var r ruleFlags
	var w wantedFlags
	var number int
	var count uint32
	cmd := &cobra.Command{
		Use:   "ports A B",
		Short: "Say which ports or flow label lead over a path",
		Long: `For each path from A to B that passes what --via names, or for the one that
--path numbers, print fields of a packet that make it take that path. What is
not given is chosen: with a destination port, a source port from 32768 on.

Packets must begin with the time to live that the file says of A (--ttl), as
routers count by it.`,
		Example: `  fairlead path ports h1 h2 --dst-port 443
  fairlead path ports h1 h2 --via spine2 --dst-port 443 --src-ports 50000-59999 --count 3
  fairlead path ports h1 h2 --path 2 --protocol udp --ipv6 -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			wanted, err := w.wanted()
			if err != nil {
				return err
			}
			return f.ports(cmd, args, r.rules(), wanted, number, count)
		},
	}
	f.add(cmd)
	r.add(cmd)
	w.add(cmd)
	cmd.Flags().IntVar(&number, "path", -1, "only the path of this number, as `list` or `find` with the same flags has it")
	cmd.Flags().Uint32Var(&count, "count", 1, "how many flows for each path")
	return cmd
}

// ports prints flows for one path, or for all; a path that cannot be chosen
// fails if it is the only one, else it is shown with the reason.
func (f *pathFlags) ports(cmd *cobra.Command, args []string, rules *fairleadv1.PathRules, wanted *fairleadv1.WantedFields, number int, count uint32) error {
	c, err := f.look()
	if err != nil {
		return err
	}
	first, last := uint32(max(number, 0)), uint32(max(number, 0))
	if number < 0 {
		list, err := ask(cmd.Context(), f, c.ListPaths, &fairleadv1.ListPathsRequest{From: args[0], To: args[1], Rules: rules})
		if err != nil {
			return err
		}
		last = uint32(len(list.Paths)) - 1
		if list.Total > last+1 {
			fmt.Fprintf(cmd.ErrOrStderr(), "the first %d of %d paths; --path and --via name others\n", last+1, list.Total)
		}
	}
	var all []*fairleadv1.GetPortsResponse
	var failed error
	for i := first; i <= last; i++ {
		m, err := ask(cmd.Context(), f, c.GetPorts, &fairleadv1.GetPortsRequest{From: args[0], To: args[1], Rules: rules, Number: i, Wanted: wanted, Count: count})
		if err != nil {
			failed = err
			continue
		}
		all = append(all, m)
	}
	if all == nil {
		return failed
	}
	if err := f.printPorts(cmd, all); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("%d of %d paths have no flow; of one: %w", int(last-first)+1-len(all), last-first+1, failed)
	}
	return nil
}

func (f *pathFlags) printPorts(cmd *cobra.Command, all []*fairleadv1.GetPortsResponse) error {
	if f.output != "table" {
		values := []any{}
		for _, m := range all {
			values = append(values, plainMessage(m.ProtoReflect()))
		}
		return cli.PrintAs(cmd.OutOrStdout(), f.output, map[string]any{"paths": values}, nil)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tFLOW\tWAY")
	for _, m := range all {
		for _, flow := range m.Flows {
			fmt.Fprintf(t, "%d\t%s\t%s\n", m.Path.Number, flowText(flow), way(m.Path))
		}
	}
	return t.Flush()
}
