package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/config"
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
	// Silent are the servers whose agents gave no answer, and why.
	Silent map[string]string
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
	return n, ""
}

// Refusal is why a change is not made as things stand: one line each, which
// names what, where and the remedy. Nothing was changed.
type Refusal []string

func (r Refusal) Error() string { return strings.Join(r, "\n") }

// refuseRemoval: connections would lose their server, or nobody knows.
func (p *planner) refuseRemoval(v *VIP, s *Slot, what string) {
	if p.force {
		return
	}
	n, silent := p.live.of(v.ID, s.Server)
	switch {
	case silent != "" && v.cookies():
		p.refuse("vip %s: %s: %s, but its agent does not answer (%s), so its connections cannot be counted; "+
			"start the agent, or --without %s if the machine is gone", v.Name, s.Server, what, silent, s.Server)
	case n > 0:
		p.refuse("vip %s: %s: %s, but %s live; drain it and wait until they end, or --force",
			v.Name, s.Server, what, count(n, "connection is", "connections are"))
	}
}

// refuseRotation: connections stamped under the epoch that a rotation drops
// would no longer decode.
func (p *planner) refuseRotation(cur *Assignment) {
	if p.force || len(cur.Keys) < 2 {
		return
	}
	old := cur.Keys[0].Epoch
	for i := range cur.VIPs {
		v := &cur.VIPs[i]
		if !v.cookies() {
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

// cookies: see config.VIP.Cookies.
func (v *VIP) cookies() bool { return v.Scheme == config.Cheetah && v.Protocol == config.TCP }

// count is "1 one" or "n many".
func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SilentNames is the silent servers in order, for messages.
func (l LiveCounts) SilentNames() []string { return slices.Sorted(maps.Keys(l.Silent)) }
