package swtch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/swtch"
)

// Describe fills in what the switch has in the kernel.
func (p *plane) Describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	kernel := p.sw.Status()
	s.NotReady = p.sw.Ready()
	out := &fairleadv1.Switch{
		Bridge: kernel.Bridge, Drained: kernel.Drained, Locked: kernel.Locked, LockReason: kernel.LockReason,
		LockedSinceUnixMs: daemon.UnixMS(kernel.LockedSince), Plain: kernel.Plain, Repointed: kernel.Repointed,
		LastChangeUs: uint64(kernel.LastChange.Microseconds()), Error: kernel.Error, Generation: kernel.Generation,
		Chained: uint32(kernel.Chained), ChainsEndUnixMs: daemon.UnixMS(kernel.ChainsEnd), Retries: kernel.Retries, Rollbacks: kernel.Rollbacks,
	}
	s.Switch = out
	for _, g := range kernel.Groups {
		out.Groups = append(out.Groups, &fairleadv1.SwitchGroup{Family: g.Family, Id: g.ID, Nexthops: uint32(g.Nexthops)})
	}
	for _, kind := range swtch.Kinds {
		out.Corrections = append(out.Corrections, &fairleadv1.SwitchCorrections{Kind: kind, Count: kernel.Corrections[kind]})
	}
	hosts := map[uint32]swtch.Host{}
	for _, h := range kernel.Hosts {
		hosts[uint32(h.Number)] = h
		out.Hosts = append(out.Hosts, switchHost(h))
	}
	for _, v := range s.Vips {
		if text := member.Unserved(v); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		v.Buckets.Generation, v.Buckets.Chained, v.Buckets.FirstChainEndsUnixMs = out.Generation, out.Chained, out.ChainsEndUnixMs
		v.Buckets.Renewed, v.Buckets.Deputies, v.Buckets.Forgotten = uint32(kernel.Renewed), uint32(kernel.Deputies), kernel.Forgotten
		for _, slot := range v.Slots {
			h, ok := hosts[slot.Number]
			if !ok {
				continue
			}
			slot.Health, slot.HealthDetail, slot.HealthSinceUnixMs = hostHealth(h.State), h.Detail, daemon.UnixMS(h.Since)
			slot.Buckets, slot.Connections = uint32(h.Nexthops), int64(h.Connections)
			slot.TakesNew = h.Nexthops > 0
			for _, n := range h.PreviousOf {
				slot.PreviousOf += uint32(n)
			}
		}
	}
	if kernel.Error != "" {
		s.Warnings = append(s.Warnings, "the kernel is not as it should be: "+kernel.Error)
	}
	if kernel.Locked {
		how := "keeps its nexthops as they were"
		if kernel.Plain {
			how = "spreads packets over all servers by plain ECMP"
		}
		up := 0
		for _, h := range kernel.Hosts {
			if h.State == swtch.Up {
				up++
			}
		}
		see := fmt.Sprintf("%d of %d servers are up now: see to the others", up, len(kernel.Hosts))
		if up == len(kernel.Hosts) {
			see = "all servers are up now: see why they were not"
		}
		s.Warnings = append(s.Warnings, fmt.Sprintf("LOCKED: %s; the switch %s and follows nobody's health. %s, then fairlead unlock %s", kernel.LockReason, how, see, s.Name))
	}
	if kernel.Drained {
		s.Warnings = append(s.Warnings, fmt.Sprintf("drained: its routes are not announced; fairlead undrain %s announces them again", s.Name))
	}
	for _, h := range kernel.Hosts {
		if !h.HeldDownUntil.IsZero() {
			s.Warnings = append(s.Warnings, fmt.Sprintf("server %s went up and down too often and is held down until %s: see its agent's log", h.Server, h.HeldDownUntil.Format(time.RFC3339)))
		}
		if h.Port == "" && h.Nexthops > 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("server %s: no port of bridge %s is known to lead to it: name it under switches[].ports", h.Server, kernel.Bridge))
		}
	}
	return nil
}

func switchHost(h swtch.Host) *fairleadv1.SwitchHost {
	out := &fairleadv1.SwitchHost{
		Server: h.Server, Number: uint32(h.Number), State: member.ServingWord(string(h.State)), Detail: h.Detail, SinceUnixMs: daemon.UnixMS(h.Since),
		HeldDownUntilUnixMs: daemon.UnixMS(h.HeldDownUntil), Nexthops: uint32(h.Nexthops), Port: h.Port, Connections: h.Connections,
	}
	for _, server := range slices.Sorted(maps.Keys(h.PreviousOf)) {
		out.PreviousOf = append(out.PreviousOf, &fairleadv1.SwitchForwarding{Server: server, Nexthops: uint32(h.PreviousOf[server])})
	}
	return out
}

func hostHealth(s swtch.State) fairleadv1.Health {
	switch s {
	case swtch.Up:
		return fairleadv1.Health_HEALTH_UP
	case swtch.Unknown:
		return fairleadv1.Health_HEALTH_UNKNOWN
	case swtch.Disabled:
		return fairleadv1.Health_HEALTH_UNSPECIFIED // it drains: nothing is wrong
	}
	return fairleadv1.Health_HEALTH_DOWN
}
