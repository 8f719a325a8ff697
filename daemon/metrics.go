package daemon

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// listenMetrics opens the Prometheus endpoint, behind a door unless unguarded.
func listenMetrics(address string, log *slog.Logger, unguarded bool) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics %s: %w; give this daemon another address under metrics in the configuration, or \"\" for none", address, err)
	}
	if !unguarded {
		l = newDoor(l, "metrics", log)
	}
	return l, nil
}

// metricsHandler serves /metrics. Values are read from the kernel's maps when
// Prometheus asks, never before.
func (d *daemon) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&statusCollector{d},
		mRefused,
	)
	if d.me.role == RoleBalancer {
		registry.MustRegister(d.unaskedCounter())
	}
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if p := d.phase.Load(); p != phaseServing {
			http.Error(w, fmt.Sprint("the daemon is ", p), http.StatusServiceUnavailable)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /ready", d.serveReady)
	return mux
}

// serveReady answers whoever decides if a router may use this machine (a BGP
// speaker's check): 200, or 503 with the reasons, a line each.
func (d *daemon) serveReady(w http.ResponseWriter, _ *http.Request) {
	if p := d.phase.Load(); p != phaseServing {
		http.Error(w, fmt.Sprint("the daemon is ", p), http.StatusServiceUnavailable)
		return
	}
	s, err := d.status()
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case len(s.NotReady) > 0:
		http.Error(w, strings.Join(s.NotReady, "\n"), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}

// statusCollector turns one GetStatus into metrics, so that both always say
// the same.
type statusCollector struct{ d *daemon }

// metric is one family: its description and how to emit it.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("fairlead_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("fairlead_"+name, help, labels, nil), prometheus.GaugeValue}
}

// The families. Label values are names of the configuration or of a closed
// set: never an address of a client.
var (
	mBuild      = gauge("build_info", "This daemon: its role (lb, host or switch), version and kernel. Always 1.", "role", "version", "kernel")
	mVersion    = gauge("assignment_version", "Version of the assignment in force.")
	mInfo       = gauge("assignment_info", "The assignment in force. Always 1: all daemons shall have one digest.", "version", "digest")
	mDiffer     = gauge("peers_differ", "Peers that have another assignment under the same version.")
	mUnsaved    = gauge("state_unsaved_files", "Files of the state folder that the disk does not take: a restart may begin from what was before.")
	mDamaged    = gauge("state_damaged_files", "Files of the state folder, and clocks in pinned maps, that were found damaged when the daemon started.")
	mStampEpoch = gauge("stamp_epoch", "Key epoch under which hosts stamp new connections.")
	mEpochs     = gauge("decode_epochs", "Number of key epochs that decode: 2 while a key rotates.")
	mWarnings   = gauge("warnings", "Number of things that fairlead status warns of.")
	mSkew       = gauge("clock_skew_seconds", "Largest known difference of the shared clock to a peer's. Cookies allow 1.")

	mVIPPackets  = counter("vip_packets_total", "Packets for the VIP: at a balancer forwarded to servers, at a host received.", "vip")
	mVIPBytes    = counter("vip_bytes_total", "Bytes of these packets, from layer 3 on, without the tunnel.", "vip")
	mVIPNew      = counter("vip_new_connections_total", "New connections given to a server by the policy.", "vip")
	mVIPFallback = counter("vip_fallback_packets_total", "Packets without a usable cookie, placed by hash or flow table (scheme cheetah).", "vip")
	mVIPFlowHits = counter("vip_flow_table_hits_total", "Packets that went by the flow table.", "vip")
	mVIPBad      = counter("vip_bad_cookies_total", "Cookies that named no slot.", "vip")
	mVIPDropped  = counter("vip_dropped_packets_total", "Packets for the VIP that were dropped.", "vip")
	mVIPOut      = counter("vip_transmit_packets_total", "Packets from the VIP to clients (host only).", "vip")
	mVIPOutBytes = counter("vip_transmit_bytes_total", "Bytes of these packets, from layer 3 on (host only).", "vip")
	mVIPLive     = gauge("vip_connections", "Established connections by the key epoch that stamped them (host only).", "vip", "epoch")
	mVIPFailOpen = gauge("vip_fail_open", "1 while every active server is down by its checks, so that all are used (balancer only).", "vip")

	mVIPTracked  = counter("vip_flow_tracked_total", "Entries made in the flow table (balancer only, as all about it).", "vip")
	mVIPFull     = counter("vip_flow_full_total", "Entries refused, for every one in the bucket was a live connection's: raise limits.flows.", "vip")
	mVIPReplaced = counter("vip_flow_replaced_total", "Entries that took the place of another flow's live one: unconfirmed, or in scheme full-ct any.", "vip")
	mVIPLost     = counter("vip_share_lost_total", "Records for other balancers that the daemon did not read in time.", "vip")

	mServerPackets = counter("server_packets_total", "Packets forwarded to the server (at a host: received).", "vip", "server", "slot")
	mServerBytes   = counter("server_bytes_total", "Bytes of these packets, from layer 3 on, without the tunnel.", "vip", "server", "slot")
	mServerNew     = counter("server_new_connections_total", "New connections given to the server.", "vip", "server", "slot")
	mServerConns   = gauge("server_connections", "Open connections: SYNs less FINs and RSTs at a balancer, established sockets at a host, at a switch what the agent says (of all VIPs together).", "vip", "server", "slot")
	mServerState   = gauge("server_state", "1 for the state that the slot is in.", "vip", "server", "slot", "state")
	mServerWeight  = gauge("server_weight", "Weight of the server in the VIP.", "vip", "server", "slot")
	mServerTakes   = gauge("server_takes_new", "1 if the balancer gives the server new connections now.", "vip", "server", "slot")
	mServerUp      = gauge("server_up", "0 if the checks say that the server is down, else 1. Only where the VIP has a health check.", "vip", "server", "slot")
	mServerChecks  = counter("server_health_checks_total", "Health checks by outcome.", "vip", "server", "slot", "result")
	mServerHop     = gauge("server_next_hop_resolved", "1 if the MAC address of the next hop to the server is known.", "vip", "server", "slot")

	mAttached      = gauge("program_attached", "1 if the daemon's programs are attached to the interface, 0 if somebody took them off, or it is gone.", "interface")
	mReasonPackets = counter("packets_total", "Packets by reason; known connections that are forwarded count at their server alone.", "reason")
	mReasonBytes   = counter("packet_bytes_total", "Bytes of these packets.", "reason")
	mLimitUsed     = gauge("map_entries", "Entries in use of what the configuration's limits bound.", "map")
	mLimit         = gauge("map_entries_limit", "Entries that there are.", "map")
	mFlows         = gauge("flows", "Live entries of the flow table, counted every 30 s: confirmed ones keep their place, unconfirmed ones (new or fading) give way.", "state")
	mShareReceived = counter("share_received_total", "Tracked entries that peers told this balancer, or that it read from their tables.")
	mShareSent     = counter("share_sent_total", "Tracked entries that the peer was told.", "peer")
	mShareDropped  = counter("share_dropped_total", "Tracked entries that the peer was not told, because it did not take them.", "peer")
	mSharePulled   = counter("share_pulled_total", "Entries read from the peer's table, after a start or an outage.", "peer")
	mShareQueued   = gauge("share_queued", "Tracked entries that wait for the peer.", "peer")
	mPeerReachable = gauge("peer_reachable", "1 if the peer's API answered last time.", "peer")
	mPeerVersion   = gauge("peer_assignment_version", "Assignment version of the peer when it last answered.", "peer")
)

// Describe implements prometheus.Collector.
func (c *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range []metric{
		mBuild, mVersion, mInfo, mDiffer, mUnsaved, mDamaged, mStampEpoch, mEpochs, mWarnings, mSkew,
		mVIPPackets, mVIPBytes, mVIPNew, mVIPFallback, mVIPFlowHits, mVIPBad, mVIPDropped, mVIPOut, mVIPOutBytes, mVIPLive, mVIPFailOpen,
		mVIPTracked, mVIPFull, mVIPReplaced, mVIPLost,
		mServerPackets, mServerBytes, mServerNew, mServerConns, mServerState, mServerWeight, mServerTakes, mServerUp, mServerChecks, mServerHop,
		mAttached, mReasonPackets, mReasonBytes, mLimitUsed, mLimit, mFlows,
		mShareReceived, mShareSent, mShareDropped, mSharePulled, mShareQueued, mPeerReachable, mPeerVersion,
	} {
		ch <- m.desc
	}
	for _, m := range slices.Concat(bucketMetrics, switchMetrics, steerMetrics) {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.d.status()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(mBuild.desc, err)
		return
	}
	emit := func(m metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	}
	emit(mBuild, 1, string(c.d.me.role), s.Version, s.Kernel)
	emit(mVersion, float64(s.AssignmentVersion))
	emit(mInfo, 1, strconv.FormatUint(s.AssignmentVersion, 10), hex.EncodeToString(s.AssignmentDigest[:digestShown]))
	differ, _ := split(c.d.force.Load(), s.Peers)
	emit(mDiffer, float64(len(differ)))
	unsaved, damaged := c.d.state.counts()
	emit(mUnsaved, float64(unsaved))
	emit(mDamaged, float64(damaged))
	emit(mStampEpoch, float64(s.StampEpoch))
	emit(mEpochs, float64(len(s.Epochs)))
	emit(mWarnings, float64(len(s.Warnings)))
	emit(mSkew, math.Abs(float64(s.Clock.PeerSkewMs))/1000)
	for _, v := range s.Vips {
		emitVIP(emit, v, s.Epochs, s.Role)
		emitBuckets(emit, v, s.Role)
		for _, slot := range v.Slots {
			emitSlot(emit, v, slot, s.Role)
		}
	}
	for _, i := range s.Interfaces {
		emit(mAttached, truth(attached(i)), i.Name)
	}
	for _, r := range s.Reasons {
		emit(mReasonPackets, float64(r.Packets), r.Name)
		emit(mReasonBytes, float64(r.Bytes), r.Name)
	}
	for _, l := range s.Limits {
		emit(mLimitUsed, float64(l.Used), l.Name)
		emit(mLimit, float64(l.Limit), l.Name)
	}
	if s.Flows != nil {
		emit(mFlows, float64(s.Flows.Confirmed), "confirmed")
		emit(mFlows, float64(s.Flows.Unconfirmed), "unconfirmed")
	}
	if s.Switch != nil {
		emitSwitch(emit, s.Switch)
	}
	emitSteered(emit, s.Steered)
	if s.Sharing != nil {
		emitSharing(emit, s.Sharing)
	}
	for _, p := range s.Peers {
		emit(mPeerReachable, truth(p.Reachable), p.Name)
		if p.Reachable {
			emit(mPeerVersion, float64(p.AssignmentVersion), p.Name)
		}
	}
}

type emitter func(m metric, value float64, labels ...string)

func emitVIP(emit emitter, v *fairleadv1.VIP, epochs []uint32, role fairleadv1.Role) {
	if role == fairleadv1.Role_ROLE_SWITCH {
		return // the kernel's own way counts nothing by VIP
	}
	n := v.Counters
	emit(mVIPPackets, float64(n.Packets), v.Name)
	emit(mVIPBytes, float64(n.Bytes), v.Name)
	if role == fairleadv1.Role_ROLE_BALANCER {
		emit(mVIPNew, float64(n.NewConnections), v.Name)
		emit(mVIPFallback, float64(n.Fallback), v.Name)
		emit(mVIPFlowHits, float64(n.FlowHits), v.Name)
		emit(mVIPBad, float64(n.BadCookies), v.Name)
		emit(mVIPDropped, float64(n.Dropped), v.Name)
		emit(mVIPFailOpen, truth(v.FailOpen), v.Name)
		emit(mVIPTracked, float64(n.Tracked), v.Name)
		emit(mVIPFull, float64(n.FlowFull), v.Name)
		emit(mVIPReplaced, float64(n.FlowReplaced), v.Name)
		emit(mVIPLost, float64(n.ShareLost), v.Name)
		return
	}
	emit(mVIPOut, float64(n.PacketsOut), v.Name)
	emit(mVIPOutBytes, float64(n.BytesOut), v.Name)
	// Every epoch that decodes, so that one that empties is seen to be 0.
	live := map[uint32]uint64{}
	for _, e := range epochs {
		live[e] = 0
	}
	for _, l := range n.Live {
		live[l.Epoch] = l.Connections
	}
	for e, connections := range live {
		emit(mVIPLive, float64(connections), v.Name, strconv.FormatUint(uint64(e), 10))
	}
}

func emitSlot(emit emitter, v *fairleadv1.VIP, s *fairleadv1.Slot, role fairleadv1.Role) {
	labels := []string{v.Name, s.Server, strconv.FormatUint(uint64(s.Number), 10)}
	if role != fairleadv1.Role_ROLE_SWITCH {
		emit(mServerPackets, float64(s.Packets), labels...)
		emit(mServerBytes, float64(s.Bytes), labels...)
	}
	emit(mServerConns, float64(s.Connections), labels...)
	emit(mServerWeight, float64(s.Weight), labels...)
	for number, name := range fairleadv1.SlotState_name {
		if number == 0 {
			continue
		}
		word := strings.ToLower(strings.TrimPrefix(name, "SLOT_STATE_"))
		emit(mServerState, truth(s.State == fairleadv1.SlotState(number)), append(labels[:3:3], word)...)
	}
	if v.Buckets != nil && role != fairleadv1.Role_ROLE_HOST {
		emit(mServerBuckets, float64(s.Buckets), labels...)
		emit(mServerPrevious, float64(s.PreviousOf), labels...)
	}
	if role != fairleadv1.Role_ROLE_BALANCER {
		return
	}
	emit(mServerNew, float64(s.NewConnections), labels...)
	emit(mServerTakes, truth(s.TakesNew), labels...)
	if s.NextHop != nil {
		emit(mServerHop, truth(s.NextHop.Resolved), labels...)
	}
	if s.Health != fairleadv1.Health_HEALTH_UNSPECIFIED {
		emit(mServerUp, truth(s.Health != fairleadv1.Health_HEALTH_DOWN), labels...)
		emit(mServerChecks, float64(s.HealthChecks-s.HealthFailures), append(labels[:3:3], "ok")...)
		emit(mServerChecks, float64(s.HealthFailures), append(labels[:3:3], "failed")...)
	}
}

func emitSharing(emit emitter, s *fairleadv1.Sharing) {
	emit(mShareReceived, float64(s.Received))
	for _, p := range s.Peers {
		emit(mShareSent, float64(p.Sent), p.Name)
		emit(mShareDropped, float64(p.Dropped), p.Name)
		emit(mSharePulled, float64(p.Pulled), p.Name)
		emit(mShareQueued, float64(p.Queued), p.Name)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
