package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// balancer is the plane of `fairlead lb`: the data plane, and the health of
// its servers laid over the assignment.
type balancer struct {
	log    *slog.Logger
	lb     *lb.LB
	checks *health.Checker
	wake   chan struct{}
	// private warns of pins that will not last; empty: they do.
	private string

	state   *stateDir
	known   []health.Known // before the first assignment: what was known
	begun   bool           // one was applied
	learned chan struct{}  // what is known has changed

	mu       sync.Mutex
	failOpen map[uint32]bool // by VIP id, as last applied
	down     map[health.Key]bool

	table  flowWatch
	owners *ownerWatch
	steer  *steerWatch // nil: nothing can be steered
}

// bucketLB is the data plane as ownerWatch sees it.
type bucketLB struct{ *lb.LB }

func (b *balancer) chainVIPs() (ids []uint32) {
	for _, s := range b.lb.Status().Buckets {
		ids = append(ids, s.VIP)
	}
	return ids
}

func (b *balancer) chainRows(vip uint32, first, max int) (rows []buckets.BucketRow, generation uint32, size, next int) {
	rows, generation, next = b.lb.ChainRows(vip, first, max)
	for _, s := range b.lb.Status().Buckets {
		if s.VIP == vip {
			size = s.Buckets
		}
	}
	return rows, generation, size, next
}

func (b *balancer) learnChains(vip uint32, rows []buckets.BucketRow) {
	if b.lb.LearnChains(vip, rows) {
		b.owners.applySoon()
	}
}

func (l bucketLB) chained() map[uint32][]uint16 {
	named := map[uint32][]uint16{}
	for _, b := range l.Status().Buckets {
		named[b.VIP] = b.Previous
	}
	return named
}

// openPlane opens the kernel side of whichever daemon this is.
func openPlane(me self, cfg *config.Config, o Options, log *slog.Logger) (plane, error) {
	if me.role == RoleSwitch {
		return openSwitch(me, cfg, o, log)
	}
	private, err := lasting(o.PinDir, me.name, o.PrivatePins, log)
	if err != nil {
		return nil, err
	}
	if me.role == RoleHost {
		return openHost(me, cfg, o, private, log)
	}
	steering, err := openSteering(me, cfg, log)
	if err != nil {
		return nil, err
	}
	lb, err := lb.Open(lb.Options{
		Name: me.name, PinDir: o.PinDir, Interfaces: me.interfaces,
		Source4: me.balancer.Source, Source6: me.balancer.Source6, Limits: cfg.Limits,
		GUEChecksum6: me.balancer.GUEChecksum, Steer: steering != nil, Unguarded: o.Unguarded,
	}, log)
	if err != nil {
		return nil, err
	}
	b := &balancer{log: log, lb: lb, private: private, state: o.state, wake: make(chan struct{}, 1), learned: make(chan struct{}, 1)}
	b.checks = health.NewChecker(health.Network{Steer: b.steerCheck}, b.healthChanged)
	b.owners = newOwnerWatch(log, cfg.TLS, bucketLB{lb}, b.again)
	b.remember()
	if b.steer = steering; steering != nil {
		steering.plane = lb
	}
	return b, nil
}

func (b *balancer) healthChanged(t health.Target, r health.Report) {
	b.log.Info("server's health", "vip", t.VIPName, "server", t.Server, "state", r.State.String(), "detail", r.Detail)
	b.mu.Lock()
	// From unknown to up changes no table.
	concerns := r.State == health.Down || b.down[health.Key{VIP: t.VIP, Slot: t.Slot}] || b.failOpen[t.VIP]
	b.mu.Unlock()
	select {
	case b.learned <- struct{}{}:
	default: // it is going to be written
	}
	if concerns {
		b.again()
	}
}

// again has the assignment applied once more, soon.
func (b *balancer) again() {
	select {
	case b.wake <- struct{}{}:
	default: // a change is waiting to be applied already
	}
}

// endAfter: see endsChains. The next round of reports applies it.
func (b *balancer) endAfter(t time.Time) { b.lb.SetEndAfter(t) }

func (b *balancer) changed() <-chan struct{} { return b.wake }

func (b *balancer) clockBase() (uint32, bool) { return b.lb.ClockBase() }

func (b *balancer) fixClock(base uint32) error {
	return b.lb.SetClock(func() uint32 { return monotonicMS() + base })
}

// apply takes servers that are down out of the tables; they keep their slots.
func (b *balancer) apply(a *controller.Assignment) (due time.Time, err error) {
	began := time.Now()
	if !b.begun {
		b.recall(a)
	}
	down, failOpen := overlay(a, b.checks.Down)
	due, err = b.lb.Apply(a, func(vip uint32, slot uint16) bool { return down[health.Key{VIP: vip, Slot: slot}] })
	if err != nil {
		return due, err
	}
	b.begun, b.known = true, nil
	b.mu.Lock()
	for id := range failOpen {
		if !b.failOpen[id] {
			b.log.Warn("every active server of a VIP is down by its checks: all of them are used", "vip", id)
		}
	}
	b.down, b.failOpen = down, failOpen
	b.mu.Unlock()
	targets := b.targets(a)
	vips := map[uint32]netip.Addr{}
	for _, t := range targets {
		vips[t.Line] = t.Address.Addr()
	}
	if err := b.lb.SteerChecks(vips); err != nil {
		// Those concerned are not made, which says why; the assignment is in force.
		b.log.Error("health checks cannot be steered", "error", err)
	}
	b.checks.SetTargets(targets)
	b.owners.follow(a, time.Since(began))
	if b.steer != nil {
		b.steer.follow(a)
	}
	return due, nil
}

// overlay is which slots are out of the tables for their health. Where every
// active server of a VIP is down the checks are not believed: an answer that
// may come is better than none.
func overlay(a *controller.Assignment, isDown func(uint32, uint16) bool) (down map[health.Key]bool, failOpen map[uint32]bool) {
	down, failOpen = map[health.Key]bool{}, map[uint32]bool{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !isChecked(v) {
			continue
		}
		var active int
		var out []health.Key
		for _, s := range v.Slots {
			if s.State != controller.Active {
				continue
			}
			active++
			if isDown(v.ID, s.Number) {
				out = append(out, health.Key{VIP: v.ID, Slot: s.Number})
			}
		}
		if active > 0 && len(out) == active {
			failOpen[v.ID] = true
			continue
		}
		for _, k := range out {
			down[k] = true
		}
	}
	return down, failOpen
}

// targets is what is to be checked: every server that takes connections or may
// soon. A draining one is left alone, so that the connections that its
// agent counts go to zero; undrained, it begins as unknown, which is up.
func (b *balancer) targets(a *controller.Assignment) (targets []health.Target) {
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !isChecked(v) {
			continue
		}
		for _, s := range v.Slots {
			if s.State != controller.Active && s.State != controller.Joining && s.State != controller.Standby {
				continue
			}
			t := target(v, s)
			var ok bool
			if t.Line, ok = b.lb.Line(v.ID, s.Number); ok { // else applied a moment ago: every slot has its line
				targets = append(targets, t)
			}
		}
	}
	return targets
}

// steerCheck is from where to where a check's socket connects.
func (b *balancer) steerCheck(t health.Target) (from netip.Addr, to netip.AddrPort, err error) {
	from, at, err := b.lb.CheckWay(t.Address.Addr(), t.At)
	return from, netip.AddrPortFrom(at, t.Address.Port()), err
}

func (b *balancer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.lb.Run(ctx) })
	g.Go(func() error { return b.watchFlows(ctx) })
	g.Go(func() error { return b.owners.run(ctx) })
	g.Go(func() error { return b.keepHealth(ctx) })
	if b.steer != nil {
		g.Go(func() error { return b.steer.run(ctx) })
	}
	g.Go(func() error { <-ctx.Done(); b.checks.Close(); return nil })
	return g.Wait()
}

func (b *balancer) readFabric(f *topology.Fabric) (changed bool, err error) {
	if b.steer == nil {
		return false, nil
	}
	return b.steer.read(f)
}

func (b *balancer) live(*controller.Assignment) ([]*fairleadv1.LiveVIP, error) { return nil, nil }

func (b *balancer) restoreClock(base uint32) error { return b.lb.RestoreClock(base) }

func (b *balancer) pinDir() string { return b.lb.PinDir() }

func (b *balancer) flows() flowTable { return b.lb }

func (b *balancer) close() error {
	b.checks.Close()
	return b.lb.Close()
}

// describe fills in interfaces, counters, health and next hops.
func (b *balancer) describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	kernel := b.lb.Status()
	s.PinDir, s.Adopted = kernel.PinDir, kernel.Adopted
	s.Clock.Hz = uint32(kernel.HZ)
	s.Warnings = append(s.Warnings, kernel.Astray...)
	if b.private != "" {
		s.Warnings = append(s.Warnings, b.private)
	}
	for _, i := range kernel.Interfaces {
		s.Interfaces = append(s.Interfaces, &fairleadv1.Interface{
			Name: i.Name, Index: uint32(i.Index), XdpMode: i.Mode, EgressMode: i.Egress, Mtu: uint32(i.MTU),
		})
		if i.Mode == "generic" {
			s.Warnings = append(s.Warnings, fmt.Sprintf("interface %s runs XDP in generic mode, several times slower: use a driver with native XDP", i.Name))
		}
	}
	for _, l := range kernel.Limits {
		s.Limits = append(s.Limits, &fairleadv1.Limit{Name: l.Name, Used: l.Used, Limit: l.Limit})
		if l.Name == "flows" {
			continue // entries that give way fill it, rightly: see flowWatch
		}
		if l.Limit > 0 && l.Used*10 > l.Limit*9 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %d of %d used: raise limits.%s in the configuration and restart", l.Name, l.Used, l.Limit, l.Name))
		}
	}
	if text := b.unaskedWarning(); text != "" {
		s.Warnings = append(s.Warnings, text)
	}
	hops := map[netip.Addr]nexthop.Hop{}
	for _, h := range kernel.NextHops {
		hops[h.Server] = h
	}
	counters, err := b.lb.Counters()
	if err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for _, r := range counters.Reasons {
		s.Reasons = append(s.Reasons, &fairleadv1.Reason{Name: strings.ToLower(r.Name), Packets: r.Packets, Bytes: r.Bytes})
	}
	b.table.describe(s)
	b.steer.describe(a, s)
	chains := map[uint32]tables.BucketStatus{}
	for _, c := range kernel.Buckets {
		chains[c.VIP] = c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.NotReady = append(s.NotReady, b.notReady(a)...)
	for _, v := range s.Vips {
		b.describeVIP(v, a, counters, hops)
		describeBuckets(v, chains[v.Id])
		if text := unserved(v); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		if v.FailOpen {
			s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: every active server is down by its checks, so all are used: see health_detail, and the check's settings", v.Name))
		}
		for _, slot := range v.Slots {
			if slot.State != fairleadv1.SlotState_SLOT_STATE_RESTING && slot.NextHop != nil && !slot.NextHop.Resolved {
				s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: next hop of server %s (%s) is not resolved: check its address and the route to it (ip neigh, ip route get)", v.Name, slot.Server, slot.Address))
			}
		}
	}
	return nil
}

// notReady says what a balancer that has just started does not know yet of
// VIPs of scheme beamer; the caller holds mu. One that begins before would
// send packets to servers that its peers hold for down, or end chains that
// they keep.
func (b *balancer) notReady(a *controller.Assignment) (why []string) {
	now, _ := overlay(a, b.checks.Down)
	beamer := false
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Hops {
			continue
		}
		beamer = true
		for _, s := range v.Slots {
			if key := (health.Key{VIP: v.ID, Slot: s.Number}); now[key] != b.down[key] {
				why = append(why, fmt.Sprintf("VIP %s: what the checks say of server %s is not in the tables yet", v.Name, s.Server))
			}
		}
	}
	if beamer && !b.owners.asked() {
		why = append(why, "previous servers of scheme beamer have not been asked yet what they own")
	}
	return why
}

// describeBuckets fills in how v's bucket table stands.
func describeBuckets(v *fairleadv1.VIP, c tables.BucketStatus) {
	if v.Buckets == nil || c.VIP != v.Id {
		return
	}
	v.Buckets.Generation, v.Buckets.Chained, v.Buckets.ChainsEndUnixMs = c.Generation, uint32(c.Chains), unixMS(c.LastEnd)
	v.Buckets.FirstChainEndsUnixMs = unixMS(c.FirstEnd)
	v.Buckets.Forgotten, v.Buckets.Deputies, v.Buckets.Renewed = c.Forgotten, uint32(c.Deputies), uint32(c.Renewed)
	for _, s := range v.Slots {
		n := uint16(s.Number)
		s.Buckets, s.PreviousOf = uint32(c.Loads[n]), uint32(c.PreviousOf[n])
		if s.State == fairleadv1.SlotState_SLOT_STATE_DRAINING {
			s.TakesNew = s.Buckets > 0 // all drain, and they have nowhere to go
		}
	}
}

// unserved warns of a VIP whose servers shall all take no new connections, so
// that these go nowhere, or with buckets to them all the same; empty for any other.
func unserved(v *fairleadv1.VIP) string {
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

// checked says whether a VIP has a health check.
func (b *balancer) checked(a *controller.Assignment, id uint32) bool {
	return slices.ContainsFunc(a.VIPs, func(c controller.VIP) bool { return c.ID == id && c.Health != nil })
}

// describeVIP fills in one VIP; the caller holds mu.
func (b *balancer) describeVIP(v *fairleadv1.VIP, a *controller.Assignment, counters lb.Counters, hops map[netip.Addr]nexthop.Hop) {
	checked := b.checked(a, v.Id)
	v.FailOpen = b.failOpen[v.Id]
	servers := map[uint32]lb.ServerCounters{}
	if i := slices.IndexFunc(counters.VIPs, func(c lb.VIPCounters) bool { return c.ID == v.Id }); i >= 0 {
		c := counters.VIPs[i]
		v.Counters = &fairleadv1.Counters{
			Packets: c.Packets, Bytes: c.Bytes, NewConnections: c.NewConnections, Fallback: c.Fallback,
			FlowHits: c.FlowHits, BadCookies: c.BadCookies, Dropped: c.Dropped,
			Tracked: c.Tracked, FlowFull: c.FlowFull, FlowReplaced: c.FlowReplaced, ShareLost: c.ShareLost,
		}
		for _, sc := range c.Servers {
			servers[uint32(sc.Slot)] = sc
		}
	}
	for _, slot := range v.Slots {
		key := health.Key{VIP: v.Id, Slot: uint16(slot.Number)}
		// A policy but hash does not wait for warm-ups.
		slot.TakesNew = slot.State == fairleadv1.SlotState_SLOT_STATE_ACTIVE && !b.down[key] &&
			(!vip.Policy(v.Policy).Row().Hashes || b.lb.Open(v.Id, uint16(slot.Number)))
		if addr, err := netip.ParseAddr(slot.Address); err == nil {
			if h, ok := hops[addr]; ok {
				slot.NextHop = nextHop(h, v.Scheme, v.Forwarding)
			}
		}
		c := servers[slot.Number]
		slot.Packets, slot.Bytes, slot.NewConnections, slot.Connections = c.Packets, c.Bytes, c.Opened, c.Open
		if r, ok := b.checks.Report(v.Id, uint16(slot.Number)); ok && checked {
			slot.Health = healthState(r.State)
			slot.HealthDetail, slot.HealthRemembered = r.Detail, r.Remembered
			slot.HealthSinceUnixMs = unixMS(r.Since)
			slot.HealthChecks, slot.HealthFailures = r.Checks, r.Failed
		}
	}
}

// nextHop is a way to a server for status; its MTU is what is left for the
// inner packet once forwarding's headers are on.
func nextHop(h nexthop.Hop, scheme, forwarding string) *fairleadv1.NextHop {
	out := &fairleadv1.NextHop{Resolved: h.State == nexthop.Resolved, Interface: h.Interface}
	if h.Via.IsValid() {
		out.Neighbour = h.Via.String()
	}
	if h.MAC != [6]byte{} {
		out.Mac = net.HardwareAddr(h.MAC[:]).String()
	}
	if room := h.MTU - vip.Overhead(vip.Scheme(scheme), vip.Forwarding(forwarding), h.Server); room > 0 {
		out.Mtu = uint32(room)
	}
	return out
}

func healthState(s health.State) fairleadv1.Health {
	switch s {
	case health.Up:
		return fairleadv1.Health_HEALTH_UP
	case health.Down:
		return fairleadv1.Health_HEALTH_DOWN
	}
	return fairleadv1.Health_HEALTH_UNKNOWN
}
