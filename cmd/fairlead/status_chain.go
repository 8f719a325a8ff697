package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/vip"
)

// chainView is a VIP of scheme beamer or faild as one daemon has it.
type chainView struct {
	daemon string
	role   fairleadv1.Role
	vip    *fairleadv1.VIP
}

// bucketLines say what a VIP's bucket table is and how its chains stand, each
// text once with the daemons that say so.
func (view *vipView) bucketLines(now time.Time) (lines []string) {
	b := view.vip.Buckets
	if b == nil {
		return nil
	}
	line := fmt.Sprintf("%d buckets, generation %d, chain time %v", b.Count, b.Generation, time.Duration(b.ChainTimeMs)*time.Millisecond)
	if view.vip.Mptcp {
		line += ", MPTCP joins"
	}
	lines = append(lines, line)
	var texts []string
	who := map[string][]string{}
	for _, c := range view.chains {
		text := c.text(now)
		if text == "" {
			continue
		}
		if who[text] == nil {
			texts = append(texts, text)
		}
		who[text] = append(who[text], c.daemon)
	}
	for _, text := range texts {
		lines = append(lines, strings.Join(who[text], ", ")+": "+text)
	}
	return lines
}

// text is what one daemon says of the chains; a host's only if it is unusual.
func (c chainView) text(now time.Time) string {
	b := c.vip.Buckets
	if c.role == fairleadv1.Role_ROLE_HOST {
		var odd []string
		if ahead := int32(b.GenerationSeen - b.Generation); b.GenerationSeen != 0 && ahead > 0 {
			odd = append(odd, fmt.Sprintf("packets carry generation %d, %d newer than this agent's", b.GenerationSeen, ahead))
		}
		if b.PeersUnresolved > 0 {
			odd = append(odd, fmt.Sprintf("no way to %d of %d other servers: packets are not passed on to them", b.PeersUnresolved, b.Peers))
		}
		// Disabled is what the slot's state says already.
		if s := c.vip.Serving; s != fairleadv1.Serving_SERVING_UP && s != fairleadv1.Serving_SERVING_DISABLED {
			word := "serves: nothing known"
			if w := enumWord(c.vip.Serving.Descriptor(), c.vip.Serving.Number()); w != "" {
				word = "serves: " + w
			}
			for _, s := range c.vip.Slots {
				if s.HealthDetail != "" {
					word += " (" + s.HealthDetail + ")"
					break
				}
			}
			odd = append(odd, word)
		}
		return strings.Join(odd, "; ")
	}
	if b.Chained == 0 {
		text := "no chain: every bucket is settled"
		if b.Deputies > 0 {
			text += fmt.Sprintf(", with a deputy %d", b.Deputies)
		}
		return text
	}
	words := []string{fmt.Sprintf("buckets with a chain %d", b.Chained)}
	in := func(unixMS int64) time.Duration { return max(0, time.UnixMilli(unixMS).Sub(now)).Round(time.Second) }
	switch first, last := b.FirstChainEndsUnixMs, b.ChainsEndUnixMs; {
	case first == 0:
		words = append(words, "none ends by time alone")
	case last == 0:
		words = append(words, fmt.Sprintf("the first ends by time in %v", in(first)))
	case in(first) == in(last):
		words = append(words, fmt.Sprintf("they end by time in %v", in(first)))
	default:
		words = append(words, fmt.Sprintf("the first ends by time in %v, the last in %v", in(first), in(last)))
	}
	if b.Renewed > 0 {
		words = append(words, fmt.Sprintf("renewed for a previous server that owns connections %d", b.Renewed))
	}
	if b.Deputies > 0 {
		words = append(words, fmt.Sprintf("with a deputy %d", b.Deputies))
	}
	if b.Forgotten > 0 {
		words = append(words, fmt.Sprintf("previous servers FORGOTTEN %d (moved too often within the chain time)", b.Forgotten))
	}
	return strings.Join(words, ", ")
}

// slotChains is a slot's columns about buckets: those that it has, those for
// which it is asked as a previous server, and those that it owns connections
// of.
func (view *vipView) slotChains(s *slotView) string {
	owns := "-"
	for _, c := range view.chains {
		if c.role == fairleadv1.Role_ROLE_HOST && c.daemon == s.slot.Server && vip.Scheme(view.vip.Scheme).Row().Hops {
			owns = fmt.Sprint(c.vip.Buckets.Owned)
		}
	}
	if s.forwarders == 0 {
		return "-\t-\t" + owns
	}
	return fmt.Sprintf("%d\t%d\t%s", s.buckets, s.previous, owns)
}

// printSwitches shows each switch and its hosts.
func printSwitches(w io.Writer, answers []answer) {
	var all []answer
	for _, a := range answers {
		if a.err == nil && a.status.Switch != nil {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nSWITCH\tSTATE\tBRIDGE\tGROUPS\tGENERATION\tCHAINED\tREPOINTED\tLAST TOOK\tPUT RIGHT")
	for _, a := range all {
		s := a.status.Switch
		var groups []string
		for _, g := range s.Groups {
			groups = append(groups, fmt.Sprintf("%s %d of %d", g.Family, g.Id, g.Nexthops))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%v\t%s\n", a.name, switchState(s), s.Bridge, cmp.Or(strings.Join(groups, ", "), "-"), s.Generation,
			s.Chained, s.Repointed, time.Duration(s.LastChangeUs)*time.Microsecond, corrections(s))
	}
	fmt.Fprintln(w, "\nSWITCH\tSERVER\tSLOT\tHEALTH\tNEXTHOPS\tFORWARDED TO IT BY\tPORT\tCONNECTIONS\tSINCE")
	for _, a := range all {
		for _, h := range a.status.Switch.Hosts {
			state := cmp.Or(enumWord(h.State.Descriptor(), h.State.Number()), "-")
			if h.HeldDownUntilUnixMs != 0 {
				state += " (held)"
			}
			var by []string
			for _, p := range h.PreviousOf {
				by = append(by, fmt.Sprintf("%s %d", p.Server, p.Nexthops))
			}
			ago := "-"
			if h.SinceUnixMs != 0 {
				ago = since(h.SinceUnixMs)
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%d\t%s\n", a.name, h.Server, h.Number, state, h.Nexthops,
				cmp.Or(strings.Join(by, ", "), "-"), cmp.Or(h.Port, "-"), h.Connections, ago)
		}
	}
}

func switchState(s *fairleadv1.Switch) string {
	var words []string
	if s.Locked {
		words = append(words, "LOCKED")
	}
	if s.Plain {
		words = append(words, "plain ECMP")
	}
	if s.Drained {
		words = append(words, "drained")
	}
	if s.Error != "" {
		words = append(words, "WRONG")
	}
	if len(words) == 0 {
		return "ok"
	}
	return strings.Join(words, ", ")
}

// corrections is what somebody else changed, by kind, without zeros.
func corrections(s *fairleadv1.Switch) string {
	var words []string
	for _, c := range s.Corrections {
		if c.Count > 0 {
			words = append(words, fmt.Sprintf("%s %d", c.Kind, c.Count))
		}
	}
	slices.Sort(words)
	return cmp.Or(strings.Join(words, ", "), "-")
}
