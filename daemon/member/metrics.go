package member

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
)

// The families of several roles. Label values are names of the configuration or of
// a closed set: never an address of a client.
var (
	mVersion    = daemon.Gauge("assignment_version", "Version of the assignment in force.")
	mInfo       = daemon.Gauge("assignment_info", "The assignment in force. Always 1: all daemons shall have one digest.", "version", "digest")
	mDiffer     = daemon.Gauge("peers_differ", "Peers that have another assignment under the same version.")
	mUnsaved    = daemon.Gauge("state_unsaved_files", "Files of the state folder that the disk does not take: a restart may begin from what was before.")
	mDamaged    = daemon.Gauge("state_damaged_files", "Files of the state folder, and clocks in pinned maps, that were found damaged when the daemon started.")
	mStoreUp    = daemon.Gauge("store_up", "1 while the deployment's store answers.")
	mStoreHead  = daemon.Gauge("store_version", "Newest version that the store is known to have.")
	mStampEpoch = daemon.Gauge("stamp_epoch", "Key epoch under which hosts stamp new connections.")
	mEpochs     = daemon.Gauge("decode_epochs", "Number of key epochs that decode: 2 while a key rotates.")
	mSkew       = daemon.Gauge("clock_skew_seconds", "Largest known difference of the shared clock to a peer's. Cookies allow 1.")

	mVIPPackets    = daemon.Counter("vip_packets_total", "Packets for the VIP: at a balancer forwarded to servers, at a host received.", "vip")
	mVIPBytes      = daemon.Counter("vip_bytes_total", "Bytes of these packets, from layer 3 on, without the tunnel.", "vip")
	mVIPBuckets    = daemon.Gauge("vip_buckets", "Buckets of the VIP's table.", "vip")
	mVIPGeneration = daemon.Gauge("vip_generation", "Generation of the bucket table in force; goes round at 2^32.", "vip")
	mVIPChained    = daemon.Gauge("vip_chained_buckets", "Buckets whose packets name a previous server (balancer and switch).", "vip")
	mVIPRenewed    = daemon.Gauge("vip_renewed_buckets", "Of these, those renewed, half of their chain_time or more after the move, because a previous server still owns connections of them.", "vip")
	mVIPDeputies   = daemon.Gauge("vip_deputised_buckets", "Buckets whose server is down or disabled, so that another stands in.", "vip")
	mVIPForgotten  = daemon.Counter("vip_forgotten_previous_total", "Previous servers that found no place in a chain though connections may have been there.", "vip")

	mServerPackets  = daemon.Counter("server_packets_total", "Packets forwarded to the server (at a host: received).", "vip", "server", "slot")
	mServerBytes    = daemon.Counter("server_bytes_total", "Bytes of these packets, from layer 3 on, without the tunnel.", "vip", "server", "slot")
	mServerConns    = daemon.Gauge("server_connections", "Open connections: SYNs less FINs and RSTs at a balancer, established sockets at a host, at a switch what the agent says (of all VIPs together).", "vip", "server", "slot")
	mServerState    = daemon.Gauge("server_state", "1 for the state that the slot is in.", "vip", "server", "slot", "state")
	mServerWeight   = daemon.Gauge("server_weight", "Weight of the server in the VIP.", "vip", "server", "slot")
	mServerBuckets  = daemon.Gauge("server_buckets", "Buckets that the server has.", "vip", "server", "slot")
	mServerPrevious = daemon.Gauge("server_previous_buckets", "Buckets for which it is still asked as a previous server.", "vip", "server", "slot")

	mPeerReachable = daemon.Gauge("peer_reachable", "1 if the peer's API answered last time.", "peer")
	mPeerVersion   = daemon.Gauge("peer_assignment_version", "Assignment version of the peer when it last answered.", "peer")

	mBGPNeighbourUp = daemon.Gauge("bgp_neighbour_up", "1 while the BGP session with the router is established.", "neighbour")
	mBGPAnnounced   = daemon.Gauge("bgp_announced", "1 while the VIPs' address is announced and a router hears of it.", "address")
	mL2Held         = daemon.Gauge("l2_held", "1 while this balancer answers ARP and ND for the VIPs' address.", "address")

	metrics = append(slices.Clone(daemon.StatusMetrics), mVersion, mInfo, mDiffer, mUnsaved, mDamaged, mStoreUp, mStoreHead, mStampEpoch, mEpochs, mSkew, mVIPPackets, mVIPBytes, mVIPBuckets, mVIPGeneration, mVIPChained, mVIPRenewed, mVIPDeputies, mVIPForgotten, mServerPackets, mServerBytes, mServerConns, mServerState, mServerWeight, mServerBuckets, mServerPrevious, mPeerReachable, mPeerVersion, mBGPNeighbourUp, mBGPAnnounced, mL2Held)
)

// collect turns one GetStatus into metrics, so that both always say the same.
func (m *Member) collect(emit daemon.Emitter) error {
	s, err := m.status()
	if err != nil {
		return err
	}
	daemon.EmitStatus(emit, string(m.role.Is), s)
	emit(mVersion, float64(s.AssignmentVersion))
	emit(mInfo, 1, strconv.FormatUint(s.AssignmentVersion, 10), hex.EncodeToString(s.AssignmentDigest[:digestShown]))
	differ, _ := split(m.force.Load(), s.Peers)
	emit(mDiffer, float64(len(differ)))
	m.stored.emit(emit)
	unsaved, damaged := m.State.Counts()
	emit(mUnsaved, float64(unsaved))
	emit(mDamaged, float64(damaged))
	emit(mStampEpoch, float64(s.StampEpoch))
	emit(mEpochs, float64(len(s.Epochs)))
	emit(mSkew, math.Abs(float64(s.Clock.PeerSkewMs))/1000)
	for _, v := range s.Vips {
		m.emitVIP(emit, v)
		for _, slot := range v.Slots {
			m.emitSlot(emit, v, slot)
		}
	}
	for _, p := range s.Peers {
		emit(mPeerReachable, daemon.Truth(p.Reachable), p.Name)
		if p.Reachable {
			emit(mPeerVersion, float64(p.AssignmentVersion), p.Name)
		}
	}
	emitBGP(emit, s.Bgp)
	emitL2(emit, s.L2)
	m.role.Emit(emit, s)
	return nil
}

func (m *Member) emitVIP(emit daemon.Emitter, v *fairleadv1.VIP) {
	if m.role.Counts {
		emit(mVIPPackets, float64(v.Counters.Packets), v.Name)
		emit(mVIPBytes, float64(v.Counters.Bytes), v.Name)
	}
	b := v.Buckets
	if b == nil {
		return
	}
	emit(mVIPBuckets, float64(b.Count), v.Name)
	emit(mVIPGeneration, float64(b.Generation), v.Name)
	if m.opened.Chains != nil {
		emit(mVIPChained, float64(b.Chained), v.Name)
		emit(mVIPRenewed, float64(b.Renewed), v.Name)
		emit(mVIPDeputies, float64(b.Deputies), v.Name)
		emit(mVIPForgotten, float64(b.Forgotten), v.Name)
	}
}

func (m *Member) emitSlot(emit daemon.Emitter, v *fairleadv1.VIP, s *fairleadv1.Slot) {
	labels := SlotLabels(v, s)
	if m.role.Counts {
		emit(mServerPackets, float64(s.Packets), labels...)
		emit(mServerBytes, float64(s.Bytes), labels...)
	}
	emit(mServerConns, float64(s.Connections), labels...)
	emit(mServerWeight, float64(s.Weight), labels...)
	emitWord(emit, mServerState, fairleadv1.SlotState_name, "SLOT_STATE_", int32(s.State), labels)
	if v.Buckets != nil && m.opened.Chains != nil {
		emit(mServerBuckets, float64(s.Buckets), labels...)
		emit(mServerPrevious, float64(s.PreviousOf), labels...)
	}
}

// SlotLabels are those of a server's metrics in a VIP.
func SlotLabels(v *fairleadv1.VIP, s *fairleadv1.Slot) []string {
	return []string{v.Name, s.Server, strconv.FormatUint(uint64(s.Number), 10)}
}

// EmitServing emits 1 for the state and 0 for the others.
func EmitServing(emit daemon.Emitter, m daemon.Metric, is fairleadv1.Serving, labels ...string) {
	emitWord(emit, m, fairleadv1.Serving_name, "SERVING_", int32(is), labels)
}

// emitWord emits 1 for the word that is, and 0 for the others of the API's names.
func emitWord(emit daemon.Emitter, m daemon.Metric, names map[int32]string, prefix string, is int32, labels []string) {
	for number, name := range names {
		if number != 0 {
			word := strings.ToLower(strings.TrimPrefix(name, prefix))
			emit(m, daemon.Truth(is == number), append(labels[:len(labels):len(labels)], word)...)
		}
	}
}
