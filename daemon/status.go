package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/version"
	"github.com/fairlead/fairlead/vip"
)

// skewWarning is the clock difference from which status warns: half of what
// cookies allow, so that there is time to act.
const skewWarning = cheetah.SkewMS / 2

// status is everything that the daemon knows, as GetStatus and the metrics
// show it.
func (d *daemon) status() (*fairleadv1.GetStatusResponse, error) {
	force := d.force.Load()
	a, clock := force.Assignment, d.clock.Load()
	set := d.settings.Load()
	s := &fairleadv1.GetStatusResponse{
		Name:              d.me.name,
		Role:              fairleadv1.Role_ROLE_BALANCER,
		Version:           version.String(),
		Kernel:            kernelRelease(),
		StartedUnixMs:     d.started.UnixMilli(),
		AssignmentVersion: a.Version,
		AssignmentDigest:  force.digest,
		StampEpoch:        a.StampEpoch,
		Clock:             &fairleadv1.Clock{BaseMs: clock.base, SharedMs: clock.now(), Source: string(clock.source)},
		Warnings:          slices.Clone(set.warnings),
	}
	if text := set.difference(a, d.opts.File); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	switch d.me.role {
	case RoleHost:
		s.Role = fairleadv1.Role_ROLE_HOST
	case RoleSwitch:
		s.Role = fairleadv1.Role_ROLE_SWITCH
	}
	for _, k := range a.Keys {
		s.Epochs = append(s.Epochs, k.Epoch)
	}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !d.me.concerns(v) {
			continue
		}
		s.Vips = append(s.Vips, describeVIP(v, &force.own.VIPs[i], d.me))
	}
	if err := d.plane.describe(a, s); err != nil {
		return nil, err
	}
	if d.share != nil {
		d.share.describe(s)
	}
	s.Peers, s.Clock.PeerSkewMs = d.peers.report()
	if skew := s.Clock.PeerSkewMs; skew > skewWarning || skew < -skewWarning {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"shared clock differs from a peer's by %d ms, cookies allow %d: synchronise the machines' clocks (NTP) and restart the daemon that is off once its connections are gone",
			skew, cheetah.SkewMS))
	}
	if d.alone.Load() {
		s.Warnings = append(s.Warnings, "this daemon started from the file alone, for no peer answered: it may lack what was changed since, and its clock may differ; "+
			"it catches up by itself once it reaches one (see peers)")
	}
	for _, p := range s.Peers {
		// A series of versions takes a moment to reach everybody.
		if p.Reachable && p.AssignmentVersion+1 < a.Version && d.peers.heardSince(p.Name, force.since.Add(time.Second)) {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s has assignment version %d, this daemon %d: run fairlead apply", p.Name, p.AssignmentVersion, a.Version))
		}
	}
	others, mine := split(force, s.Peers)
	if len(others) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("assignment version %d is another one at %s than here (digest %x): run fairlead apply, which gives all of them what most have",
			a.Version, strings.Join(others, ", "), force.digest[:digestShown]))
	}
	s.Warnings = append(s.Warnings, d.state.warnings()...)
	if d.learns != nil && !d.learns.asked() {
		s.NotReady = append(s.NotReady, "peers have not been asked yet which chains they have")
	}
	// What happens later does not make a balancer at work unready: all would
	// be so at once when a server is added.
	if d.me.role == RoleSwitch {
		// Of the plane's making, at any time: a drained switch is to get nothing.
	} else if d.me.role == RoleHost || d.ready.Load() {
		s.NotReady = nil
	} else if s.NotReady = append(s.NotReady, d.notReady(s)...); len(s.NotReady) == 0 && !d.ready.Swap(true) {
		d.log.Info("ready: routers may use this balancer")
	}
	if d.me.role != RoleHost && !mine {
		s.NotReady = append(s.NotReady, fmt.Sprintf("most daemons have another assignment version %d than this one (%s): run fairlead apply", a.Version, strings.Join(others, ", ")))
	}
	s.NotReady = append(s.NotReady, detached(s.Interfaces)...)
	return s, nil
}

// digestShown is how many bytes of a digest people are shown.
const digestShown = 6

// split names the peers that have another assignment under this daemon's version.
// mine is false if more than half of all that have the version, this daemon
// included, have one and the same other: then it is this one that is wrong, even
// at work. All balancers cannot be at once, and none is by a version that some
// have and others do not have yet.
func split(force *inForce, peers []*fairleadv1.Peer) (others []string, mine bool) {
	have, count := 1, map[string]int{}
	mine = true
	for _, p := range peers {
		if !p.Reachable || p.AssignmentVersion != force.Version || len(p.AssignmentDigest) == 0 {
			continue
		}
		have++
		if differs(force, p.AssignmentVersion, p.AssignmentDigest) {
			others = append(others, p.Name)
			count[string(p.AssignmentDigest)]++
		}
	}
	for _, n := range count {
		mine = mine && 2*n <= have
	}
	return others, mine
}

// detached says on which interfaces a daemon's programs are not, whenever that is:
// what comes in there, or at a server leaves, is not Fairlead's. Why not is among
// the warnings.
func detached(interfaces []*fairleadv1.Interface) (why []string) {
	for _, i := range interfaces {
		if !attached(i) {
			why = append(why, fmt.Sprintf("interface %s: the program is not attached", i.Name))
		}
	}
	return why
}

func attached(i *fairleadv1.Interface) bool { return i.XdpMode != "off" && i.EgressMode != "off" }

// becomeReady looks until the daemon is ready, so that it is also where
// nobody asks.
func (d *daemon) becomeReady(ctx context.Context) error {
	for !d.ready.Load() && sleep(ctx, 500*time.Millisecond) {
		if _, err := d.status(); err != nil {
			d.log.Debug("look whether all is ready", "error", err)
		}
	}
	return nil
}

// hopTime is how long after its start a balancer may still be resolving next
// hops. One that is not resolved after it is no reason to keep a balancer from
// work.
const hopTime = 10 * time.Second

// notReady says what a balancer that has just started does not know yet of
// servers and assignment: with traffic it would send some connections
// elsewhere than its peers do. All of it passes by itself, but a newer
// assignment that does not fit.
func (d *daemon) notReady(s *fairleadv1.GetStatusResponse) (why []string) {
	for _, p := range s.Peers {
		if p.Reachable && p.AssignmentVersion > s.AssignmentVersion {
			why = append(why, fmt.Sprintf("%s has assignment version %d, this balancer %d", p.Name, p.AssignmentVersion, s.AssignmentVersion))
		}
	}
	starting := time.Since(d.started) < hopTime
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			switch {
			case slot.State != fairleadv1.SlotState_SLOT_STATE_ACTIVE:
			case (slot.Health == fairleadv1.Health_HEALTH_UNKNOWN || slot.HealthRemembered) && slot.HealthChecks < d.patience(v.Name):
				why = append(why, fmt.Sprintf("VIP %s: server %s has not been checked yet", v.Name, slot.Server))
			case starting && slot.Health != fairleadv1.Health_HEALTH_DOWN && !slot.NextHop.GetResolved():
				why = append(why, fmt.Sprintf("VIP %s: next hop of server %s is not resolved yet", v.Name, slot.Server))
			}
		}
	}
	return why
}

// patience is how many checks of a server a balancer that starts waits for until
// they agree. Of one whose checks fail and succeed in turns they may never do.
func (d *daemon) patience(vip string) uint64 {
	if v, ok := d.force.Load().VIP(vip); ok && v.Health != nil {
		return 3 * uint64(v.Health.Rise+v.Health.Fall)
	}
	return 1
}

// describeVIP is what the assignment says of a VIP, and own of its times here;
// a host sees its own slots.
func describeVIP(v, own *controller.VIP, me self) *fairleadv1.VIP {
	out := &fairleadv1.VIP{
		Id: v.ID, Name: v.Name, Address: v.Address.String(), Port: uint32(v.Port), Protocol: v.Protocol,
		Scheme: string(v.Scheme), Policy: string(v.Policy), Affinity: v.Affinity, Forwarding: string(v.Forwarding), Steer: cmp.Or(v.Steer, vip.SteerOff),
		Fragments: v.Fragments, IcmpEcho: v.ICMPEcho, MssClamp: v.MSSClamp,
		Hash: string(v.Hash), HashRows: uint32(v.HashRows), Capacity: uint32(v.Capacity), Horizon: uint32(v.Horizon),
		WarmUpMs: uint64(v.WarmUp.Milliseconds()), Share: v.Share,
		Counters: &fairleadv1.Counters{},
	}
	if v.Bucketed() {
		out.Mptcp = v.MPTCP
		out.Buckets = &fairleadv1.Buckets{Count: uint32(v.Buckets.Len()), Generation: v.Buckets.Generation, ChainTimeMs: uint64(v.ChainTime.Milliseconds())}
	}
	if v.Scheme.Row().Finds == vip.ByCookie {
		out.CookieBits = uint32(v.CookieBits)
		out.IdleLimitMs = uint64(cheetah.Layout{Bits: v.CookieBits}.IdleLimit().Milliseconds())
	}
	now := time.Now()
	for _, slot := range v.Slots {
		if me.role == RoleHost && slot.Server != me.name {
			continue
		}
		s := &fairleadv1.Slot{
			Number: uint32(slot.Number), Server: slot.Server, Address: slot.Address.String(),
			Weight: uint32(slot.Weight), State: slotState(slot.State),
		}
		if t, ok := own.Slot(slot.Number); ok {
			s.SinceUnixMs, s.Warming = unixMS(t.Since), own.Warming(t, now)
		}
		if !slot.RestUntil.IsZero() {
			s.RestUntilUnixMs = slot.RestUntil.UnixMilli()
		}
		out.Slots = append(out.Slots, s)
	}
	return out
}

// concerns says whether v is any of this daemon's business.
func (me self) concerns(v *controller.VIP) bool {
	switch me.role {
	case RoleHost:
		return hasServer(v, me.name)
	case RoleSwitch:
		return v.Scheme.Row().Switched
	}
	return !v.Scheme.Row().Switched
}

func hasServer(v *controller.VIP, name string) bool {
	return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.Server == name })
}

func slotState(s controller.State) fairleadv1.SlotState {
	switch s {
	case controller.Joining:
		return fairleadv1.SlotState_SLOT_STATE_JOINING
	case controller.Standby:
		return fairleadv1.SlotState_SLOT_STATE_STANDBY
	case controller.Active:
		return fairleadv1.SlotState_SLOT_STATE_ACTIVE
	case controller.Draining:
		return fairleadv1.SlotState_SLOT_STATE_DRAINING
	case controller.Resting:
		return fairleadv1.SlotState_SLOT_STATE_RESTING
	}
	return fairleadv1.SlotState_SLOT_STATE_UNSPECIFIED
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// unixMS is t for the API; 0 for no time.
func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
