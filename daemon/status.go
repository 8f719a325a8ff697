package daemon

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/version"
)

// Status is what a role fills in to answer GetStatus.
func (d *Daemon) Status(role fairleadv1.Role) *fairleadv1.GetStatusResponse {
	return &fairleadv1.GetStatusResponse{
		Name: d.Name, Role: role, Version: version.String(), Kernel: kernelRelease(), StartedUnixMs: d.started.UnixMilli(),
	}
}

// Warnings are those of the daemon's state, pins and certificates.
func (d *Daemon) Warnings() []string {
	warnings := append(d.State.Warnings(), d.expiryWarnings(time.Now())...)
	if d.private != "" {
		warnings = append(warnings, d.private)
	}
	return warnings
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// UnixMS is t for the API; 0 for no time.
func UnixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// HopTime is how long after its start a daemon may still be resolving next hops.
// One that is not resolved after it is no reason to keep the machine from work.
const HopTime = 10 * time.Second

// Detached says on which interfaces a daemon's programs are not, whenever that is:
// what comes in there, or at a server leaves, is not Fairlead's. Why not is among
// the warnings.
func Detached(interfaces []*fairleadv1.Interface) (why []string) {
	for _, i := range interfaces {
		if !attached(i) {
			why = append(why, fmt.Sprintf("interface %s: the program is not attached", i.Name))
		}
	}
	return why
}

func attached(i *fairleadv1.Interface) bool { return i.XdpMode != "off" && i.EgressMode != "off" }

// Metrics of what is in the status of any daemon with one.
var (
	mBuild    = Gauge("build_info", "This daemon: its role (lb, host, switch or router), version and kernel. Always 1.", "role", "version", "kernel")
	mWarnings = Gauge("warnings", "Number of things that fairlead status warns of.")

	mAttached      = Gauge("program_attached", "1 if the daemon's programs are attached to the interface, 0 if somebody took them off, or it is gone.", "interface")
	mReasonPackets = Counter("packets_total", "Packets by reason; known connections that are forwarded count at their server alone.", "reason")
	mReasonBytes   = Counter("packet_bytes_total", "Bytes of these packets.", "reason")
	mLimitUsed     = Gauge("map_entries", "Entries in use of what the configuration's limits bound.", "map")
	mLimit         = Gauge("map_entries_limit", "Entries that there are.", "map")

	// StatusMetrics are those that EmitStatus emits.
	StatusMetrics = []Metric{mBuild, mWarnings, mAttached, mReasonPackets, mReasonBytes, mLimitUsed, mLimit}
)

// EmitStatus emits what is in the status of any daemon; role is its word.
func EmitStatus(emit Emitter, role string, s *fairleadv1.GetStatusResponse) {
	emit(mBuild, 1, role, s.Version, s.Kernel)
	emit(mWarnings, float64(len(s.Warnings)))
	for _, i := range s.Interfaces {
		emit(mAttached, Truth(attached(i)), i.Name)
	}
	for _, r := range s.Reasons {
		emit(mReasonPackets, float64(r.Packets), r.Name)
		emit(mReasonBytes, float64(r.Bytes), r.Name)
	}
	for _, l := range s.Limits {
		emit(mLimitUsed, float64(l.Used), l.Name)
		emit(mLimit, float64(l.Limit), l.Name)
	}
}
