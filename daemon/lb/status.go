package lb

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// Describe fills in interfaces, counters, health and next hops.
func (b *balancer) Describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	kernel := b.lb.Status()
	s.PinDir, s.Adopted = kernel.PinDir, kernel.Adopted
	s.Clock.Hz = uint32(kernel.HZ)
	s.Warnings = append(s.Warnings, kernel.Astray...)
	for _, i := range kernel.Interfaces {
		s.Interfaces = append(s.Interfaces, &fairleadv1.Interface{
			Name: i.Name, Index: uint32(i.Index), XdpMode: i.Mode, EgressMode: i.Egress, Mtu: uint32(i.MTU),
		})
		if i.Mode == "generic" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("interface %s runs XDP in generic mode, several times slower: use a driver with native XDP", i.Name))
		}
	}
	for _, l := range kernel.Limits {
		s.Limits = append(s.Limits, &fairleadv1.Limit{Name: l.Name, Used: l.Used, Limit: l.Limit})
		if l.Name == "flows" {
			continue // entries that give way fill it, rightly: see flowWatch
		}
		if l.Limit > 0 && l.Used*10 > l.Limit*9 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %d of %d used: raise limits.%s in the configuration and restart", l.Name, l.Used, l.Limit, l.Name))
		}
	}
	if text := b.unaskedWarning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	hops := map[netip.Addr]nexthop.Hop{}
	for _, h := range kernel.NextHops {
		hops[h.Server] = h
	}
	counters, err := b.lb.Counters()
	if err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for _, r := range counters.Reasons {
		s.Reasons = append(s.Reasons, &fairleadv1.Reason{Name: strings.ToLower(r.Name), Packets: r.Packets, Bytes: r.Bytes})
	}
	b.table.describe(s)
	if slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool { return v.SeatBits > 0 }) {
		s.Seats = &fairleadv1.Seats{New: kernel.Seats.New, Live: kernel.Seats.Live, Closing: kernel.Seats.Closing}
	}
	b.steer.describe(a, s)
	chains := map[uint32]tables.BucketStatus{}
	for _, c := range kernel.Buckets {
		chains[c.VIP] = c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.NotReady = append(append(s.NotReady, b.notReady(a)...), b.moves.lacks(a)...)
	for _, v := range s.Vips {
		b.moves.describe(v)
		if v.Migration.GetLacking() != "" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s migrates from scheme %s, and connections of before are not all known: %s", v.Name, v.Migration.From, v.Migration.Lacking))
		}
		b.describeVIP(v, a, counters, hops)
		describeBuckets(v, chains[v.Id])
		if text := member.Unserved(v); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		if v.FailOpen {
			s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: every active server is down by its checks, so all are used: see health_detail, and the check's settings", v.Name))
		}
		for _, slot := range v.Slots {
			if slot.State != fairleadv1.SlotState_SLOT_STATE_RESTING && slot.NextHop != nil && !slot.NextHop.Resolved {
				s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: next hop of server %s (%s) is not resolved: check its address and the route to it (ip neigh, ip route get)", v.Name, slot.Server, slot.Address))
			}
		}
	}
	b.share.describe(s)
	return nil
}

// notReady says what a balancer that has just started does not go by yet; the
// caller holds mu. One that begins before would send packets to servers that its
// peers hold for down, or, of scheme beamer, end chains that they keep.
func (b *balancer) notReady(a *controller.Assignment) (why []string) {
	now, _ := overlay(a, b.checks.Down)
	beamer := false
	for i := range a.VIPs {
		v := &a.VIPs[i]
		beamer = beamer || v.Scheme.Row().Hops
		for _, s := range v.Slots {
			if key := (health.Key{VIP: v.ID, Slot: s.Number}); now[key] != b.down[key] {
				why = append(why, fmt.Sprintf("VIP %s: what the checks say of server %s is not in the tables yet", v.Name, s.Server))
			}
		}
	}
	if beamer && !b.owners.asked() {
		why = append(why, "previous servers of scheme beamer have not been asked yet what they own")
	}
	return why
}

// describeBuckets fills in how v's bucket table stands.
func describeBuckets(v *fairleadv1.VIP, c tables.BucketStatus) {
	if v.Buckets == nil || c.VIP != v.Id {
		return
	}
	v.Buckets.Generation, v.Buckets.Chained, v.Buckets.ChainsEndUnixMs = c.Generation, uint32(c.Chains), daemon.UnixMS(c.LastEnd)
	v.Buckets.FirstChainEndsUnixMs = daemon.UnixMS(c.FirstEnd)
	v.Buckets.Forgotten, v.Buckets.Deputies, v.Buckets.Renewed = c.Forgotten, uint32(c.Deputies), uint32(c.Renewed)
	for _, s := range v.Slots {
		n := uint16(s.Number)
		s.Buckets, s.PreviousOf = uint32(c.Loads[n]), uint32(c.PreviousOf[n])
		if s.State == fairleadv1.SlotState_SLOT_STATE_DRAINING {
			s.TakesNew = s.Buckets > 0 // all drain, and they have nowhere to go
		}
	}
}

// checked says whether a VIP has a health check.
func (b *balancer) checked(a *controller.Assignment, id uint32) bool {
	return slices.ContainsFunc(a.VIPs, func(c controller.VIP) bool { return c.ID == id && c.Health != nil })
}

// describeVIP fills in one VIP; the caller holds mu.
func (b *balancer) describeVIP(v *fairleadv1.VIP, a *controller.Assignment, counters lb.Counters, hops map[netip.Addr]nexthop.Hop) {
	checked := b.checked(a, v.Id)
	v.FailOpen = b.failOpen[v.Id]
	servers := map[uint32]lb.ServerCounters{}
	if i := slices.IndexFunc(counters.VIPs, func(c lb.VIPCounters) bool { return c.ID == v.Id }); i >= 0 {
		c := counters.VIPs[i]
		v.Counters = &fairleadv1.Counters{
			Packets: c.Packets, Bytes: c.Bytes, NewConnections: c.NewConnections, Fallback: c.Fallback,
			FlowHits: c.FlowHits, BadCookies: c.BadCookies, Dropped: c.Dropped,
			Tracked: c.Tracked, FlowFull: c.FlowFull, FlowReplaced: c.FlowReplaced, ShareLost: c.ShareLost,
			Seated: c.Seated, SeatFull: c.SeatFull, SeatWrong: c.SeatWrong, Rated: c.Rated, RateLost: c.RateLost,
		}
		for _, sc := range c.Servers {
			servers[uint32(sc.Slot)] = sc
		}
	}
	for _, slot := range v.Slots {
		key := health.Key{VIP: v.Id, Slot: uint16(slot.Number)}
		// A policy but hash does not wait for warm-ups.
		slot.TakesNew = slot.State == fairleadv1.SlotState_SLOT_STATE_ACTIVE && !b.down[key] &&
			(!vip.Policy(v.Policy).Row().Hashes || b.lb.Open(v.Id, uint16(slot.Number)))
		if addr, err := netip.ParseAddr(slot.Address); err == nil {
			if h, ok := hops[addr]; ok {
				slot.NextHop = nextHop(h, v.Scheme, v.Forwarding)
			}
		}
		c := servers[slot.Number]
		slot.Packets, slot.Bytes, slot.NewConnections, slot.Connections = c.Packets, c.Bytes, c.Opened, c.Open
		if r, ok := b.checks.Report(v.Id, uint16(slot.Number)); ok && checked {
			slot.Health = healthState(r.State)
			slot.HealthDetail, slot.HealthRemembered = r.Detail, r.Remembered
			slot.HealthSinceUnixMs = daemon.UnixMS(r.Since)
			slot.HealthChecks, slot.HealthFailures = r.Checks, r.Failed
		}
	}
}

// nextHop is a way to a server for status; its MTU is what is left for the
// inner packet once forwarding's headers are on.
func nextHop(h nexthop.Hop, scheme, forwarding string) *fairleadv1.NextHop {
	out := &fairleadv1.NextHop{Resolved: h.State == nexthop.Resolved, Interface: h.Interface}
	if h.Via.IsValid() {
		out.Neighbour = h.Via.String()
	}
	if h.MAC != [6]byte{} {
		out.Mac = net.HardwareAddr(h.MAC[:]).String()
	}
	if room := h.MTU - vip.Overhead(vip.Scheme(scheme), vip.Forwarding(forwarding), h.Server); room > 0 {
		out.Mtu = uint32(room)
	}
	return out
}

func healthState(s health.State) fairleadv1.Health {
	switch s {
	case health.Up:
		return fairleadv1.Health_HEALTH_UP
	case health.Down:
		return fairleadv1.Health_HEALTH_DOWN
	}
	return fairleadv1.Health_HEALTH_UNKNOWN
}

// starting says what a balancer that has just started does not know yet of
// servers and assignment: with traffic it would send some connections
// elsewhere than its peers do. All of it passes by itself, but a newer
// assignment that does not fit.
func (b *balancer) starting(s *fairleadv1.GetStatusResponse) (why []string) {
	for _, p := range s.Peers {
		if p.Reachable && p.AssignmentVersion > s.AssignmentVersion {
			why = append(why, fmt.Sprintf("%s has assignment version %d, this balancer %d", p.Name, p.AssignmentVersion, s.AssignmentVersion))
		}
	}
	starting := time.Since(b.m.Started()) < daemon.HopTime
	for _, v := range s.Vips {
		var check *vip.Health
		if in, ok := b.m.Assignment().VIP(v.Name); ok {
			check = in.Health
		}
		for _, slot := range v.Slots {
			switch {
			case slot.State != fairleadv1.SlotState_SLOT_STATE_ACTIVE:
			case unknown(check, slot):
				why = append(why, fmt.Sprintf("VIP %s: server %s has not been checked yet", v.Name, slot.Server))
			case starting && slot.Health != fairleadv1.Health_HEALTH_DOWN && !slot.NextHop.GetResolved():
				why = append(why, fmt.Sprintf("VIP %s: next hop of server %s is not resolved yet", v.Name, slot.Server))
			}
		}
	}
	return why
}

// unknown: checks have not said yet how a server is. What was known before they have to
// confirm, for which a balancer that starts waits so many: where they fail and succeed in
// turns they may never agree.
func unknown(check *vip.Health, slot *fairleadv1.Slot) bool {
	switch {
	case check == nil:
		return false
	case slot.HealthRemembered:
		return slot.HealthChecks < 3*uint64(check.Rise+check.Fall)
	}
	return slot.Health != fairleadv1.Health_HEALTH_UP && slot.Health != fairleadv1.Health_HEALTH_DOWN
}

// unaskedWarning says that checks could not be made here, "" if all could:
// their servers' states are what was known before.
func (b *balancer) unaskedWarning() string {
	_, targets, cause := b.checks.Unasked()
	if targets == 0 {
		return ""
	}
	return fmt.Sprintf("%d health checks could not be made, for a reason of this machine (%s): what was known of these servers stays; "+
		"see its open files (LimitNOFILE), memory, ports and packet filter", targets, cause)
}
