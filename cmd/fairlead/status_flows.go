package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/vip"
)

// hashLine says by which hash a VIP places what it does not remember, and
// what it prepares for; empty for a daemon that knows of none.
func hashLine(v *fairleadv1.VIP) string {
	if v.Hash == "" {
		return ""
	}
	line := "hash " + v.Hash
	if v.HashRows > 0 {
		line += fmt.Sprintf(" of %d rows", v.HashRows)
	}
	if v.Capacity > 0 {
		line += fmt.Sprintf(", capacity %d", v.Capacity)
	}
	if v.Horizon > 0 {
		line += fmt.Sprintf(", horizon %d", v.Horizon)
	}
	if vip.Scheme(v.Scheme).Row().Foresees() {
		line += fmt.Sprintf(", warm-up %v", time.Duration(v.WarmUpMs)*time.Millisecond)
	}
	if v.Share {
		line += ", entries shared"
	}
	return line
}

// flowLine sums what the balancers tracked of a VIP; empty for a scheme that
// tracks nothing.
func flowLine(v *fairleadv1.VIP, total *fairleadv1.Counters) string {
	if vip.Scheme(v.Scheme).Row().Tracks == vip.None {
		return ""
	}
	line := fmt.Sprintf("tracked %d, packets by entry %d, entries replaced %d, refused %d", total.Tracked, total.FlowHits, total.FlowReplaced, total.FlowFull)
	if total.ShareLost > 0 {
		line += fmt.Sprintf(", not told peers %d", total.ShareLost)
	}
	return line
}

// seatLine says what balancers of scheme cheetah-stateful gave seats; empty for others.
func seatLine(v *fairleadv1.VIP, total *fairleadv1.Counters) string {
	if v.SeatBits == 0 {
		return ""
	}
	return fmt.Sprintf("seats given %d, refused %d (partition full), packets at another's seat %d", total.Seated, total.SeatFull, total.SeatWrong)
}

// rateLine says which limits a VIP has, and what they have dropped; empty: it has none.
func rateLine(v *fairleadv1.VIP, total *fairleadv1.Counters) string {
	if v.Rates == "" {
		return ""
	}
	line := fmt.Sprintf("limits a second: %s; dropped %d", v.Rates, total.Rated)
	if total.RateLost > 0 {
		line += fmt.Sprintf(", sources forgotten %d (raise limits.rate_sources)", total.RateLost)
	}
	return line
}

// printFlows shows each balancer's flow table, and what it and its peers tell
// each other.
func printFlows(w io.Writer, answers []answer) {
	title := false
	for _, a := range answers {
		if a.err != nil || a.status.Flows == nil {
			continue
		}
		if !title {
			fmt.Fprintln(w, "\nFlow tables: entries as counted every 30 s; the limit is the file's limits.flows, rounded up to whole sets of 7")
			fmt.Fprintln(w, "FLOW TABLE\tCONFIRMED\tUNCONFIRMED\tLIMIT")
			title = true
		}
		limit := uint64(0)
		for _, l := range a.status.Limits {
			if l.Name == "flows" {
				limit = l.Limit
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", a.status.Name, a.status.Flows.Confirmed, a.status.Flows.Unconfirmed, limit)
	}
	title = false
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, p := range a.status.Sharing.GetPeers() {
			if !title {
				fmt.Fprintln(w, "\nSHARES ENTRIES\tWITH\tTOLD\tDROPPED\tWAITING\tREAD\tPROBLEM")
				title = true
			}
			read := fmt.Sprint(p.Pulled)
			if p.Pending {
				read += " (not all)"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", a.status.Name, p.Name, p.Sent, p.Dropped, p.Queued, read, cmp.Or(p.Error, "-"))
		}
	}
}
