package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
)

// connected is one balancer's connections, as printed.
type connected struct {
	Balancer    string                      `json:"balancer"`
	Error       string                      `json:"error,omitempty"`
	Total       uint64                      `json:"total"`
	Matched     uint64                      `json:"matched"`
	RateMs      uint32                      `json:"rate_ms,omitempty"`
	Connections []*fairleadv1.Connection    `json:"connections"`
	Sums        []*fairleadv1.ConnectionSum `json:"sums,omitempty"`
}

func newConnectionsCommand() *cobra.Command {
	var output, name string
	var timeout, rate time.Duration
	var prefix4, prefix6 int
	c := control{looks: true}
	r := &fairleadv1.GetConnectionsRequest{}
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List the connections of VIPs of scheme cheetah-stateful",
		Long: `Ask the balancers what they know of each connection of VIPs of scheme
cheetah-stateful: client, server, state, age, packets and bytes. The largest come
first; with --rate, what they send a second is measured, and --order byte_rate lists
the top talkers. --sum adds up all that match, by server, by prefixes of clients or
by VIP.`,
		Example: `  fairlead connections --vip web
  fairlead connections --rate 1s --order packet_rate --most 10
  fairlead connections --client 203.0.113.0/24 --state live -o json
  fairlead connections --sum client --prefix4 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if rate < 0 || prefix4 < 1 || prefix4 > 32 || prefix6 < 1 || prefix6 > 128 {
				return cli.Usagef("--rate must not be negative, --prefix4 1 to 32, --prefix6 1 to 128")
			}
			r.RateMs, r.ClientBits4, r.ClientBits6 = uint32(rate.Milliseconds()), uint32(prefix4), uint32(prefix6)
			if strings.HasSuffix(r.Order, "_rate") && rate == 0 {
				return cli.Usagef("--order %s: say over how long with --rate, such as --rate 1s", r.Order)
			}
			answers, err := askAll(cmd, &c, name, timeout)
			if err != nil {
				return err
			}
			all, err := connections(cmd.Context(), answers, r, timeout+rate)
			if err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, all, func(w io.Writer) error { return connectionsTable(w, all) })
		},
	}
	cmd.AddCommand(newMoveCommand())
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "ask this balancer alone")
	f.StringVar(&r.Vip, "vip", "", "only connections of this VIP")
	f.StringVar(&r.Server, "server", "", "only connections of this server")
	f.StringVar(&r.Client, "client", "", "only connections of this address or prefix")
	f.StringVar(&r.State, "state", "", "only those that are new or live")
	f.StringVar(&r.Order, "order", "bytes", "what is listed first: most packets, bytes, packet_rate, byte_rate, age or idle")
	f.Uint32Var(&r.Most, "most", 50, "how many of each balancer are listed")
	f.DurationVar(&rate, "rate", 0, "measure rates for so long")
	f.StringVar(&r.SumBy, "sum", "", "sum all that match: by server, client or vip")
	f.IntVar(&prefix4, "prefix4", 24, "of --sum client: bits of IPv4 prefixes")
	f.IntVar(&prefix6, "prefix6", 48, "of --sum client: bits of IPv6 prefixes")
	f.DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for each balancer")
	return cmd
}

// connections asks the balancers among those that answered. Its error is a request's that
// none takes.
func connections(ctx context.Context, answers []answer, r *fairleadv1.GetConnectionsRequest, timeout time.Duration) ([]connected, error) {
	return askBalancers(ctx, answers, timeout, func(ctx context.Context, a answer, c *connected) error {
		c.Balancer, c.Connections = a.name, []*fairleadv1.Connection{}
		if a.err != nil {
			return a.err
		}
		resp, err := a.client.GetConnections(ctx, connect.NewRequest(r))
		if err != nil {
			return err
		}
		m := resp.Msg
		c.Total, c.Matched, c.RateMs, c.Connections, c.Sums = m.Total, m.Matched, m.RateMs, append(c.Connections, m.Connections...), m.Sums
		return nil
	}, func(c *connected, err string) { c.Error = err })
}

// askBalancers asks the balancers among those that answered, all at once. Its error is
// that of the first, where all fail.
func askBalancers[T any](ctx context.Context, answers []answer, timeout time.Duration, ask func(context.Context, answer, *T) error, failed func(*T, string)) ([]T, error) {
	answers = slices.DeleteFunc(answers, func(a answer) bool {
		return a.err == nil && a.status.Role != fairleadv1.Role_ROLE_BALANCER || a.err != nil && a.role != string(config.RoleBalancer)
	})
	if len(answers) == 0 {
		return nil, fmt.Errorf("no balancer is there to ask: connections are known to `fairlead lb`")
	}
	all, errs := make([]T, len(answers)), make([]error, len(answers))
	var wg sync.WaitGroup
	for i, a := range answers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			errs[i] = ask(ctx, a, &all[i])
		})
	}
	wg.Wait()
	wrong := 0
	for i, err := range errs {
		if err != nil {
			failed(&all[i], api.ErrorText(err))
			wrong++
		}
	}
	if wrong == len(all) {
		return nil, fmt.Errorf("%s: %s", answers[0].name, api.ErrorText(errs[0]))
	}
	return all, nil
}

func connectionsTable(w io.Writer, all []connected) error {
	for i, b := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if b.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", b.Balancer, b.Error)
			continue
		}
		fmt.Fprintf(w, "%s: %d of %d connections match", b.Balancer, b.Matched, b.Total)
		if n := uint64(len(b.Connections)); n < b.Matched {
			fmt.Fprintf(w, ", %d are listed", n)
		}
		fmt.Fprintln(w)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if len(b.Connections) > 0 {
			fmt.Fprint(t, "VIP\tCLIENT\tSERVER\tSTATE\tAGE\tIDLE\tPACKETS\tBYTES")
			if b.RateMs > 0 {
				fmt.Fprint(t, "\tPACKETS/S\tBYTES/S")
			}
			fmt.Fprintln(t)
		}
		for _, c := range b.Connections {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d", c.Vip, c.Client, serverOf(c), c.State, short(c.AgeMs), short(c.IdleMs), c.Packets, c.Bytes)
			if b.RateMs > 0 {
				fmt.Fprintf(t, "\t%.1f\t%.0f", c.PacketRate, c.ByteRate)
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if len(b.Sums) == 0 {
			continue
		}
		fmt.Fprintln(w)
		fmt.Fprint(t, "SUM OF\tCONNECTIONS\tPACKETS\tBYTES")
		if b.RateMs > 0 {
			fmt.Fprint(t, "\tPACKETS/S\tBYTES/S")
		}
		fmt.Fprintln(t)
		for _, s := range b.Sums {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d", s.Of, s.Connections, s.Packets, s.Bytes)
			if b.RateMs > 0 {
				fmt.Fprintf(t, "\t%.1f\t%.0f", s.PacketRate, s.ByteRate)
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// serverOf is where a connection's packets go, and whose it is if that is another.
func serverOf(c *fairleadv1.Connection) string {
	if c.Home != "" {
		return c.Server + " (of " + c.Home + ")"
	}
	return cmp.Or(c.Server, "-")
}

func short(ms uint64) string {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}
