//go:build !ctl

package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newPathScheduleCommand() *cobra.Command {
	var f pathFlags
	var r ruleFlags
	var w wantedFlags
	var lease time.Duration
	var owner string
	var pathOnly bool
	var again uint64
	cmd := &cobra.Command{
		Use:   "schedule {A B | --again ID}",
		Short: "Give a long flow the least loaded path",
		Long: `Ask the path service for the least loaded path from A to B: the one whose most
loaded link has the fewest placed flows for its capacity, what is measured on
links counted in. It prints the fields that lead over it and the flow's
number, with which 'fairlead path release' gives the path back.

With --again ID a placed flow gets the path that is best now; if it moved, open
the new flow, then end the old one.`,
		Example: `  fairlead path schedule h1 h2 --dst-port 5001 --lease 10m
  fairlead path schedule h1 h2 --via spine2 --path-only -o json
  fairlead path schedule --again 17`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case again != 0 && len(args) > 0:
				return cli.Usagef("--again %d names the flow, and with it both ends: leave out %s", again, strings.Join(args, " "))
			case again != 0:
				return nil
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			if lease < 0 || lease%time.Second != 0 {
				return cli.Usagef("--lease %s: must be whole seconds, such as 10m; 0: never", lease)
			}
			if again != 0 {
				return f.again(cmd, again)
			}
			q := &fairleadv1.PlaceFlowRequest{From: args[0], To: args[1], Rules: r.rules(), LeaseSeconds: uint32(lease / time.Second), Owner: owner}
			if !pathOnly {
				var err error
				if q.Wanted, err = w.wanted(); err != nil {
					return err
				}
			}
			m, err := query(cmd.Context(), &f, f.serving, fairleadv1connect.PathsClient.PlaceFlow, q)
			if err != nil {
				return err
			}
			return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) { flowTable(t, m) })
		},
	}
	f.add(cmd)
	r.add(cmd)
	w.add(cmd)
	cmd.Flags().DurationVar(&lease, "lease", 0, "when the flow ends by itself, if nobody renews it; 0: never")
	cmd.Flags().StringVar(&owner, "owner", "", "whose it is, for those who look")
	cmd.Flags().BoolVar(&pathOnly, "path-only", false, "ask for a path without ports")
	cmd.Flags().Uint64Var(&again, "again", 0, "give the placed flow of this number the path that is best now")
	return cmd
}

func (f *pathFlags) again(cmd *cobra.Command, id uint64) error {
	m, err := query(cmd.Context(), f, f.serving, fairleadv1connect.PathsClient.PlaceAgain, &fairleadv1.PlaceAgainRequest{Id: id})
	if err != nil {
		return err
	}
	return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) {
		flowTable(t, m.Flow)
		if m.Moved {
			fmt.Fprintln(t, "It moved: open this flow, then end the old one.")
		}
	})
}

func newPathReleaseCommand() *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:     "release ID...",
		Short:   "Give back the paths of placed flows",
		Long:    "Take placed flows off their links. Their packets go on as they are: it is the counting that ends.",
		Example: "  fairlead path release 17",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			var ids []uint64
			for _, text := range args {
				id, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					return cli.Usagef("ID %q: must be a number, as `fairlead path flows` shows it", text)
				}
				ids = append(ids, id)
			}
			c, err := f.serving()
			if err != nil {
				return err
			}
			done := &fairleadv1.ListFlowsResponse{}
			for _, id := range ids {
				m, err := ask(cmd.Context(), &f, c.ReleaseFlow, &fairleadv1.ReleaseFlowRequest{Id: id})
				if err != nil {
					return err
				}
				done.Flows = append(done.Flows, m)
			}
			return f.print(cmd.OutOrStdout(), done, func(t *tabwriter.Writer) {
				for _, m := range done.Flows {
					fmt.Fprintf(t, "released flow %d: %s\n", m.Id, way(m.Path))
				}
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newPathFlowsCommand() *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:     "flows",
		Short:   "List the flows that the path service has placed",
		Example: "  fairlead path flows -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			m, err := query(cmd.Context(), &f, f.serving, fairleadv1connect.PathsClient.ListFlows, &fairleadv1.ListFlowsRequest{})
			if err != nil {
				return err
			}
			return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) { flowTable(t, m.Flows...) })
		},
	}
	f.add(cmd)
	return cmd
}

func flowTable(t *tabwriter.Writer, flows ...*fairleadv1.PlacedFlow) {
	fmt.Fprintln(t, "ID\tFLOW\tWAY\tCHOICES\tUNTIL\tOWNER")
	for _, m := range flows {
		flow, until := "-", "-"
		if m.Flow != nil {
			flow = flowText(m.Flow)
		}
		if m.UntilUnixMs > 0 {
			until = time.UnixMilli(m.UntilUnixMs).Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", m.Id, flow, way(m.Path), choices(m.Path), until, cmp.Or(m.Owner, "-"))
	}
}

func newPathLoadCommand() *cobra.Command {
	var f pathFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Show what the fabric's links carry",
		Long: `Show each link, direction by direction, as the path service knows it: the flows
that it placed, what was measured (bit/s), and the part of that which is not of
placed flows. Measured is what routers say ('fairlead router'), or what was
reported ('fairlead path report', 'fairlead path measure').`,
		Example: "  fairlead path load\n  fairlead path load --all -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			m, err := query(cmd.Context(), &f, f.serving, fairleadv1connect.PathsClient.GetFabric, &fairleadv1.GetFabricRequest{})
			if err != nil {
				return err
			}
			return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) { loadTable(t, m, all) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "in the table, show links without flows and measurements, too")
	return cmd
}

func loadTable(t *tabwriter.Writer, m *fairleadv1.GetFabricResponse, all bool) {
	fmt.Fprintln(t, "LINK\tFROM\tTO\tCAPACITY\tFLOWS\tMEASURED\tOTHERS")
	rate := humanRate
	idle := 0
	for _, l := range m.Links {
		capacity := "-"
		if l.Capacity > 0 {
			capacity = topology.FormatRate(l.Capacity)
		}
		if l.Down {
			capacity = "down"
		}
		for _, d := range l.Loads {
			if d.Flows == 0 && d.UntilUnixMs == 0 && !all {
				idle++
				continue
			}
			measured, others := "-", "-"
			if d.UntilUnixMs > 0 {
				measured, others = rate(d.Measured), rate(d.Background)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.Name, d.From, d.To, capacity, d.Flows, measured, others)
		}
	}
	if idle > 0 {
		fmt.Fprintf(t, "and %d directions without flows and measurements (--all)\n", idle)
	}
	for _, w := range m.Warnings {
		fmt.Fprintln(t, "warning: "+w)
	}
}

// humanRate is bit/s in three digits.
func humanRate(bits float64) string {
	for _, u := range []struct {
		name string
		bits float64
	}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}} {
		if bits >= u.bits {
			return fmt.Sprintf("%.3g%s", bits/u.bits, u.name)
		}
	}
	return fmt.Sprintf("%.3gbit", bits)
}
