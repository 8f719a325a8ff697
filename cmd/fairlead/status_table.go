package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// statusTable prints the status for people: daemons, then each VIP with its
// servers over all balancers, then flow tables, reasons and warnings.
// force is what is in force where no balancer answers to say so, else nil; store what a
// controller says, nil where none was asked.
func statusTable(w io.Writer, answers []answer, force *controller.Assignment, store *storeView) error {
	newest, same := assignmentVersions(answers)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	store.print(t)
	switch {
	case newest == 0: // nobody answered
	case same:
		fmt.Fprintf(t, "Assignment version %d at every daemon that answers%s.\n\n", newest, silentNote(answers))
	case len(byDigest(answers, newest)) > 1:
		var who []string
		for _, g := range byDigest(answers, newest) {
			who = append(who, fmt.Sprintf("%s at %s", g.digest, strings.Join(g.names, ", ")))
		}
		fmt.Fprintf(t, "Assignment version %d is NOT ONE%s (digest %s): fairlead apply gives all what most have.\n\n", newest, silentNote(answers), strings.Join(who, "; "))
	default:
		fmt.Fprintf(t, "Assignment versions DIFFER (newest %d)%s: fairlead apply brings all to one.\n\n", newest, silentNote(answers))
	}
	if programVersions(answers) {
		fmt.Fprint(t, "Programs DIFFER (column PROGRAM): right while an upgrade is under way, else finish it.\n\n")
	}
	fmt.Fprintln(t, "DAEMON\tROLE\tASSIGNMENT\tKEYS\tINTERFACES\tCLOCK\tUP\tPROGRAM\tPINNED")
	for _, a := range answers {
		if a.err != nil {
			fmt.Fprintf(t, "%s\t%s\tno answer\t-\t-\t-\t-\t-\t%s\n", a.name, a.role, api.ErrorText(a.err))
			continue
		}
		s := a.status
		mark := ""
		if s.AssignmentVersion != newest {
			mark = " (old)"
		}
		version := fmt.Sprint(s.AssignmentVersion) + mark
		if s.Role == fairleadv1.Role_ROLE_ROUTER {
			version = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, roleWord(s.Role), version,
			cmp.Or(keys(s), "-"), interfaces(s), cmp.Or(s.Clock.GetSource(), "-"), since(s.StartedUnixMs), s.Version, s.PinDir)
	}
	for _, v := range mergeVIPs(answers, force) {
		v.print(t)
	}
	printSwitches(t, answers)
	printBGP(t, answers)
	printL2(t, answers)
	printSteered(t, answers)
	printRouters(t, answers)
	printFlows(t, answers)
	printReasons(t, answers, fairleadv1.Role_ROLE_BALANCER, "balancers")
	printReasons(t, answers, fairleadv1.Role_ROLE_HOST, "hosts")
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if a.err == nil && len(a.status.NotReady) > 0 {
			if _, err := fmt.Fprintf(w, "\n%s is not ready: a router should not use it yet\n  %s\n", a.name, strings.Join(a.status.NotReady, "\n  ")); err != nil {
				return err
			}
		}
	}
	return printWarnings(w, warnings(answers, store))
}

func keys(s *fairleadv1.GetStatusResponse) string {
	var words []string
	for _, e := range s.Epochs {
		word := fmt.Sprint(e)
		if e == s.StampEpoch && len(s.Epochs) > 1 {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

func interfaces(s *fairleadv1.GetStatusResponse) string {
	var words []string
	for _, i := range s.Interfaces {
		words = append(words, strings.TrimRight(i.Name+" "+i.XdpMode, " "))
	}
	if s.Adopted {
		return strings.Join(words, ", ") + " (adopted)"
	}
	return strings.Join(words, ", ")
}

func since(unixMS int64) string {
	return time.Since(time.UnixMilli(unixMS)).Round(time.Second).String()
}

// vipView is one VIP over all daemons.
type vipView struct {
	vip     *fairleadv1.VIP // of the newest assignment
	version uint64
	slots   map[uint32]*slotView
	total   fairleadv1.Counters
	open    bool // fail-open somewhere
	// earlier is how many connections live that were opened before the VIP's migration,
	// at agents that say so.
	earlier, saying uint64
	chains          []chainView
	// balancers that answered: without one nothing was counted.
	balancers int
}

type slotView struct {
	slot                *fairleadv1.Slot // of the newest assignment
	health              map[string][]string
	unresolved          []string
	takes, balancers    int
	forwarders          int // balancers and switches
	packets, bytes, new uint64
	conns, live         int64
	agent               bool
	buckets, previous   uint32 // where most are
}

// silentNote counts those that do not answer; empty if all do.
func silentNote(answers []answer) string {
	var names []string
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	verb := "do"
	if len(names) == 1 {
		verb = "does"
	}
	return fmt.Sprintf(" (%d of %d %s not: %s)", len(names), len(answers), verb, strings.Join(names, ", "))
}

func mergeVIPs(answers []answer, force *controller.Assignment) []*vipView {
	var order []*vipView
	byID := map[uint32]*vipView{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, v := range a.status.Vips {
			view := byID[v.Id]
			if view == nil {
				view = &vipView{slots: map[uint32]*slotView{}}
				byID[v.Id] = view
				order = append(order, view)
			}
			if view.vip == nil || a.status.AssignmentVersion > view.version {
				view.vip, view.version = v, a.status.AssignmentVersion
			}
			view.add(a.status, v)
		}
	}
	if force == nil {
		return order
	}
	// Agents know of their own slots alone.
	for i := range force.VIPs {
		v := statusOf(&force.VIPs[i])
		view := byID[v.Id]
		if view == nil {
			view = &vipView{vip: v, version: force.Version, slots: map[uint32]*slotView{}}
			byID[v.Id] = view
			order = append(order, view)
		}
		for _, slot := range v.Slots {
			if view.slots[slot.Number] == nil {
				view.slots[slot.Number] = &slotView{slot: slot}
			}
		}
	}
	return order
}

// statusOf is what the assignment alone says of a VIP.
func statusOf(v *controller.VIP) *fairleadv1.VIP {
	out := &fairleadv1.VIP{Id: v.ID, Name: v.Name, Address: v.Address.String(), Port: uint32(v.Port), Protocol: v.Protocol,
		Scheme: string(v.Scheme), Policy: string(v.Policy), Forwarding: string(v.Forwarding), Hash: string(v.Hash), HashRows: uint32(v.HashRows),
		Capacity: uint32(v.Capacity), Horizon: uint32(v.Horizon), WarmUpMs: uint64(v.WarmUp.Milliseconds()), Share: v.Share, Mptcp: v.MPTCP,
		Handshake: v.Handshakes()}
	if m := v.Migration; m != nil {
		out.Migration = &fairleadv1.Migration{From: string(m.From.Scheme), Stage: string(m.Stage), StageSinceUnixMs: m.Since.UnixMilli()}
	}
	if v.Bucketed() {
		out.Buckets = &fairleadv1.Buckets{Count: uint32(v.Buckets.Len()), Generation: v.Buckets.Generation, ChainTimeMs: uint64(v.ChainTime.Milliseconds())}
	}
	for _, s := range v.Slots {
		state := fairleadv1.SlotState_value["SLOT_STATE_"+strings.ToUpper(string(s.State))]
		out.Slots = append(out.Slots, &fairleadv1.Slot{Number: uint32(s.Number), Server: s.Server, Address: s.Address.String(),
			Weight: uint32(s.Weight), State: fairleadv1.SlotState(state)})
	}
	return out
}

func (view *vipView) add(s *fairleadv1.GetStatusResponse, v *fairleadv1.VIP) {
	balancer := s.Role == fairleadv1.Role_ROLE_BALANCER
	if balancer {
		view.balancers++
		view.open = view.open || v.FailOpen
		view.total.NewConnections += v.Counters.GetNewConnections()
		view.total.Fallback += v.Counters.GetFallback()
		view.total.BadCookies += v.Counters.GetBadCookies()
		view.total.Dropped += v.Counters.GetDropped()
		view.total.Tracked += v.Counters.GetTracked()
		view.total.FlowHits += v.Counters.GetFlowHits()
		view.total.FlowReplaced += v.Counters.GetFlowReplaced()
		view.total.FlowFull += v.Counters.GetFlowFull()
		view.total.ShareLost += v.Counters.GetShareLost()
		view.total.Seated += v.Counters.GetSeated()
		view.total.SeatFull += v.Counters.GetSeatFull()
		view.total.SeatWrong += v.Counters.GetSeatWrong()
		view.total.Rated += v.Counters.GetRated()
		view.total.RateLost += v.Counters.GetRateLost()
	} else {
		if v.Migration != nil && v.Migration.Earlier != nil {
			view.earlier, view.saying = view.earlier+*v.Migration.Earlier, view.saying+1
		}
		view.total.HandshakesAnswered += v.Counters.GetHandshakesAnswered()
		view.total.HandshakesOpened += v.Counters.GetHandshakesOpened()
		view.total.HandshakesStack += v.Counters.GetHandshakesStack()
		view.total.HandshakesMptcp += v.Counters.GetHandshakesMptcp()
	}
	if v.Buckets != nil {
		view.chains = append(view.chains, chainView{s.Name, s.Role, v})
	}
	for _, slot := range v.Slots {
		sv := view.slots[slot.Number]
		if sv == nil {
			sv = &slotView{health: map[string][]string{}}
			view.slots[slot.Number] = sv
		}
		if sv.slot == nil || s.AssignmentVersion >= view.version {
			sv.slot = slot
		}
		sv.buckets, sv.previous = max(sv.buckets, slot.Buckets), max(sv.previous, slot.PreviousOf)
		if s.Role == fairleadv1.Role_ROLE_HOST {
			sv.agent = true
			sv.live += slot.Connections
			continue
		}
		if h := enumWord(slot.Health.Descriptor(), slot.Health.Number()); h != "" {
			sv.health[h] = append(sv.health[h], s.Name)
		}
		sv.forwarders++
		if slot.TakesNew {
			sv.takes++
		}
		if !balancer {
			continue
		}
		sv.balancers++
		if slot.NextHop != nil && !slot.NextHop.Resolved {
			sv.unresolved = append(sv.unresolved, s.Name)
		}
		sv.packets += slot.Packets
		sv.bytes += slot.Bytes
		sv.new += slot.NewConnections
		sv.conns += slot.Connections
	}
}

func (view *vipView) print(w io.Writer) {
	v := view.vip
	port := fmt.Sprint(v.Port)
	if v.Port == 0 {
		port = "all"
	}
	address := v.Address
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	choices := v.Scheme + ", " + v.Policy
	if !vip.Scheme(v.Scheme).Row().Switched { // which no balancer forwards
		choices += ", " + v.Forwarding
	}
	fmt.Fprintf(w, "\nVIP %s %s:%s/%s: %s\n", v.Name, address, port, v.Protocol, choices)
	counted, flows := "no balancer answers: no counters", ""
	switch {
	case vip.Scheme(v.Scheme).Row().Switched:
		counted = "no switch answers: nothing is known of its nexthops"
		if slices.ContainsFunc(view.chains, func(c chainView) bool { return c.role == fairleadv1.Role_ROLE_SWITCH }) {
			counted = ""
		}
	case view.balancers == 0:
	case v.Buckets != nil:
		counted = fmt.Sprintf("new connections %d, dropped %d", view.total.NewConnections, view.total.Dropped)
	default:
		counted = fmt.Sprintf("new connections %d, fallback packets %d, bad cookies %d, dropped %d",
			view.total.NewConnections, view.total.Fallback, view.total.BadCookies, view.total.Dropped)
		flows = flowLine(v, &view.total)
	}
	for _, line := range append([]string{counted, hashLine(v), flows, handshakeLine(v, &view.total), seatLine(v, &view.total), rateLine(v, &view.total), view.migrationLine()}, view.bucketLines(time.Now())...) {
		if line != "" {
			fmt.Fprintln(w, line)
		}
	}
	if view.open {
		fmt.Fprintln(w, "FAIL-OPEN: every active server is down by its checks, so all are used")
	}
	columns := ""
	if v.Buckets != nil {
		columns = "BUCKETS\tPREVIOUS OF\tOWNS\t"
	}
	fmt.Fprintln(w, "SLOT\tSERVER\tADDRESS\tWEIGHT\tSTATE\tHEALTH\tTAKES NEW\tNEXT HOP\tESTABLISHED\t"+columns+"NEW\tPACKETS\tBYTES")
	for _, n := range slices.Sorted(maps.Keys(view.slots)) {
		s := view.slots[n]
		live := "-"
		if s.agent {
			live = fmt.Sprint(s.live)
		}
		counters := "-\t-\t-"
		if s.balancers > 0 {
			counters = fmt.Sprintf("%d\t%d\t%d", s.new, s.packets, s.bytes)
		}
		if v.Buckets != nil {
			live += "\t" + view.slotChains(s)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", n, s.slot.Server, s.slot.Address, s.slot.Weight,
			s.stateWord(), s.healthWord(), s.takesWord(), s.hopWord(), live, counters)
	}
}

// migrationLine is how far the VIP's migration is.
func (view *vipView) migrationLine() string {
	m := view.vip.Migration
	if m == nil {
		return ""
	}
	if m.From == "" {
		return fmt.Sprintf("came %s ago to servers that had %d connections, which are kept", since(m.StageSinceUnixMs), m.Entered)
	}
	line := fmt.Sprintf("migrates from scheme %s: stage %s since %s", m.From, m.Stage, since(m.StageSinceUnixMs))
	if view.saying > 0 {
		line += fmt.Sprintf(", connections of before that live: %d", view.earlier)
	}
	return line
}

// handshakeLine is what became of offloaded handshakes.
func handshakeLine(v *fairleadv1.VIP, n *fairleadv1.Counters) string {
	if v.Handshake != vip.HandshakeOffload {
		return ""
	}
	line := fmt.Sprintf("handshakes offloaded: %d SYNs answered, %d opened, %d left to the stack", n.HandshakesAnswered, n.HandshakesOpened, n.HandshakesStack)
	if n.HandshakesMptcp > 0 {
		line += fmt.Sprintf(" (%d of them: the listener is MPTCP's)", n.HandshakesMptcp)
	}
	return line
}

func (s *slotView) stateWord() string {
	word := enumWord(s.slot.State.Descriptor(), s.slot.State.Number())
	if s.slot.Warming {
		word += " (warming)"
	}
	return word
}

// healthWord names the balancers where they disagree.
func (s *slotView) healthWord() string {
	if len(s.health) == 0 {
		return "-"
	}
	var words []string
	for _, h := range slices.Sorted(maps.Keys(s.health)) {
		if len(s.health) == 1 {
			return h
		}
		words = append(words, h+" ("+strings.Join(s.health[h], ",")+")")
	}
	return strings.Join(words, " ")
}

func (s *slotView) takesWord() string {
	switch {
	case s.forwarders == 0:
		return "-"
	case s.takes == 0:
		return "no"
	case s.takes == s.forwarders:
		return "yes"
	}
	return fmt.Sprintf("%d of %d", s.takes, s.forwarders)
}

func (s *slotView) hopWord() string {
	if s.balancers == 0 {
		return "-"
	}
	if len(s.unresolved) > 0 {
		return "UNRESOLVED (" + strings.Join(s.unresolved, ",") + ")"
	}
	return "ok"
}

// printReasons sums what was counted by reason over the daemons of one role,
// without zeros.
func printReasons(w io.Writer, answers []answer, role fairleadv1.Role, title string) {
	var names []string
	packets, bytes := map[string]uint64{}, map[string]uint64{}
	for _, a := range answers {
		if a.err != nil || a.status.Role != role {
			continue
		}
		for _, r := range a.status.Reasons {
			if r.Packets == 0 {
				continue
			}
			if _, seen := packets[r.Name]; !seen {
				names = append(names, r.Name)
			}
			packets[r.Name] += r.Packets
			bytes[r.Name] += r.Bytes
		}
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(w, "\nREASON (%s)\tPACKETS\tBYTES\n", title)
	for _, n := range names {
		fmt.Fprintf(w, "%s\t%d\t%d\n", n, packets[n], bytes[n])
	}
}

// warning is one text and the daemons that give it; none for what status
// itself says.
type warning struct {
	Text    string   `json:"text"`
	Daemons []string `json:"daemons"`
}

// warnings are those of all daemons, each text once, and before them what is
// missing because a daemon does not answer.
func warnings(answers []answer, store *storeView) []warning {
	all := []warning{}
	answered := slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil })
	for _, a := range answers {
		if a.err == nil || !answered {
			continue
		}
		lacks := "its counters are missing above, so that sums are partial"
		switch a.role {
		case "host":
			lacks = "its established connections are missing above"
		case "switch":
			lacks = "its nexthops are missing above"
		}
		all = append(all, warning{fmt.Sprintf("%s does not answer (%s): %s", a.name, api.ErrorText(a.err), lacks), []string{}})
	}
	at := map[string]int{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, text := range a.status.Warnings {
			i, seen := at[text]
			if !seen {
				i = len(all)
				at[text] = i
				all = append(all, warning{Text: text})
			}
			all[i].Daemons = append(all[i].Daemons, a.name)
		}
	}
	return append(all, store.warnings(answers)...)
}

func printWarnings(w io.Writer, all []warning) error {
	if len(all) == 0 {
		return nil
	}
	lines := []string{"\nWarnings:"}
	for _, one := range all {
		if len(one.Daemons) > 0 {
			one.Text = strings.Join(one.Daemons, ", ") + ": " + one.Text
		}
		lines = append(lines, "  "+one.Text)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
