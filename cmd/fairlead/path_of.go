//go:build !ctl

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newPathOfCommand() *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:   "of FLOW",
		Short: "Say which path a flow takes, steered or not",
		Long: `Follow a flow through the fabric: at each router with several equal next hops,
which one it takes and why. Flows that nobody steered can be followed, too,
as long as no router is plain.

FLOW is [tcp|udp|NUMBER] SOURCE[:PORT] > DESTINATION[:PORT] [ttl=N] [label=N];
IPv6 addresses with a port stand in brackets.`,
		Example: `  fairlead path of 'tcp 10.1.1.2:40001 > 10.1.2.2:443'
  fairlead path of 'udp [2001:db8::2]:5000 > [2001:db8::9]:53 label=0x12345 ttl=63'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			q, err := parseFlow(strings.Join(args, " "))
			if err != nil {
				return cli.Usage(err)
			}
			m, err := query(cmd.Context(), &f, f.look, fairleadv1connect.PathsClient.GetPath, q)
			if err != nil {
				return err
			}
			return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) { pathStory(t, m) })
		},
	}
	f.add(cmd)
	return cmd
}

// pathStory tells what each node on the way does.
func pathStory(t *tabwriter.Writer, m *fairleadv1.GetPathResponse) {
	by := map[string]*fairleadv1.PathChoice{}
	for _, c := range m.Choices {
		by[c.Router] = c
	}
	fmt.Fprintln(t, "NODE\tLINK\tCHOICE")
	for _, h := range m.Path.Hops {
		text := "-"
		if c := by[h.From]; c != nil {
			text = fmt.Sprintf("%s: port %s of %s (ttl %d)", c.How, portText(c.Port), portsText(c.Ports), c.Ttl)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", h.From, h.Link, text)
	}
	if m.UnknownAt == "" {
		fmt.Fprintf(t, "%s\n", m.Path.To)
		return
	}
	c := by[m.UnknownAt]
	fmt.Fprintf(t, "%s\t?\tit chooses among %d next hops in a way that nobody can foretell\n", m.UnknownAt, len(c.Ports))
}

func portsText(ports []int32) string {
	var out []string
	for _, p := range ports {
		out = append(out, portText(p))
	}
	return strings.Join(out, ",")
}

// flowText is a flow as parseFlow reads it.
func flowText(f *fairleadv1.FlowFields) string {
	text := fmt.Sprintf("%s %s > %s", f.Protocol, endText(f.Src, f.SrcPort), endText(f.Dst, f.DstPort))
	if f.FlowLabel > 0 {
		text += fmt.Sprintf(" label=%#x", f.FlowLabel)
	}
	return text
}

func endText(address string, port uint32) string {
	switch {
	case port == 0:
		return address
	case strings.Contains(address, ":"):
		return fmt.Sprintf("[%s]:%d", address, port)
	}
	return fmt.Sprintf("%s:%d", address, port)
}

// parseFlow reads a flow of the command line.
func parseFlow(text string) (*fairleadv1.GetPathRequest, error) {
	const form = "; write [tcp|udp|NUMBER] SOURCE[:PORT] > DESTINATION[:PORT] [ttl=N] [label=N]"
	words := strings.Fields(text)
	q := &fairleadv1.GetPathRequest{Flow: &fairleadv1.FlowFields{Protocol: "tcp"}}
	arrow := -1
	for i, w := range words {
		if w == ">" {
			arrow = i
		}
	}
	if arrow < 1 || arrow > 2 || len(words) < arrow+2 {
		return nil, fmt.Errorf("flow %q: no SOURCE > DESTINATION%s", text, form)
	}
	if arrow == 2 {
		q.Flow.Protocol = words[0]
	}
	var err error
	if q.Flow.Src, q.Flow.SrcPort, err = parseEnd(words[arrow-1]); err != nil {
		return nil, fmt.Errorf("flow %q: source %w%s", text, err, form)
	}
	if q.Flow.Dst, q.Flow.DstPort, err = parseEnd(words[arrow+1]); err != nil {
		return nil, fmt.Errorf("flow %q: destination %w%s", text, err, form)
	}
	for _, w := range words[arrow+2:] {
		key, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(value, 0, 32)
		switch {
		case err == nil && key == "ttl" && n >= 1 && n <= 255:
			q.Ttl = uint32(n)
		case err == nil && key == "label" && n < 1<<20:
			q.Flow.FlowLabel = uint32(n)
		default:
			return nil, fmt.Errorf("flow %q: %q is neither ttl=1…255 nor label=0…0xfffff%s", text, w, form)
		}
	}
	return q, nil
}

// parseEnd reads an address with or without a port.
func parseEnd(text string) (address string, port uint32, err error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String(), 0, nil
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no address, or address and port", text)
	}
	return ap.Addr().String(), uint32(ap.Port()), nil
}
