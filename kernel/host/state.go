package host

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// Whether this server serves a VIP is asked on the spot, of the VIP's own
// address on the loopback: by the VIP's check, and where it has none by looking
// who listens.

// probeListen is the type of check that asks whether anybody listens.
const probeListen = "listen"

// settleAfter is how long a server that was down takes nothing for settled once
// it is up again: by then no balancer holds it down still, so that nobody's new
// connections go to its deputies.
const settleAfter = 10 * time.Second

// states is whether this server serves its VIPs.
type states struct {
	checks  *health.Checker
	changed chan struct{} // some state did
}

// localProber asks in the agent's network namespace.
type localProber struct {
	ns   netns.NsHandle
	diag *diag
}

func newStates(p health.Prober, log func(health.Target, health.Report)) *states {
	s := &states{changed: make(chan struct{}, 1)}
	s.checks = health.NewChecker(p, func(t health.Target, r health.Report) {
		log(t, r)
		select {
		case s.changed <- struct{}{}:
		default: // it is going to be looked at
		}
	})
	return s
}

// watch makes vips those that are checked.
func (s *states) watch(vips []*tables.ChainVIP, server string) {
	var targets []health.Target
	for _, v := range vips {
		if v.Disabled || v.Service.Port() == 0 && v.Health == nil {
			continue
		}
		t := health.Target{VIP: v.ID, VIPName: v.Name, Slot: v.Slot, Server: server,
			Address: v.Service, Type: probeListen, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
		if h := v.Health; h != nil {
			t.Address = netip.AddrPortFrom(v.Service.Addr(), h.Port)
			t.Type, t.Path, t.Host, t.Interval, t.Timeout, t.Rise, t.Fall = h.Type, h.Path, h.Host, h.Interval, h.Timeout, h.Rise, h.Fall
		} else {
			// The line is the balancer's; a look at sockets has no use for it.
			t.Line = uint32(v.Proto)
		}
		targets = append(targets, t)
	}
	s.checks.SetTargets(targets)
}

// of is the state of v. Where nothing is checked it is up.
func (s *states) of(v *tables.ChainVIP) (state ServingState, detail string) {
	if v.Disabled {
		return ServingDisabled, "takes no new connections, by the assignment"
	}
	switch r, ok := s.checks.Report(v.ID, v.Slot); {
	case ok && r.State == health.Down:
		return ServingDown, r.Detail
	case ok && r.State != health.Up:
		return ServingUnknown, "no check is over since the agent started"
	}
	return ServingUp, ""
}

// hasEnded: nobody listens for v any more, and no check has said anything since.
func (s *states) hasEnded(v *tables.ChainVIP) bool {
	r, _ := s.checks.Report(v.ID, v.Slot)
	return r.Ended
}

// unsettled says that some balancer may hold the server down, and have given
// its new connections to others: it is down, or it was a moment ago, or
// nothing is known yet.
func (s *states) unsettled(v *tables.ChainVIP, now time.Time) bool {
	r, checked := s.checks.Report(v.ID, v.Slot)
	return checked && (r.State != health.Up || now.Sub(r.Since) < settleAfter)
}

func (s *states) close() { s.checks.Close() }

// Probe implements health.Prober.
func (p localProber) Probe(ctx context.Context, t health.Target) error {
	if t.Type == probeListen {
		return p.listens(uint8(t.Line), t.Address)
	}
	return kernel.InNamespace(p.ns, func() error { return health.Network{}.Probe(ctx, t) })
}

// listens fails unless a socket takes what comes to address.
func (p localProber) listens(proto uint8, address netip.AddrPort) error {
	states, found := uint32(1<<tcpListen), false
	if proto == wire.ProtoUDP {
		states = 1 << tcpClose // UDP's sockets without a peer
	}
	err := p.diag.each(proto, states, func(s socket) {
		a := s.local.Addr()
		// A socket of IPv6's any address takes IPv4 as well, unless it was told
		// not to, which cannot be seen here.
		any := a.IsUnspecified() && (a.Is6() || address.Addr().Is4())
		found = found || s.local.Port() == address.Port() && (any || a == address.Addr())
	})
	if err == nil && !found {
		err = fmt.Errorf("nobody listens on port %d", address.Port())
	}
	return err
}
