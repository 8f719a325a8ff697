package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/fabric/steer"
)

// printSteered is how balancers' tunnels go through the fabric: a line a path.
func printSteered(t io.Writer, answers []answer) {
	begun := false
	for _, a := range answers {
		for _, s := range a.status.GetSteered() {
			if !begun {
				fmt.Fprint(t, "\nSTEERED TO\tBALANCER\tBY\tPATH\tPARTS\tVERDICT\tROUND TRIP\tPROBES\tLOST\tMOVED\n")
				begun = true
			}
			if s.Error != "" {
				fmt.Fprintf(t, "%s\t%s\t%s\tnot steered: %s\n", s.Server, a.name, s.By, s.Error)
			}
			for i, p := range s.Paths {
				moved := ""
				if i == 0 {
					moved = fmt.Sprint(s.Moved)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d/%d\t%s\t%v\t%d\t%d\t%s\n", s.Server, a.name, s.By, steeredPath(s.Paths, i), p.Parts, steer.Entries, steeredVerdict(p),
					time.Duration(p.RttUs)*time.Microsecond, p.Probes, p.Probes-p.Answered, moved)
			}
		}
	}
}

// steeredPath is a path's nodes, and its links where another one passes the same.
func steeredPath(all []*fairleadv1.SteeredPath, at int) string {
	nodes := inner(all[at].Nodes)
	for i, p := range all {
		if i != at && inner(p.Nodes) == nodes {
			return nodes + " (" + strings.Join(all[at].Links, " ") + ")"
		}
	}
	return nodes
}

// inner are the nodes between a path's ends.
func inner(nodes []string) string {
	if len(nodes) <= 2 {
		return "direct"
	}
	return strings.Join(nodes[1:len(nodes)-1], " ")
}

func steeredVerdict(p *fairleadv1.SteeredPath) string {
	verdict := cmp.Or(p.Verdict, "unknown")
	switch {
	case p.HeldUntilUnixMs != 0 && !p.Usable:
		return verdict + ", waits " + time.Until(time.UnixMilli(p.HeldUntilUnixMs)).Round(time.Second).String()
	case !p.Usable:
		return verdict + ", left"
	}
	return verdict
}
