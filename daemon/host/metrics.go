package host

import (
	"strconv"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/vip"
)

// A host's own families.
var (
	mVIPOut        = daemon.Counter("vip_transmit_packets_total", "Packets from the VIP to clients (host only).", "vip")
	mVIPOutBytes   = daemon.Counter("vip_transmit_bytes_total", "Bytes of these packets, from layer 3 on (host only).", "vip")
	mVIPLive       = daemon.Gauge("vip_connections", "Established connections by the key epoch that stamped them (host only).", "vip", "epoch")
	mVIPSeen       = daemon.Gauge("vip_generation_seen", "Newest generation that packets carried (host only).", "vip")
	mVIPPeersAway  = daemon.Gauge("vip_peers_unresolved", "Other servers of the VIP to which packets cannot be passed on at present (host only).", "vip")
	mVIPOwned      = daemon.Gauge("vip_owned_buckets", "Buckets of which the server owns connections (host only).", "vip")
	mVIPServing    = daemon.Gauge("vip_serving", "1 for what the agent says of its server: up, down or disabled (host only).", "vip", "state")
	mVIPEarlier    = daemon.Gauge("vip_migration_earlier", "Live connections that were opened before the VIP's migration began; only while it migrates (host only).", "vip")
	mVIPHandshakes = daemon.Counter("vip_handshakes_total", "Offloaded handshakes: answered (SYNs), opened (ended by their clients), stack (SYNs left to the stack), and of these mptcp (its listener is MPTCP's; host only).", "vip", "what")

	families = []daemon.Metric{mVIPOut, mVIPOutBytes, mVIPLive, mVIPSeen, mVIPPeersAway, mVIPOwned, mVIPServing, mVIPEarlier, mVIPHandshakes}
)

// emit emits what of a status only a host's has.
func emit(emit daemon.Emitter, s *fairleadv1.GetStatusResponse) {
	for _, v := range s.Vips {
		n := v.Counters
		emit(mVIPOut, float64(n.PacketsOut), v.Name)
		emit(mVIPOutBytes, float64(n.BytesOut), v.Name)
		// Every epoch that decodes, so that one that empties is seen to be 0.
		live := map[uint32]uint64{}
		for _, e := range s.Epochs {
			live[e] = 0
		}
		for _, l := range n.Live {
			live[l.Epoch] = l.Connections
		}
		for e, connections := range live {
			emit(mVIPLive, float64(connections), v.Name, strconv.FormatUint(uint64(e), 10))
		}
		if v.Migration != nil && v.Migration.Earlier != nil {
			emit(mVIPEarlier, float64(*v.Migration.Earlier), v.Name)
		}
		if v.Handshake == vip.HandshakeOffload {
			for what, count := range map[string]uint64{"answered": n.HandshakesAnswered, "opened": n.HandshakesOpened, "stack": n.HandshakesStack, "mptcp": n.HandshakesMptcp} {
				emit(mVIPHandshakes, float64(count), v.Name, what)
			}
		}
		if b := v.Buckets; b != nil {
			emit(mVIPSeen, float64(b.GenerationSeen), v.Name)
			emit(mVIPPeersAway, float64(b.PeersUnresolved), v.Name)
			emit(mVIPOwned, float64(b.Owned), v.Name)
			member.EmitServing(emit, mVIPServing, v.Serving, v.Name)
		}
	}
}
