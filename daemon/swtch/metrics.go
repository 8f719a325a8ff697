package swtch

import (
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
)

// A switch's own families.
var (
	mSwitchDrained     = daemon.Gauge("switch_drained", "1 while the VIPs' routes are not announced.")
	mSwitchLocked      = daemon.Gauge("switch_locked", "1 while the switch follows nobody's health, because most servers went down at once.")
	mSwitchPlain       = daemon.Gauge("switch_plain", "1 while the locked switch forwards by plain ECMP.")
	mSwitchWrong       = daemon.Gauge("switch_kernel_wrong", "1 while the kernel is not as it should be; fairlead status says why.")
	mSwitchHostState   = daemon.Gauge("switch_host_state", "1 for the state that the switch takes the server to be in: up, down or disabled.", "server", "state")
	mSwitchHeld        = daemon.Gauge("switch_host_held_down", "1 while the server is held down for going up and down too often.", "server")
	mSwitchNexthops    = daemon.Gauge("switch_nexthops", "Virtual nexthops that the server has.", "server")
	mSwitchPrevious    = daemon.Gauge("switch_previous_nexthops", "Virtual nexthops of current for which server is still asked as a previous one.", "server", "current")
	mSwitchChained     = daemon.Gauge("switch_chained_nexthops", "Virtual nexthops with a previous server.")
	mSwitchCorrections = daemon.Counter("switch_corrections_total", "Changes by somebody else in the kernel that were put right.", "kind")
	mSwitchRepointed   = daemon.Counter("switch_repointed_total", "Virtual nexthops whose server or previous servers changed.")
	mSwitchLastChange  = daemon.Gauge("switch_last_change_seconds", "How long the last such change took.")
	mSwitchRetries     = daemon.Counter("switch_retries_total", "Changes that the kernel refused midway and that were tried again.")
	mSwitchRollbacks   = daemon.Counter("switch_rollbacks_total", "Changes that were taken back after that.")

	families = []daemon.Metric{mSwitchDrained, mSwitchLocked, mSwitchPlain, mSwitchWrong, mSwitchHostState, mSwitchHeld, mSwitchNexthops, mSwitchPrevious, mSwitchChained, mSwitchCorrections, mSwitchRepointed, mSwitchLastChange, mSwitchRetries, mSwitchRollbacks}
)

// emit emits what of a status only a switch's has.
func emit(emit daemon.Emitter, r *fairleadv1.GetStatusResponse) {
	s := r.Switch
	emit(mSwitchDrained, daemon.Truth(s.Drained))
	emit(mSwitchLocked, daemon.Truth(s.Locked))
	emit(mSwitchPlain, daemon.Truth(s.Plain))
	emit(mSwitchWrong, daemon.Truth(s.Error != ""))
	emit(mSwitchChained, float64(s.Chained))
	emit(mSwitchRepointed, float64(s.Repointed))
	emit(mSwitchLastChange, (time.Duration(s.LastChangeUs) * time.Microsecond).Seconds())
	emit(mSwitchRetries, float64(s.Retries))
	emit(mSwitchRollbacks, float64(s.Rollbacks))
	for _, c := range s.Corrections {
		emit(mSwitchCorrections, float64(c.Count), c.Kind)
	}
	for _, h := range s.Hosts {
		member.EmitServing(emit, mSwitchHostState, h.State, h.Server)
		emit(mSwitchHeld, daemon.Truth(h.HeldDownUntilUnixMs != 0), h.Server)
		emit(mSwitchNexthops, float64(h.Nexthops), h.Server)
		for _, p := range h.PreviousOf {
			emit(mSwitchPrevious, float64(p.Nexthops), h.Server, p.Server)
		}
	}
}
