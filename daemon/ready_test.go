package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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

// A balancer with VIPs of scheme beamer is ready when what the checks say is
// in its tables and previous servers were asked; one without does not wait for
// either.
func TestBeamerReady(t *testing.T) {
	changed := make(chan health.Report, 16)
	b := &balancer{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), down: map[health.Key]bool{}}
	b.checks = health.NewChecker(deadServer{}, func(_ health.Target, r health.Report) { changed <- r })
	defer b.checks.Close()
	b.owners = newOwnerWatch(b.log, config.TLS{}, &fakeTables{}, func() {})
	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}}
	a := &controller.Assignment{Version: 1, VIPs: []controller.VIP{{ID: 1, Name: "web", Scheme: vip.Beamer, Buckets: buckets.New(8, servers),
		Health: &vip.Health{Type: "tcp"},
		Slots: []controller.Slot{{Number: 0, Server: "s0", State: controller.Active, API: "unix:/nowhere/s0.sock"},
			{Number: 1, Server: "s1", State: controller.Active, API: "unix:/nowhere/s1.sock"}}}}}
	jet := &controller.Assignment{Version: 1, VIPs: []controller.VIP{{ID: 1, Name: "web", Scheme: vip.JET, Slots: a.VIPs[0].Slots}}}

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
	b.down[health.Key{VIP: 1, Slot: 1}] = true // applied
	if why := b.notReady(a); len(why) != 0 {
		t.Errorf("applied, but %q", why)
	}
}

// A daemon whose program is not on an interface is not ready, however long it has
// been at work, and its metrics say so.
func TestDetachedIsNotReady(t *testing.T) {
	d := newDeployment(t)
	d.start(RoleBalancer, "lb1")
	b, _ := d.cfg.Balancer("lb1")
	at := "http://" + *b.Metrics
	ready := func() (yes bool, why string) {
		status, text := get(t, at+"/ready")
		return status == http.StatusOK, text
	}
	d.eventually("ready", func() bool { yes, _ := ready(); return yes })
	for _, step := range []struct {
		interfaces []*fairleadv1.Interface
		why, gauge string
	}{
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "generic", EgressMode: "tcx"}}, "", `fairlead_program_attached{interface="eth0"} 1`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "off", EgressMode: "tcx"}}, "interface eth0: the program is not attached", `fairlead_program_attached{interface="eth0"} 0`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "native", EgressMode: "off"}}, "interface eth0: the program is not attached", `fairlead_program_attached{interface="eth0"} 0`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "native"}}, "", `fairlead_program_attached{interface="eth0"} 1`},
	} {
		p := d.planes["lb1"]
		p.mu.Lock()
		p.interfaces = step.interfaces
		p.mu.Unlock()
		if yes, why := ready(); yes != (step.why == "") || !strings.Contains(why, step.why) {
			t.Errorf("%v: ready %v: %s", step.interfaces, yes, why)
		}
		if _, text := get(t, at+"/metrics"); !strings.Contains(text, step.gauge) {
			t.Errorf("%v: /metrics lacks %s", step.interfaces, step.gauge)
		}
	}
}
