package lb

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/steer"
)

// describe fills in how tunnels are steered.
func (w *steerWatch) describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) {
	names := map[netip.Addr]string{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		for _, slot := range v.Slots {
			names[slot.Address.Unmap()] = slot.Server
		}
		if w == nil && v.Steer != "" && !v.Scheme.Row().Switched {
			s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: steer is %s, and this balancer was started without a fabric, or with source addresses that have host bits: its tunnels go as their hash says; put fabric and source right in its configuration and restart it", v.Name, v.Steer))
		}
	}
	if w == nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range slices.SortedFunc(maps.Keys(w.servers), netip.Addr.Compare) {
		for _, by := range slices.Sorted(maps.Keys(w.wanted[address])) {
			s.Steered = append(s.Steered, w.servers[address].describe(w, names[address], address, by, now))
		}
		s.Warnings = append(s.Warnings, w.servers[address].warnings(names[address])...)
	}
}

func (s *steeredServer) describe(w *steerWatch, name string, address netip.Addr, by string, now time.Time) *fairleadv1.Steered {
	out := &fairleadv1.Steered{Server: name, Address: address.String(), By: by, Moved: s.moved[by].parts, MovedUnixMs: daemon.UnixMS(s.moved[by].last)}
	if s.err != nil {
		out.Error = s.err.Error()
		return out
	}
	out.AllPaths = s.All
	shares := s.Shares(steerMode(by), s.used, s.rank)
	for i := range s.Paths {
		p := &fairleadv1.SteeredPath{Nodes: w.fabric.Nodes(&s.Paths[i]), Links: w.fabric.Links(&s.Paths[i]),
			Verdict: string(probe.Unknown), Usable: s.used[i], HeldUntilUnixMs: daemon.UnixMS(s.holds[i].Until(now))}
		if s.judged {
			p.Parts = uint32(shares[i])
		}
		out.Paths = append(out.Paths, p)
	}
	for _, st := range s.states {
		p := out.Paths[st.Path]
		p.Verdict, p.Reason, p.SinceUnixMs = string(st.Verdict), cmp.Or(st.Silent, st.Reason), daemon.UnixMS(st.Since)
		p.Probes, p.Answered = st.Sent, st.Answered
		p.RttUs, p.RttLeastUs = uint64(st.RTTLast.Microseconds()), uint64(st.RTTMin.Microseconds())
	}
	return out
}

// warnings are what an operator should do something about.
func (s *steeredServer) warnings(name string) (list []string) {
	switch {
	case s.err != nil && s.judged:
		return []string{fmt.Sprintf("tunnels to %s stay on the paths that were good: %v", name, s.err)}
	case s.err != nil:
		return []string{fmt.Sprintf("tunnels to %s are not steered: %v", name, s.err)}
	}
	if i := slices.IndexFunc(s.states, func(st probe.State) bool { return st.Silent != "" }); i >= 0 {
		return []string{fmt.Sprintf("no probe to %s is answered over any path (%s), so its tunnels stay on the paths that they had: see that it and its agent run (fairlead host) with the same fabric, and UDP port %d passes both ways without NAT", name, s.states[i].Silent, probe.DefaultPort)}
	}
	for _, st := range s.states {
		path := fmt.Sprintf("path to %s over %s", name, s.links[st.Path])
		if why := s.troubled(st); why != "" {
			list = append(list, fmt.Sprintf("%s %s", path, why))
		}
		if st.Altered != "" {
			list = append(list, fmt.Sprintf("%s: %s on the way, so that tunnels take another one: steering needs packets that arrive as they were sent", path, st.Altered))
		}
	}
	return list
}

// troubled says what is wrong with a path and whether it is used all the same, ""
// if nothing is.
func (s *steeredServer) troubled(st probe.State) (why string) {
	used := s.used[st.Path]
	switch {
	case unprobable(st) && !used:
		return "is not used: " + st.Reason
	case unprobable(st):
		why = "is used untried: " + st.Reason
	case st.Verdict == probe.Unknown:
		return ""
	case st.Verdict != probe.Good:
		why = fmt.Sprintf("is %s: %s", st.Verdict, st.Reason)
	case used && s.holds[st.Path].Standing(time.Now()) == steer.Held:
		why = "is good again, as it was shortly before it turned bad"
	}
	if used && why != "" {
		why += "; it is used, as no other one is better"
	}
	return why
}

// Families of steering. A path is named by its links, joined by a space.
var (
	mSteerUsed   = daemon.Gauge("steer_path_usable", "1 if tunnels to the server take the path.", "server", "links")
	mSteerParts  = daemon.Gauge("steer_path_parts", "Parts of the server's connections, of 64, that take the path.", "server", "by", "links")
	mSteerProbes = daemon.Counter("steer_probes_total", "Probes along the path by outcome: answered or lost.", "server", "links", "result")
	mSteerRTT    = daemon.Gauge("steer_path_round_trip_seconds", "Round trip of the last probe along the path that was answered.", "server", "links")
	mSteerMoved  = daemon.Counter("steer_moved_total", "Parts of the server's connections (64 in all) that were moved to another path.", "server", "by")
	steerMetrics = []daemon.Metric{mSteerUsed, mSteerParts, mSteerProbes, mSteerRTT, mSteerMoved}
)

func emitSteered(emit daemon.Emitter, all []*fairleadv1.Steered) {
	paths := map[string]bool{} // of servers that are steered in both ways, once
	for _, s := range all {
		emit(mSteerMoved, float64(s.Moved), s.Server, s.By)
		for _, p := range s.Paths {
			path := strings.Join(p.Links, " ")
			emit(mSteerParts, float64(p.Parts), s.Server, s.By, path)
			if key := s.Server + " " + path; !paths[key] {
				paths[key] = true
				emit(mSteerUsed, daemon.Truth(p.Usable), s.Server, path)
				emit(mSteerProbes, float64(p.Answered), s.Server, path, "answered")
				emit(mSteerProbes, float64(p.Probes-p.Answered), s.Server, path, "lost")
				emit(mSteerRTT, float64(p.RttUs)/1e6, s.Server, path)
			}
		}
	}
}
