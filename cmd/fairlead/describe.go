package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// describeResult is what describe prints as JSON.
type describeResult struct {
	Version uint64            `json:"version"`
	VIPs    []describedVIP    `json:"vips"`
	Daemons []describedDaemon `json:"daemons"`
}

type describedVIP struct {
	Name       string          `json:"name"`
	Address    string          `json:"address"`
	Port       uint32          `json:"port"` // 0: all
	Protocol   string          `json:"protocol"`
	Scheme     string          `json:"scheme"`
	Policy     string          `json:"policy"`
	Forwarding string          `json:"forwarding"`
	Slots      []describedSlot `json:"slots"`
}

type describedSlot struct {
	Number    uint32     `json:"number"`
	Server    string     `json:"server"`
	Address   string     `json:"address"`
	Weight    uint32     `json:"weight"`
	State     string     `json:"state"`
	RestUntil *time.Time `json:"rest_until,omitempty"`
	// Connections is null where nobody counts them: Uncounted says why.
	Connections *uint64 `json:"connections"`
	Uncounted   string  `json:"uncounted,omitempty"`
	// Health is what each balancer and switch knows.
	Health []seenHealth `json:"health"`
}

// seenHealth is what one of them knows; Health is up, down, unknown, unchecked, or silent
// where it does not answer.
type seenHealth struct {
	Daemon string     `json:"daemon"`
	Health string     `json:"health"`
	Detail string     `json:"detail,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

type describedDaemon struct {
	Name    string `json:"name"`
	Alive   bool   `json:"alive"`
	Version uint64 `json:"version"`
	Error   string `json:"error"`
}

func newDescribeCommand() *cobra.Command {
	var c control
	var output string
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show all that is known of one VIP or one server",
		Long: `A VIP's choices and its servers, or a server in all its VIPs: slot, state, weight,
established connections as the server's agent counts them, its health as each balancer
and switch sees it, and how far its agent is. Takes the role view.`,
		Example: "  fairlead describe web\n  fairlead describe s1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			resp, err := askControl(&c, cmd, lookTimeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.DescribeResponse], error) {
				r, err := c.Describe(ctx, connect.NewRequest(&fairleadv1.DescribeRequest{Vip: args[0]}))
				if connect.CodeOf(err) != connect.CodeNotFound || err == nil {
					return r, err
				}
				of, ofErr := c.Describe(ctx, connect.NewRequest(&fairleadv1.DescribeRequest{Server: args[0]}))
				if connect.CodeOf(ofErr) == connect.CodeNotFound {
					return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%s is neither a VIP nor a server of one; `fairlead get config` has all", args[0]))
				}
				return of, ofErr
			})
			if err != nil {
				return refused(err)
			}
			r := described(resp)
			return cli.PrintAs(cmd.OutOrStdout(), output, r, r.table)
		},
	}
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	return cmd
}

func described(resp *fairleadv1.DescribeResponse) describeResult {
	r := describeResult{Version: resp.Version, VIPs: []describedVIP{}, Daemons: []describedDaemon{}}
	for _, v := range resp.Vips {
		d := describedVIP{v.Name, v.Address, v.Port, v.Protocol, v.Scheme, v.Policy, v.Forwarding, []describedSlot{}}
		for _, s := range v.Slots {
			slot := describedSlot{Number: s.Number, Server: s.Server, Address: s.Address, Weight: s.Weight, State: s.State, Uncounted: s.Uncounted}
			if s.RestUntilUnixMs != 0 {
				slot.RestUntil = new(time.UnixMilli(s.RestUntilUnixMs).UTC())
			}
			if s.Counted {
				slot.Connections = &s.Connections
			}
			slot.Health = []seenHealth{}
			for _, h := range s.Health {
				one := seenHealth{Daemon: h.Daemon, Health: h.Health, Detail: h.Detail}
				if h.SinceUnixMs != 0 {
					one.Since = new(time.UnixMilli(h.SinceUnixMs).UTC())
				}
				slot.Health = append(slot.Health, one)
			}
			d.Slots = append(d.Slots, slot)
		}
		r.VIPs = append(r.VIPs, d)
	}
	for _, d := range resp.Daemons {
		r.Daemons = append(r.Daemons, describedDaemon{d.Name, d.Alive, d.Version, d.Error})
	}
	return r
}

func (r describeResult) table(w io.Writer) error {
	for _, v := range r.VIPs {
		port := "all ports"
		if v.Port != 0 {
			port = "port " + strconv.Itoa(int(v.Port))
		}
		fmt.Fprintf(w, "%s: %s, %s, %s; scheme %s, policy %s, forwarding %s\n", v.Name, v.Address, port, v.Protocol, v.Scheme, v.Policy, v.Forwarding)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  SLOT\tSERVER\tADDRESS\tWEIGHT\tSTATE\tCONNECTIONS\tHEALTH")
		for _, s := range v.Slots {
			state, live := s.State, "unknown: "+s.Uncounted
			if s.RestUntil != nil && s.State == "resting" {
				state += " until " + s.RestUntil.Local().Format(time.DateTime)
			}
			if s.Connections != nil {
				live = strconv.FormatUint(*s.Connections, 10)
			}
			fmt.Fprintf(t, "  %d\t%s\t%s\t%d\t%s\t%s\t%s\n", s.Number, s.Server, s.Address, s.Weight, state, live, healthWords(s.Health))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, d := range r.Daemons {
		is := fmt.Sprintf("goes by version %d of %d", d.Version, r.Version)
		if !d.Alive {
			is = "does not reach the store"
		}
		if d.Error != "" {
			is += ": " + d.Error
		}
		if _, err := fmt.Fprintf(w, "agent of %s: %s\n", d.Name, is); err != nil {
			return err
		}
	}
	return nil
}

// healthWords is what all know, those that know the same together.
func healthWords(all []seenHealth) string {
	var order []string
	at := map[string][]string{}
	for _, h := range all {
		word := h.Health
		if h.Detail != "" {
			word += " (" + h.Detail + ")"
		}
		if at[word] == nil {
			order = append(order, word)
		}
		at[word] = append(at[word], h.Daemon)
	}
	for i, word := range order {
		order[i] = word + " at " + strings.Join(at[word], ", ")
	}
	return cmp.Or(strings.Join(order, "; "), "-")
}
