package lb

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/vip"
)

// deadServer fails the checks of slot 1.
type deadServer struct{}

func (deadServer) Probe(_ context.Context, t health.Target) error {
	if t.Slot == 1 {
		return errors.New("refused")
	}
	return nil
}

// A balancer is ready when what the checks say is in its tables and, with VIPs of
// scheme beamer, previous servers were asked.
func TestNotReady(t *testing.T) {
	changed := make(chan health.Report, 16)
	b := &balancer{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), down: map[health.Key]bool{}}
	b.checks = health.NewChecker(deadServer{}, func(_ health.Target, r health.Report) { changed <- r })
	defer b.checks.Close()
	b.owners = newOwnerWatch(b.log, config.TLS{}, &fakeTables{}, func() {})
	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}}
	a := &controller.Assignment{Version: 1, VIPs: []controller.VIP{{
		ID:       1,
		Settings: vip.Settings{Name: "web", Scheme: vip.Beamer, Health: &vip.Health{Type: "tcp"}},
		Buckets:  buckets.New(8, servers),
		Slots: []controller.Slot{{Number: 0, Server: "s0", State: controller.Active, API: "unix:/nowhere/s0.sock"},
			{Number: 1, Server: "s1", State: controller.Active, API: "unix:/nowhere/s1.sock"}},
	}}}
	jet := &controller.Assignment{Version: 1, VIPs: []controller.VIP{{ID: 1, Settings: vip.Settings{Name: "web", Scheme: vip.JET, Health: &vip.Health{Type: "tcp"}}, Slots: a.VIPs[0].Slots}}}

	says := func(text string) bool {
		return slices.ContainsFunc(b.notReady(a), func(why string) bool { return strings.Contains(why, text) })
	}
	if !says("have not been asked yet what they own") || says("s1") || len(b.notReady(jet)) != 0 {
		t.Errorf("at the start: %q, of scheme jet %q", b.notReady(a), b.notReady(jet))
	}
	b.owners.follow(a, 0)
	b.owners.round(t.Context())
	if why := b.notReady(a); len(why) != 0 {
		t.Errorf("nothing is left to wait for, but %q", why)
	}
	b.checks.SetTargets([]health.Target{{VIP: 1, Slot: 1, Address: netip.MustParseAddrPort("192.0.2.1:80"), Type: "tcp",
		Interval: 10 * time.Millisecond, Timeout: 10 * time.Millisecond, Rise: 1, Fall: 1}})
	for (<-changed).State != health.Down {
	}
	if !says("what the checks say of server s1 is not in the tables yet") {
		t.Errorf("s1 is down and has its buckets still: %q", b.notReady(a))
	}
	if why := b.notReady(jet); len(why) != 1 || !strings.Contains(why[0], "what the checks say of server s1") {
		t.Errorf("s1 is down and has its rows still, of scheme jet: %q", why)
	}
	select {
	case <-b.wake:
	default:
	}
	// Filled before the checks said so: then it is done again, and not once more.
	b.applied(jet, map[health.Key]bool{}, map[uint32]bool{})
	if len(b.wake) != 1 {
		t.Error("s1 went down while the tables were filled, and stays in them")
	}
	<-b.wake
	b.applied(jet, map[health.Key]bool{{VIP: 1, Slot: 1}: true}, map[uint32]bool{})
	if len(b.wake) != 0 {
		t.Error("applied again without a reason")
	}
	if why := slices.Concat(b.notReady(a), b.notReady(jet)); len(why) != 0 {
		t.Errorf("applied, but %q", why)
	}
}

// A balancer that starts waits for each server until checks of its own have said how it
// is, however long that takes, and for what was known before until they have had time to
// say otherwise.
func TestUnknown(t *testing.T) {
	check := &vip.Health{Rise: 2, Fall: 3}
	for _, c := range []struct {
		health     fairleadv1.Health
		remembered bool
		checks     uint64
		want       bool
	}{
		{fairleadv1.Health_HEALTH_UNSPECIFIED, false, 0, true}, // it is no target yet
		{fairleadv1.Health_HEALTH_UNKNOWN, false, 0, true},
		{fairleadv1.Health_HEALTH_UNKNOWN, false, 1000, true},
		{fairleadv1.Health_HEALTH_UP, false, 2, false},
		{fairleadv1.Health_HEALTH_DOWN, false, 1, false},
		{fairleadv1.Health_HEALTH_UP, true, 14, true},
		{fairleadv1.Health_HEALTH_DOWN, true, 14, true},
		{fairleadv1.Health_HEALTH_UP, true, 15, false},
	} {
		slot := &fairleadv1.Slot{Health: c.health, HealthRemembered: c.remembered, HealthChecks: c.checks}
		if unknown(check, slot) != c.want || unknown(nil, slot) {
			t.Errorf("%+v", c)
		}
	}
}
