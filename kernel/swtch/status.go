package swtch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/controller/buckets"
)

// Ready says why a router should send nothing here yet; empty: it may.
func (s *Switch) Ready() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

func (s *Switch) ready() []string {
	why := []string{}
	if s.desired == nil {
		return append(why, "nothing was applied yet")
	}
	if !s.desired.Serves() {
		return append(why, "there is no VIP of scheme faild")
	}
	if s.drained {
		why = append(why, "drained: its routes are not announced")
	}
	if !s.healthy {
		if s.health.known() {
			why = append(why, "no server was up yet")
		} else {
			why = append(why, "no first round of the servers' health is over")
		}
	}
	if s.rows == nil || s.rows.Len() == 0 || s.rows.Current[0] == buckets.None {
		why = append(why, "no server takes new connections")
	}
	if s.counts.err != "" {
		why = append(why, s.counts.err)
	}
	if len(s.counts.portless) > 0 {
		why = append(why, fmt.Sprintf("the bridge's ports of %s are not known (their frames are flooded): name them under ports, or give the bridge an address in the servers' network", strings.Join(s.counts.portless, ", ")))
	}
	for _, six := range s.plan.families() {
		if !forwards(s.kernel, six) {
			name := "net.ipv4.ip_forward"
			if six {
				name = "net.ipv6.conf.all.forwarding"
			}
			why = append(why, fmt.Sprintf("this machine forwards nothing: sysctl -w %s=1", name))
		}
	}
	return why
}

// Status is a copy of the switch's state.
func (s *Switch) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Bridge: s.o.Bridge, Drained: s.drained,
		Locked: s.lock.on, LockReason: s.lock.reason, LockedSince: s.lock.since, Plain: s.lock.plain,
		Corrections: map[string]uint64{}, Repointed: s.counts.repointed, LastChange: s.counts.lastChange,
		Retries: s.counts.retries, Rollbacks: s.counts.rollbacks, Error: s.counts.err,
		ByBucket: s.byBucket, Groups: []Group{}, Hosts: []Host{}, NotReady: s.ready(),
	}
	for _, k := range Kinds {
		st.Corrections[k] = s.counts.corrections[k]
	}
	if s.desired == nil {
		return st
	}
	st.Version = s.desired.Version
	if s.rows == nil {
		return st
	}
	st.Generation = s.rows.Generation
	st.ChainsEnd = s.due
	for _, six := range s.plan.families() {
		name := "ipv4"
		if six {
			name = "ipv6"
		}
		st.Groups = append(st.Groups, Group{Family: name, ID: groupID(six), Nexthops: s.rows.Len()})
	}
	st.Hosts = s.hosts()
	st.Renewed, st.Forgotten = s.rows.Renewed(), s.rows.Forgotten
	for b := range s.rows.Len() {
		if s.rows.Previous[b][0] != buckets.None {
			st.Chained++
		}
		if b < s.desired.Table.Len() && s.rows.Current[b] != s.desired.Table.Current[b] {
			st.Deputies++
		}
	}
	return st
}

// hosts are the pool as the switch sees it, by number.
func (s *Switch) hosts() []Host {
	names := map[uint16]string{}
	for _, one := range s.desired.Servers {
		names[one.Number] = one.Name
	}
	has, previous := map[uint16]int{}, map[uint16]map[string]int{}
	for b := range s.rows.Len() {
		row := s.rows.At(b)
		has[row.Current]++
		for _, p := range row.Previous {
			if p == buckets.None {
				break
			}
			if previous[p] == nil {
				previous[p] = map[string]int{}
			}
			previous[p][names[row.Current]]++
		}
	}
	hosts := []Host{}
	for _, one := range s.desired.Servers {
		h := Host{Server: one.Name, Number: one.Number, Nexthops: has[one.Number], PreviousOf: maps.Clone(previous[one.Number])}
		if port := s.plan.ports[one.Number]; port != 0 && s.links != nil {
			h.Port = s.links.names[port]
		}
		if hh := s.health.servers[one.Name]; hh != nil {
			h.State, h.Detail, h.Since, h.Connections = hh.state, hh.detail, hh.since, hh.connections
			if s.o.Now().Before(hh.heldUntil) {
				h.HeldDownUntil = hh.heldUntil
			}
		}
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b Host) int { return int(a.Number) - int(b.Number) })
	return hosts
}
