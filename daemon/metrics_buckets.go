package daemon

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// Metrics of schemes beamer and faild.
var (
	mVIPBuckets    = gauge("vip_buckets", "Buckets of the VIP's table.", "vip")
	mVIPGeneration = gauge("vip_generation", "Generation of the bucket table in force; goes round at 2^32.", "vip")
	mVIPSeen       = gauge("vip_generation_seen", "Newest generation that packets carried (host only).", "vip")
	mVIPChained    = gauge("vip_chained_buckets", "Buckets whose packets name a previous server (balancer and switch).", "vip")
	mVIPRenewed    = gauge("vip_renewed_buckets", "Of these, those renewed, half of their chain_time or more after the move, because a previous server still owns connections of them.", "vip")
	mVIPDeputies   = gauge("vip_deputised_buckets", "Buckets whose server is down or disabled, so that another stands in.", "vip")
	mVIPForgotten  = counter("vip_forgotten_previous_total", "Previous servers that found no place in a chain though connections may have been there.", "vip")
	mVIPPeersAway  = gauge("vip_peers_unresolved", "Other servers of the VIP to which packets cannot be passed on at present (host only).", "vip")
	mVIPOwned      = gauge("vip_owned_buckets", "Buckets of which the server owns connections (host only).", "vip")
	mVIPServing    = gauge("vip_serving", "1 for what the agent says of its server: up, down or disabled (host only).", "vip", "state")

	mServerBuckets  = gauge("server_buckets", "Buckets that the server has.", "vip", "server", "slot")
	mServerPrevious = gauge("server_previous_buckets", "Buckets for which it is still asked as a previous server.", "vip", "server", "slot")

	bucketMetrics = []metric{mVIPBuckets, mVIPGeneration, mVIPSeen, mVIPChained, mVIPRenewed, mVIPDeputies, mVIPForgotten, mVIPPeersAway, mVIPOwned, mVIPServing, mServerBuckets, mServerPrevious}
)

// Metrics of a switch.
var (
	mSwitchDrained     = gauge("switch_drained", "1 while the VIPs' routes are not announced.")
	mSwitchLocked      = gauge("switch_locked", "1 while the switch follows nobody's health, because most servers went down at once.")
	mSwitchPlain       = gauge("switch_plain", "1 while the locked switch forwards by plain ECMP.")
	mSwitchWrong       = gauge("switch_kernel_wrong", "1 while the kernel is not as it should be; fairlead status says why.")
	mSwitchHostState   = gauge("switch_host_state", "1 for the state that the switch takes the server to be in: up, down or disabled.", "server", "state")
	mSwitchHeld        = gauge("switch_host_held_down", "1 while the server is held down for going up and down too often.", "server")
	mSwitchNexthops    = gauge("switch_nexthops", "Virtual nexthops that the server has.", "server")
	mSwitchPrevious    = gauge("switch_previous_nexthops", "Virtual nexthops of current for which server is still asked as a previous one.", "server", "current")
	mSwitchChained     = gauge("switch_chained_nexthops", "Virtual nexthops with a previous server.")
	mSwitchCorrections = counter("switch_corrections_total", "Changes by somebody else in the kernel that were put right.", "kind")
	mSwitchRepointed   = counter("switch_repointed_total", "Virtual nexthops whose server or previous servers changed.")
	mSwitchLastChange  = gauge("switch_last_change_seconds", "How long the last such change took.")
	mSwitchRetries     = counter("switch_retries_total", "Changes that the kernel refused midway and that were tried again.")
	mSwitchRollbacks   = counter("switch_rollbacks_total", "Changes that were taken back after that.")

	switchMetrics = []metric{mSwitchDrained, mSwitchLocked, mSwitchPlain, mSwitchWrong, mSwitchHostState, mSwitchHeld, mSwitchNexthops,
		mSwitchPrevious, mSwitchChained, mSwitchCorrections, mSwitchRepointed, mSwitchLastChange, mSwitchRetries, mSwitchRollbacks}
)

func emitBuckets(emit emitter, v *fairleadv1.VIP, role fairleadv1.Role) {
	b := v.Buckets
	if b == nil {
		return
	}
	emit(mVIPBuckets, float64(b.Count), v.Name)
	emit(mVIPGeneration, float64(b.Generation), v.Name)
	if role != fairleadv1.Role_ROLE_HOST {
		emit(mVIPChained, float64(b.Chained), v.Name)
		emit(mVIPRenewed, float64(b.Renewed), v.Name)
		emit(mVIPDeputies, float64(b.Deputies), v.Name)
		emit(mVIPForgotten, float64(b.Forgotten), v.Name)
		return
	}
	emit(mVIPSeen, float64(b.GenerationSeen), v.Name)
	emit(mVIPPeersAway, float64(b.PeersUnresolved), v.Name)
	emit(mVIPOwned, float64(b.Owned), v.Name)
	emitServing(emit, mVIPServing, v.Serving, v.Name)
}

// emitServing emits 1 for the state and 0 for the others.
func emitServing(emit emitter, m metric, is fairleadv1.Serving, labels ...string) {
	for number, name := range fairleadv1.Serving_name {
		if number != 0 {
			word := strings.ToLower(strings.TrimPrefix(name, "SERVING_"))
			emit(m, truth(is == fairleadv1.Serving(number)), append(labels[:len(labels):len(labels)], word)...)
		}
	}
}

func emitSwitch(emit emitter, s *fairleadv1.Switch) {
	emit(mSwitchDrained, truth(s.Drained))
	emit(mSwitchLocked, truth(s.Locked))
	emit(mSwitchPlain, truth(s.Plain))
	emit(mSwitchWrong, truth(s.Error != ""))
	emit(mSwitchChained, float64(s.Chained))
	emit(mSwitchRepointed, float64(s.Repointed))
	emit(mSwitchLastChange, (time.Duration(s.LastChangeUs) * time.Microsecond).Seconds())
	emit(mSwitchRetries, float64(s.Retries))
	emit(mSwitchRollbacks, float64(s.Rollbacks))
	for _, c := range s.Corrections {
		emit(mSwitchCorrections, float64(c.Count), c.Kind)
	}
	for _, h := range s.Hosts {
		emitServing(emit, mSwitchHostState, h.State, h.Server)
		emit(mSwitchHeld, truth(h.HeldDownUntilUnixMs != 0), h.Server)
		emit(mSwitchNexthops, float64(h.Nexthops), h.Server)
		for _, p := range h.PreviousOf {
			emit(mSwitchPrevious, float64(p.Nexthops), h.Server, p.Server)
		}
	}
}
