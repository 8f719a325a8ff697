package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newBGPCommand() *cobra.Command {
	var output, name string
	var timeout time.Duration
	c := control{looks: true}
	cmd := &cobra.Command{
		Use:     "bgp [VIP|ADDRESS]",
		Aliases: []string{"l2"},
		Short:   "Show which addresses are announced to routers or held on an Ethernet, and why others are not",
		Long: `Ask every balancer and switch of the file which of its VIPs' addresses it
announces by BGP, and to whom: its neighbours with their state, and for each
address who hears of it, or why it is not announced. Where balancers hold
addresses on an Ethernet (l2), who holds each, and why the others do not.
With a VIP's name or an address, of that one alone.`,
		Example: "  fairlead bgp -f fairlead.yaml\n  fairlead l2 web\n  fairlead bgp 192.0.2.10 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			answers, err := askAll(cmd, &c, name, timeout)
			if err != nil {
				return err
			}
			pick, value, table := only, bgpValue, bgpTable
			if slices.ContainsFunc(answers, holds) { // the file has one of the two
				pick, value, table = onlyHeld, l2Value, l2Table
				answers = slices.DeleteFunc(answers, func(a answer) bool { return a.role != "lb" || a.err == nil && !holds(a) })
			} else {
				answers = slices.DeleteFunc(answers, func(a answer) bool { return !announces(a) })
			}
			if len(answers) == 0 {
				return errors.New("no balancer and no switch was started with bgp or l2, so nobody announces; write it, `fairlead apply`, then restart the daemons (docs/bgp.md, docs/l2.md)")
			}
			if len(args) == 1 {
				if err := pick(answers, args[0]); err != nil {
					return err
				}
			}
			if err := cli.PrintAs(cmd.OutOrStdout(), output, value(answers), func(w io.Writer) error { return table(w, answers) }); err != nil {
				return err
			}
			if slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil }) {
				return nil
			}
			return fmt.Errorf("no daemon answered (%s: %s); start it with fairlead lb or switch, or see its log", answers[0].name, api.ErrorText(answers[0].err))
		},
	}
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	cmd.Flags().StringVar(&name, "name", "", "ask this daemon alone")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for each daemon")
	return cmd
}

// announces: a daemon has BGP, or is one that may and does not answer.
func announces(a answer) bool {
	if a.err != nil {
		return a.role != "host"
	}
	return a.status.Bgp != nil
}

// only leaves the address called what, or of the VIP called so.
func only(answers []answer, what string) error {
	found, answered := false, false
	var known []string
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		answered = true
		b := a.status.Bgp
		b.Addresses = slices.DeleteFunc(b.Addresses, func(d *fairleadv1.BGPAddress) bool {
			known = append(known, d.Vips...)
			return d.Address != what && !slices.Contains(d.Vips, what)
		})
		found = found || len(b.Addresses) > 0
	}
	if found || !answered {
		return nil
	}
	slices.Sort(known)
	return fmt.Errorf("no VIP and no address of one is called %s (VIPs: %s)", what, strings.Join(slices.Compact(known), ", "))
}

// bgpValue is the stable form for -o json and yaml: field names as in the API's schema.
func bgpValue(answers []answer) any {
	daemons := []any{}
	for _, a := range answers {
		m := map[string]any{"name": a.name, "reachable": a.err == nil, "error": ""}
		if a.err != nil {
			m["error"] = a.err.Error()
		} else {
			for key, v := range plainMessage(a.status.Bgp.ProtoReflect()) {
				m[key] = v
			}
		}
		daemons = append(daemons, m)
	}
	return map[string]any{"daemons": daemons}
}

func bgpTable(w io.Writer, answers []answer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NEIGHBOUR\tOF\tAS\tSTATE\tSINCE\tBFD\tLAST ERROR")
	for _, a := range answers {
		if a.err != nil {
			fmt.Fprintf(t, "-\t%s\t-\tno answer\t-\t-\t%s\n", a.name, api.ErrorText(a.err))
			continue
		}
		for _, n := range a.status.Bgp.Neighbours {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", n.Address, a.name, n.As, n.State, since(n.SinceUnixMs), cmp.Or(n.Bfd, "-"), cmp.Or(n.Error, "-"))
		}
	}
	fmt.Fprintln(t, "\nADDRESS\tVIPS\tBY\tANNOUNCED\tSINCE\tTO, OR WHY NOT")
	for _, a := range answers {
		for _, d := range a.status.GetBgp().GetAddresses() {
			word, lines := "no", slices.Clone(d.Why)
			if d.Announced {
				word, lines = "yes", append([]string{strings.Join(d.HeardBy, ", ")}, lines...)
			}
			if len(lines) == 0 {
				lines = []string{"-"}
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Address, strings.Join(d.Vips, ", "), a.name, word, since(d.SinceUnixMs), lines[0])
			for _, more := range lines[1:] {
				fmt.Fprintf(t, "\t\t\t\t\t%s\n", more)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if text := a.status.GetBgp().GetError(); text != "" {
			if _, err := fmt.Fprintf(w, "\n%s: what stands above could not be put in force: %s\n", a.name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// printBGP is a line a daemon that announces.
func printBGP(t io.Writer, answers []answer) {
	begun := false
	for _, a := range answers {
		b := a.status.GetBgp()
		if b == nil {
			continue
		}
		if !begun {
			fmt.Fprint(t, "\nBGP\tNEIGHBOURS\tADDRESSES\tNOT ANNOUNCED\n")
			begun = true
		}
		up, told := 0, 0
		var not []string
		for _, n := range b.Neighbours {
			if n.Established {
				up++
			}
		}
		for _, d := range b.Addresses {
			if d.Announced {
				told++
			} else {
				not = append(not, d.Address+" ("+cmp.Or(strings.Join(d.Why, "; "), "-")+")")
			}
		}
		const most = 3 // fairlead bgp shows all
		if more := len(not) - most; more > 0 {
			not = append(not[:most], fmt.Sprintf("and %d more: fairlead bgp", more))
		}
		fmt.Fprintf(t, "%s\t%d of %d up\t%d of %d announced\t%s\n", a.name, up, len(b.Neighbours), told, len(b.Addresses), cmp.Or(strings.Join(not, ", "), "-"))
	}
}
