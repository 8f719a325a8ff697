package lb

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
)

// A balancer's own families; those of steering are in steer_status.go.
var (
	mVIPNew      = daemon.Counter("vip_new_connections_total", "New connections given to a server by the policy.", "vip")
	mVIPFallback = daemon.Counter("vip_fallback_packets_total", "Packets without a usable cookie, placed by hash or flow table (scheme cheetah).", "vip")
	mVIPFlowHits = daemon.Counter("vip_flow_table_hits_total", "Packets that went by the flow table.", "vip")
	mVIPBad      = daemon.Counter("vip_bad_cookies_total", "Cookies that named no slot.", "vip")
	mVIPDropped  = daemon.Counter("vip_dropped_packets_total", "Packets for the VIP that were dropped.", "vip")
	mVIPFailOpen = daemon.Gauge("vip_fail_open", "1 while every active server is down by its checks, so that all are used (balancer only).", "vip")
	mVIPTracked  = daemon.Counter("vip_flow_tracked_total", "Entries made in the flow table (balancer only, as all about it).", "vip")
	mVIPFull     = daemon.Counter("vip_flow_full_total", "Entries refused, for every one in the set was a live connection's: raise limits.flows.", "vip")
	mVIPReplaced = daemon.Counter("vip_flow_replaced_total", "Entries that took the place of another flow's live one: unconfirmed, or in scheme full-ct any.", "vip")
	mVIPLost     = daemon.Counter("vip_share_lost_total", "Records for other balancers that the daemon did not read in time.", "vip")
	mVIPMigrates = daemon.Gauge("vip_migrates", "1 while the VIP migrates from the scheme, at the stage.", "vip", "from", "stage")
	mVIPEntered  = daemon.Gauge("vip_migration_entered", "Connections that servers named and that were entered into the flow table; only while the VIP migrates.", "vip")
	mVIPSeated   = daemon.Counter("vip_seated_total", "Connections that were given a seat (scheme cheetah-stateful, as all about seats).", "vip")
	mVIPSeatFull = daemon.Counter("vip_seat_full_total", "Connections that were given none, as their partition was full: they go by their cookie alone.", "vip")
	mVIPSeatBad  = daemon.Counter("vip_seat_wrong_total", "Packets whose cookie named a seat that is not their connection's: it sat at another balancer, or is over.", "vip")
	mVIPRated    = daemon.Counter("vip_rated_total", "Packets that were dropped for a limit of vips[].rates; packets_total says for which.", "vip")
	mVIPRateLost = daemon.Counter("vip_rate_lost_total", "Sources whose count was forgotten while it mattered, so that they may send as if new: raise limits.rate_sources.", "vip")

	mServerNew    = daemon.Counter("server_new_connections_total", "New connections given to the server.", "vip", "server", "slot")
	mServerTakes  = daemon.Gauge("server_takes_new", "1 if the balancer gives the server new connections now.", "vip", "server", "slot")
	mServerUp     = daemon.Gauge("server_up", "0 if the checks say that the server is down, else 1. Only where the VIP has a health check.", "vip", "server", "slot")
	mServerChecks = daemon.Counter("server_health_checks_total", "Health checks by outcome.", "vip", "server", "slot", "result")
	mServerHop    = daemon.Gauge("server_next_hop_resolved", "1 if the MAC address of the next hop to the server is known.", "vip", "server", "slot")

	mSeats         = daemon.Gauge("seats", "Seats that are taken, counted every 2 s: new (nothing has followed the SYN), live, closing.", "state")
	mFlows         = daemon.Gauge("flows", "Live entries of the flow table, counted every 30 s: confirmed ones keep their place, unconfirmed ones (new or fading) give way.", "state")
	mShareReceived = daemon.Counter("share_received_total", "Tracked entries that peers told this balancer, or that it read from their tables.")
	mShareSent     = daemon.Counter("share_sent_total", "Tracked entries that the peer was told.", "peer")
	mShareDropped  = daemon.Counter("share_dropped_total", "Tracked entries that the peer was not told, because it did not take them.", "peer")
	mSharePulled   = daemon.Counter("share_pulled_total", "Entries read from the peer's table, after a start or an outage.", "peer")
	mShareQueued   = daemon.Gauge("share_queued", "Tracked entries that wait for the peer.", "peer")

	families = slices.Concat([]daemon.Metric{mVIPNew, mVIPFallback, mVIPFlowHits, mVIPBad, mVIPDropped, mVIPFailOpen, mVIPTracked, mVIPFull, mVIPReplaced, mVIPLost, mVIPMigrates, mVIPEntered, mVIPSeated, mVIPSeatFull, mVIPSeatBad, mVIPRated, mVIPRateLost, mServerNew, mServerTakes, mServerUp, mServerChecks, mServerHop, mSeats, mFlows, mShareReceived, mShareSent, mShareDropped, mSharePulled, mShareQueued}, steerMetrics)
)

// emit emits what of a status only a balancer's has.
func emit(emit daemon.Emitter, s *fairleadv1.GetStatusResponse) {
	for _, v := range s.Vips {
		n := v.Counters
		emit(mVIPNew, float64(n.NewConnections), v.Name)
		emit(mVIPFallback, float64(n.Fallback), v.Name)
		emit(mVIPFlowHits, float64(n.FlowHits), v.Name)
		emit(mVIPBad, float64(n.BadCookies), v.Name)
		emit(mVIPDropped, float64(n.Dropped), v.Name)
		emit(mVIPFailOpen, daemon.Truth(v.FailOpen), v.Name)
		emit(mVIPTracked, float64(n.Tracked), v.Name)
		emit(mVIPFull, float64(n.FlowFull), v.Name)
		emit(mVIPReplaced, float64(n.FlowReplaced), v.Name)
		emit(mVIPLost, float64(n.ShareLost), v.Name)
		if m := v.Migration; m.GetFrom() != "" {
			emit(mVIPMigrates, 1, v.Name, m.From, m.Stage)
			emit(mVIPEntered, float64(m.Entered), v.Name)
		}
		if v.SeatBits > 0 {
			emit(mVIPSeated, float64(n.Seated), v.Name)
			emit(mVIPSeatFull, float64(n.SeatFull), v.Name)
			emit(mVIPSeatBad, float64(n.SeatWrong), v.Name)
		}
		if v.Rates != "" {
			emit(mVIPRated, float64(n.Rated), v.Name)
			emit(mVIPRateLost, float64(n.RateLost), v.Name)
		}
		for _, slot := range v.Slots {
			emitSlot(emit, member.SlotLabels(v, slot), slot)
		}
	}
	if s.Flows != nil {
		emit(mFlows, float64(s.Flows.Confirmed), "confirmed")
		emit(mFlows, float64(s.Flows.Unconfirmed), "unconfirmed")
	}
	if n := s.Seats; n != nil {
		emit(mSeats, float64(n.New), "new")
		emit(mSeats, float64(n.Live), "live")
		emit(mSeats, float64(n.Closing), "closing")
	}
	emitSteered(emit, s.Steered)
	if s.Sharing != nil {
		emitSharing(emit, s.Sharing)
	}
}

func emitSlot(emit daemon.Emitter, labels []string, s *fairleadv1.Slot) {
	emit(mServerNew, float64(s.NewConnections), labels...)
	emit(mServerTakes, daemon.Truth(s.TakesNew), labels...)
	if s.NextHop != nil {
		emit(mServerHop, daemon.Truth(s.NextHop.Resolved), labels...)
	}
	if s.Health != fairleadv1.Health_HEALTH_UNSPECIFIED {
		emit(mServerUp, daemon.Truth(s.Health != fairleadv1.Health_HEALTH_DOWN), labels...)
		emit(mServerChecks, float64(s.HealthChecks-s.HealthFailures), append(labels[:3:3], "ok")...)
		emit(mServerChecks, float64(s.HealthFailures), append(labels[:3:3], "failed")...)
	}
}

func emitSharing(emit daemon.Emitter, s *fairleadv1.Sharing) {
	emit(mShareReceived, float64(s.Received))
	for _, p := range s.Peers {
		emit(mShareSent, float64(p.Sent), p.Name)
		emit(mShareDropped, float64(p.Dropped), p.Name)
		emit(mSharePulled, float64(p.Pulled), p.Name)
		emit(mShareQueued, float64(p.Queued), p.Name)
	}
}

// unaskedCounter is the metric of checks that could not be made. The plane is there once metrics are
// served.
func (b *balancer) unaskedCounter() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_health_checks_unasked_total",
		Help: "Health checks that this machine could not make (no descriptor, memory or port, a packet filter's rule): they say nothing of a server."},
		func() float64 {
			checks, _, _ := b.checks.Unasked()
			return float64(checks)
		})
}
