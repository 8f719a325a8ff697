package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/vip"
)

// skewWarning is the clock difference from which status warns: half of what
// cookies allow, so that there is time to act.
const skewWarning = cheetah.SkewMS / 2

// status is everything that the daemon knows, as GetStatus and the metrics
// show it.
func (m *Member) status() (*fairleadv1.GetStatusResponse, error) {
	force := m.force.Load()
	a, clock := force.Assignment, m.clock.Load()
	set := m.settings.Load()
	own := force.own
	if m.role.View != nil {
		a, own = m.role.View(a), m.role.View(own)
	}
	s := m.Status(m.role.Status)
	s.AssignmentVersion, s.AssignmentDigest, s.StampEpoch = a.Version, force.digest, a.StampEpoch
	s.Clock = &fairleadv1.Clock{BaseMs: clock.base, SharedMs: clock.now(), Source: string(clock.source)}
	s.Warnings = slices.Concat(set.refused, set.restart, m.stored.warnings(), m.desired.warnings())
	if text := set.unheard(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	if text := set.difference(a); text != "" && !set.patient() {
		s.Warnings = append(s.Warnings, text)
	}
	for _, k := range a.Keys {
		s.Epochs = append(s.Epochs, k.Epoch)
	}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !m.role.Concerns(v, m.Name) {
			continue
		}
		s.Vips = append(s.Vips, m.describeVIP(v, &own.VIPs[i]))
	}
	if err := m.opened.Plane.Describe(a, s); err != nil {
		return nil, err
	}
	s.Peers, s.Clock.PeerSkewMs = m.peers.report()
	if skew := s.Clock.PeerSkewMs; skew > skewWarning || skew < -skewWarning {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"shared clock differs from a peer's by %d ms, cookies allow %d: synchronise the machines' clocks (NTP) and restart the daemon that is off once its connections are gone",
			skew, cheetah.SkewMS))
	}
	for _, p := range s.Peers {
		// A series of versions takes a moment to reach everybody.
		if p.Reachable && p.AssignmentVersion+1 < a.Version && m.peers.heardSince(p.Name, force.since.Add(time.Second)) {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s has assignment version %d, this daemon %d: run fairlead apply", p.Name, p.AssignmentVersion, a.Version))
		}
	}
	others, mine := split(force, s.Peers)
	if len(others) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("assignment version %d is another one at %s than here (digest %x): run fairlead apply, which gives all of them what most have",
			a.Version, strings.Join(others, ", "), force.digest[:digestShown]))
	}
	s.Warnings = append(s.Warnings, m.Warnings()...)
	if m.learns != nil && !m.learns.asked() {
		s.NotReady = append(s.NotReady, "peers have not been asked yet which chains they have")
	}
	// What happens later does not make a balancer at work unready: all would
	// be so at once when a server is added.
	if m.opened.Starting == nil {
		// Of the plane's making, at any time: a drained switch is to get nothing.
	} else if m.ready.Load() {
		s.NotReady = nil
	} else if s.NotReady = append(s.NotReady, m.opened.Starting(s)...); len(s.NotReady) == 0 && !m.ready.Swap(true) {
		m.Log.Info("ready: routers may use this balancer")
	}
	if m.role.Routed && !mine {
		s.NotReady = append(s.NotReady, fmt.Sprintf("most daemons have another assignment version %d than this one (%s): run fairlead apply", a.Version, strings.Join(others, ", ")))
	}
	s.NotReady = append(s.NotReady, daemon.Detached(s.Interfaces)...)
	if m.leaving.Load() {
		s.NotReady = append(s.NotReady, "the daemon is stopping")
	}
	m.describeBGP(s)
	m.describeL2(s)
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

// becomeReady looks until the daemon is ready, so that it is also where
// nobody asks.
func (m *Member) becomeReady(ctx context.Context) error {
	for !m.ready.Load() && daemon.Sleep(ctx, 500*time.Millisecond) {
		if _, err := m.status(); err != nil {
			m.Log.Debug("look whether all is ready", "error", err)
		}
	}
	return nil
}

// describeVIP is what the assignment says of a VIP, and own of its times here;
// a host sees its own slots.
func (m *Member) describeVIP(v, own *controller.VIP) *fairleadv1.VIP {
	out := &fairleadv1.VIP{
		Id: v.ID, Name: v.Name, Address: v.Address.String(), Port: uint32(v.Port), Protocol: v.Protocol,
		Scheme: string(v.Scheme), Policy: string(v.Policy), Affinity: v.Affinity, Forwarding: string(v.Forwarding), Steer: cmp.Or(v.Steer, vip.SteerOff),
		Handshake: v.Handshakes(), Fragments: v.Fragments, IcmpEcho: v.ICMPEcho, MssClamp: v.MSSClamp,
		Hash: string(v.Hash), HashRows: uint32(v.HashRows), Capacity: uint32(v.Capacity), Horizon: uint32(v.Horizon),
		WarmUpMs: uint64(v.WarmUp.Milliseconds()), Share: v.Share,
		Counters: &fairleadv1.Counters{},
	}
	if v.Bucketed() {
		out.Mptcp = v.MPTCP
		out.Buckets = &fairleadv1.Buckets{Count: uint32(v.Buckets.Len()), Generation: v.Buckets.Generation, ChainTimeMs: uint64(v.ChainTime.Milliseconds())}
	}
	if v.Scheme.Row().Finds == vip.ByCookie {
		out.CookieBits, out.SeatBits = uint32(v.CookieBits), uint32(v.SeatBits)
		out.IdleLimitMs = uint64(v.Layout().IdleLimit().Milliseconds())
	}
	if v.Rates != nil && m.role.Is == config.RoleBalancer {
		out.Rates = v.Rates.String()
	}
	if g := v.Migration; g != nil {
		out.Migration = &fairleadv1.Migration{From: string(g.From.Scheme), Stage: string(g.Stage), StageSinceUnixMs: daemon.UnixMS(g.Since)}
	}
	now := time.Now()
	for _, slot := range v.Slots {
		if m.role.Is == config.RoleHost && slot.Server != m.Name {
			continue
		}
		s := &fairleadv1.Slot{
			Number: uint32(slot.Number), Server: slot.Server, Address: slot.Address.String(),
			Weight: uint32(slot.Weight), State: slotState(slot.State),
		}
		if t, ok := own.Slot(slot.Number); ok {
			s.SinceUnixMs, s.Warming = daemon.UnixMS(t.Since), own.Warming(t, now)
		}
		if !slot.RestUntil.IsZero() {
			s.RestUntilUnixMs = slot.RestUntil.UnixMilli()
		}
		out.Slots = append(out.Slots, s)
	}
	return out
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

// Unserved warns of a VIP whose servers shall all take no new connections, so
// that these go nowhere, or with buckets to them all the same; empty for any other.
func Unserved(v *fairleadv1.VIP) string {
	idle := false // somebody could
	for _, slot := range v.Slots {
		switch slot.State {
		case fairleadv1.SlotState_SLOT_STATE_ACTIVE:
			return ""
		case fairleadv1.SlotState_SLOT_STATE_DRAINING, fairleadv1.SlotState_SLOT_STATE_STANDBY:
			idle = true
		}
	}
	if idle && v.Buckets != nil {
		return fmt.Sprintf("VIP %s: all its servers drain, and go on taking new connections, as nobody else can have their buckets: undrain one, or lead clients elsewhere", v.Name)
	}
	if idle {
		return fmt.Sprintf("VIP %s: no server takes new connections: undrain one", v.Name)
	}
	return fmt.Sprintf("VIP %s: no server takes new connections: add one", v.Name)
}

// ServingWord is up, down or disabled for the API; anything else is not known.
func ServingWord(state string) fairleadv1.Serving {
	return fairleadv1.Serving(fairleadv1.Serving_value["SERVING_"+strings.ToUpper(state)])
}
