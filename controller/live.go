package controller

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// LiveKey is a server within one VIP.
type LiveKey struct {
	VIP    uint32 // VIP.ID
	Server string
}

// NoCookie stands in for the epoch of connections that carry no cookie.
const NoCookie = ^uint32(0)

// LiveCounts is what the agents count: established connections by the epoch
// that stamps them. A server that is in neither field has none (its agent
// answered without it), or has no agent to ask.
type LiveCounts struct {
	Connections map[LiveKey]map[uint32]uint64
	// Owned is what agents said of VIPs of schemes beamer and faild.
	Owned map[LiveKey]Owned
	// Earlier is how many live of the connections that a server had when its VIP's
	// migration began; without an entry its agent does not say.
	Earlier map[LiveKey]uint64
	// Silent are the servers whose agents gave no answer, and why.
	Silent map[string]string
}

// Owned is what one agent said of the connections that its server owns.
type Owned struct {
	// Connections are all of the VIP.
	Connections uint64
	// Buckets of the table by which they were told apart, and a bit for each,
	// bucket 0 the lowest of the first byte: set, a connection of it lives
	// there. 0: the agent cannot tell them apart (scheme faild).
	Buckets int
	Bitmap  []byte
	// At is when the count began or before, by the clock of who asked.
	At time.Time
	// Generation of the table by which buckets were told apart.
	Generation uint32
}

// of is the live connections of one server in one VIP over all epochs, and
// whether they are known.
func (l LiveCounts) of(vip uint32, server string) (n uint64, why string) {
	if why, silent := l.Silent[server]; silent {
		return 0, why
	}
	for _, c := range l.Connections[LiveKey{vip, server}] {
		n += c
	}
	return max(n, l.Owned[LiveKey{vip, server}].Connections), ""
}

// Refusal is why a change is not made as things stand: one line each, which
// names what, where and the remedy. Nothing was changed.
type Refusal []string

func (r Refusal) Error() string { return strings.Join(r, "\n") }

// refuseRemoval: connections would lose their server, or nobody knows. What
// UDP still sends goes on to a removed server until its slot has rested, and
// scheme stateless promises nothing.
func (p *planner) refuseRemoval(v *VIP, s *Slot, what string) {
	n, silent := p.live.of(v.ID, s.Server)
	p.refuseLosing(v, s, what, n, silent, v.Tracks() && v.Protocol == vip.TCP)
}

// refuseMove: connections would meet another server. Those with a cookie stay
// whatever the hash says. A server that takes new ones may have more by the
// time that the change is in force.
func (p *planner) refuseMove(v *VIP, s *Slot, what, remedy string) {
	n, silent := p.live.of(v.ID, s.Server)
	if v.Cookies() {
		n = p.live.Connections[LiveKey{v.ID, s.Server}][NoCookie]
	}
	wait := min(handshake, v.WarmUp)
	if s.State == Active && !p.force {
		now := count(n, "connection is", "connections are") + " live now"
		over := fmt.Sprintf("when they are over and it has drained for %s", wait)
		if why := uncounted(v, s, silent); why != "" {
			now = "nobody counts them: " + why
			over = fmt.Sprintf("when it has drained for warm_up, %s", v.WarmUp)
		} else if v.Cookies() {
			now += " without a cookie"
		}
		p.refuse("vip %s: %s: %s, and it takes new connections (%s); %s %s, or --force", v.Name, s.Server, what, now, remedy, over)
		return
	}
	if until := s.DrainSince.Add(wait); s.State == Draining && !p.force && uncounted(v, s, silent) == "" && p.now.Before(until) {
		live, end := "", ""
		if n > 0 {
			live, end = count(n, "connection is", "connections are")+" live, and ", ", and until they end"
		}
		p.refuse("vip %s: %s: %s, but %sit drains only since %s, so that handshakes may be under way; wait until %s%s, or --force",
			v.Name, s.Server, what, live, s.DrainSince.Format(time.RFC3339), clock(until), end)
		return
	}
	p.refuseLosing(v, s, what, n, silent, true)
}

// handshake is how long a client may take from its SYN to the connection that
// an agent counts: six SYNs' worth of trying.
const handshake = time.Minute

// refuseLosing refuses what takes n connections from s. Where no agent counts
// them and that matters, they are over when s has drained for the warm-up,
// after which nobody remembers a silent one. What balancers see of openings
// and ends is no count: packets get lost, and anybody can send them.
func (p *planner) refuseLosing(v *VIP, s *Slot, what string, n uint64, silent string, matters bool) {
	if p.force || !s.worked() {
		return
	}
	why := uncounted(v, s, silent)
	until := s.DrainSince.Add(v.WarmUp)
	if s.State == Standby {
		until = p.now // it became one when they were over
	}
	switch {
	case silent != "" && (v.Cookies() || v.Chains()):
		p.refuse("vip %s: %s: %s, but its agent does not answer (%s), so its connections cannot be counted; "+
			"start the agent, or --without %s if the machine is gone", v.Name, s.Server, what, silent, s.Server)
	case n > 0 && s.State == Draining:
		p.refuse("vip %s: %s: %s, but %s live; wait until they end, or --force",
			v.Name, s.Server, what, count(n, "connection is", "connections are"))
	case n > 0:
		p.refuse("vip %s: %s: %s, but %s live; drain it and wait until they end, or --force",
			v.Name, s.Server, what, count(n, "connection is", "connections are"))
	case why == "" || !matters:
	case s.State == Active:
		p.refuse("vip %s: %s: %s, but nobody counts its connections (%s); drain it and wait for warm_up, %s, or --force",
			v.Name, s.Server, what, why, v.WarmUp)
	case p.now.Before(until):
		p.refuse("vip %s: %s: %s, but nobody counts its connections (%s), and it drains only since %s; wait until %s, or --force",
			v.Name, s.Server, what, why, s.DrainSince.Format(time.RFC3339), clock(until))
	}
}

// uncounted says why nobody counts the connections of s in v, "" if its agent
// does.
func uncounted(v *VIP, s *Slot, silent string) string {
	switch {
	case v.Protocol == vip.UDP && !v.Chains():
		return "UDP shows no end"
	case s.API == config.NoAgent:
		return "its api is none"
	case silent != "":
		return "its agent does not answer: " + silent
	}
	return ""
}

// worked: s may have connections.
func (s *Slot) worked() bool {
	return s.State != Joining && (s.State != Standby || !s.RestUntil.IsZero())
}

// refuseRotation: connections stamped under the epoch that a rotation drops
// would no longer decode.
func (p *planner) refuseRotation(cur *Assignment) {
	if p.force {
		return
	}
	for i := range cur.VIPs {
		if v := &cur.VIPs[i]; v.Migration != nil {
			p.refuse("vip %s: it migrates from %s to %s; rotate when that is over, or --force", v.Name, v.Migration.From.Scheme, v.Scheme)
		}
	}
	if len(cur.Keys) < 2 {
		return
	}
	old := cur.Keys[0].Epoch
	for i := range cur.VIPs {
		v := &cur.VIPs[i]
		if !v.Cookies() {
			continue
		}
		var n uint64
		asked := map[string]bool{}
		var where []string
		for _, s := range v.Slots {
			if asked[s.Server] {
				continue
			}
			asked[s.Server] = true
			if why, silent := p.live.Silent[s.Server]; silent {
				if s.State == Resting {
					continue // removed, and then gone
				}
				p.refuse("vip %s: %s: its agent does not answer (%s), so its connections under epoch %d, which would be dropped, "+
					"cannot be counted; start the agent, or --without %s if the machine is gone", v.Name, s.Server, why, old, s.Server)
				continue
			}
			if c := p.live.Connections[LiveKey{v.ID, s.Server}][old]; c > 0 {
				n += c
				where = append(where, fmt.Sprintf("%s %d", s.Server, c))
			}
		}
		if n > 0 {
			p.refuse("vip %s: %s still live under epoch %d, which would be dropped (%s); wait until they end, or --force sends them to the fallback",
				v.Name, count(n, "connection is", "connections are"), old, strings.Join(where, ", "))
		}
	}
}

// count is "1 one" or "n many".
func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
