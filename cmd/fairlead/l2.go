package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
)

// holds: a daemon may hold addresses on its Ethernet.
func holds(a answer) bool { return a.status.GetL2() != nil }

// onlyHeld leaves the address called what, or of the VIP called so.
func onlyHeld(answers []answer, what string) error {
	found := false
	var known []string
	for _, a := range answers {
		h := a.status.GetL2()
		if h == nil {
			continue
		}
		h.Addresses = slices.DeleteFunc(h.Addresses, func(d *fairleadv1.L2Address) bool {
			known = append(known, d.Vips...)
			return d.Address != what && !slices.Contains(d.Vips, what)
		})
		found = found || len(h.Addresses) > 0
	}
	if found {
		return nil
	}
	slices.Sort(known)
	return fmt.Errorf("no VIP and no address of one is called %s (VIPs: %s)", what, strings.Join(slices.Compact(known), ", "))
}

// l2Value is the stable form for -o json and yaml: field names as in the API's schema.
func l2Value(answers []answer) any {
	daemons := []any{}
	for _, a := range answers {
		m := map[string]any{"name": a.name, "reachable": a.err == nil, "error": ""}
		if a.err != nil {
			m["error"] = a.err.Error()
		} else {
			for key, v := range plainMessage(a.status.GetL2().ProtoReflect()) {
				m[key] = v
			}
		}
		daemons = append(daemons, m)
	}
	return map[string]any{"daemons": daemons}
}

// l2Table is who holds each address, and why others do not.
func l2Table(w io.Writer, answers []answer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tVIPS\tAT\tHELD\tSINCE\tON, OR WHY NOT")
	var rows []l2Row
	for _, a := range answers {
		if a.err != nil {
			fmt.Fprintf(t, "-\t-\t%s\tno answer\t-\t%s\n", a.name, api.ErrorText(a.err))
			continue
		}
		for _, d := range a.status.L2.Addresses {
			rows = append(rows, l2Row{a.name, a.status.L2.Interfaces, d})
		}
	}
	// By address, and who holds it first.
	slices.SortStableFunc(rows, func(x, y l2Row) int {
		return cmp.Or(cmp.Compare(x.is.Address, y.is.Address), -cmp.Compare(x.rank(), y.rank()))
	})
	for _, r := range rows {
		word, lines := "no", slices.Clone(r.is.Why)
		if r.is.Held {
			word, lines = "yes", append([]string{strings.Join(r.on, ", ")}, lines...)
		}
		if len(lines) == 0 {
			lines = []string{"-"}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.is.Address, strings.Join(r.is.Vips, ", "), r.by, word, since(r.is.SinceUnixMs), lines[0])
		for _, more := range lines[1:] {
			fmt.Fprintf(t, "\t\t\t\t\t%s\n", more)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if text := a.status.GetL2().GetError(); text != "" {
			if _, err := fmt.Fprintf(w, "\n%s goes by what it knows and hears: %s\n", a.name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// l2Row is an address at a balancer.
type l2Row struct {
	by string
	on []string
	is *fairleadv1.L2Address
}

func (r l2Row) rank() int {
	if r.is.Held {
		return 1
	}
	return 0
}

// printL2 is a line a daemon that may hold addresses.
func printL2(t io.Writer, answers []answer) {
	begun := false
	for _, a := range answers {
		h := a.status.GetL2()
		if h == nil {
			continue
		}
		if !begun {
			fmt.Fprint(t, "\nL2\tINTERFACES\tADDRESSES\tMAY NOT HOLD\n")
			begun = true
		}
		held := 0
		var not []string
		for _, d := range h.Addresses {
			switch {
			case d.Held:
				held++
			case d.Holder == "": // else another has it, as should be
				not = append(not, d.Address+" ("+cmp.Or(strings.Join(d.Why, "; "), "-")+")")
			}
		}
		const most = 3 // fairlead l2 shows all
		if more := len(not) - most; more > 0 {
			not = append(not[:most], fmt.Sprintf("and %d more: fairlead l2", more))
		}
		fmt.Fprintf(t, "%s\t%s\tholds %d of %d\t%s\n", a.name, strings.Join(h.Interfaces, ", "), held, len(h.Addresses), cmp.Or(strings.Join(not, ", "), "-"))
	}
}
