package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// movedAt is what one balancer has moved, as printed.
type movedAt struct {
	Balancer    string                   `json:"balancer"`
	Error       string                   `json:"error,omitempty"`
	Matched     uint64                   `json:"matched"`
	Moved       uint64                   `json:"moved"`
	Connections []*fairleadv1.Connection `json:"connections"`
}

func newMoveCommand() *cobra.Command {
	var output, name string
	var timeout time.Duration
	c := control{looks: true}
	r := &fairleadv1.MoveConnectionsRequest{}
	cmd := &cobra.Command{
		Use:   "move CLIENT",
		Short: "Take connections through another server of their VIP, and back",
		Long: `Have the packets of a client's connections go to another server of their VIP, such
as one that scrubs, and with --back to their own again. The client is address:port,
which is one connection, an address or a prefix. It is for VIPs of scheme
cheetah-stateful; each balancer moves what it knows.

The other server has no socket of these connections: it must pass their packets on to
their own server, or it resets them (docs/stateful.md, "Moving"). While its health
checks fail, packets go to their own server.`,
		Example: `  fairlead connections move 203.0.113.7:4711 --vip web --to scrub1
  fairlead connections move 203.0.113.0/24 --vip web --to scrub1
  fairlead connections move 203.0.113.0/24 --vip web --back`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if r.Client = args[0]; r.Back == (r.Server != "") {
				return cli.Usagef("say either --to SERVER or --back")
			}
			if r.Vip == "" {
				return cli.Usagef("say of which VIP with --vip")
			}
			answers, err := askAll(cmd, &c, name, timeout)
			if err != nil {
				return err
			}
			all, err := askBalancers(cmd.Context(), answers, timeout, func(ctx context.Context, a answer, m *movedAt) error {
				m.Balancer, m.Connections = a.name, []*fairleadv1.Connection{}
				if a.err != nil {
					return a.err
				}
				resp, err := a.client.MoveConnections(ctx, connect.NewRequest(r))
				if err != nil {
					return err
				}
				m.Matched, m.Moved, m.Connections = resp.Msg.Matched, resp.Msg.Moved, append(m.Connections, resp.Msg.Connections...)
				return nil
			}, func(m *movedAt, err string) { m.Error = err })
			if err != nil {
				return err
			}
			if err := cli.PrintAs(cmd.OutOrStdout(), output, all, func(w io.Writer) error { return movedTable(w, all) }); err != nil {
				return err
			}
			return nothingMoved(all, r)
		},
	}
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "ask this balancer alone")
	f.StringVar(&r.Vip, "vip", "", "the VIP of these connections")
	f.StringVar(&r.Server, "to", "", "the server of the VIP that their packets go to")
	f.BoolVar(&r.Back, "back", false, "to their own servers again")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for each balancer")
	return cmd
}

// nothingMoved is an error where no balancer knows such a connection, or one could not
// be asked.
func nothingMoved(all []movedAt, r *fairleadv1.MoveConnectionsRequest) error {
	matched := uint64(0)
	for _, m := range all {
		if m.Error != "" {
			return fmt.Errorf("%s: %s: what it knows of was not moved", m.Balancer, m.Error)
		}
		matched += m.Matched
	}
	if matched == 0 {
		return fmt.Errorf("no balancer knows a connection of %s to vip %s: `fairlead connections --vip %s` lists them", r.Client, r.Vip, r.Vip)
	}
	return nil
}

func movedTable(w io.Writer, all []movedAt) error {
	for _, m := range all {
		if m.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", m.Balancer, m.Error)
			continue
		}
		fmt.Fprintf(w, "%s: %d of %d connections moved\n", m.Balancer, m.Moved, m.Matched)
		for _, c := range m.Connections {
			line := fmt.Sprintf("  %s to %s (%s)", c.Client, c.Server, c.Address)
			if c.Home != "" {
				line += fmt.Sprintf("; it is a connection of %s (%s)", c.Home, c.HomeAddress)
			}
			fmt.Fprintln(w, line)
		}
	}
	return nil
}
