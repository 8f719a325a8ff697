// Package lb is `fairlead lb`, the balancer's daemon.
package lb

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/tables/effective"
)

// Run is `fairlead lb`. It returns when ctx ends (nil) or when the daemon cannot go
// on.
func Run(ctx context.Context, o member.Options) error {
	b := &balancer{wake: make(chan struct{}, 1), learned: make(chan struct{}, 1)}
	return member.Run(ctx, o, role(b, b.open))
}

// role is a balancer's, but for what it opens.
func role(b *balancer, open func(*member.Member) (member.Opened, error)) member.Role {
	return member.Role{
		Is: config.RoleBalancer, Status: fairleadv1.Role_ROLE_BALANCER, What: "a balancer",
		Routed: true, Counts: true, OwnTimes: true,
		Concerns: func(v *controller.VIP, _ string) bool { return !v.Scheme.Row().Switched },
		Fixed: func(s config.Self) []member.Setting {
			return []member.Setting{{Name: "source", Value: [2]string{s.Balancer.Source.String(), s.Balancer.Source6.String()}},
				{Name: "gue_checksum", Value: s.Balancer.GUEChecksum}, {Name: "tier", Value: s.Balancer.Tier}, {Name: "address", Value: s.Balancer.Address.String()}}
		},
		View:    func(a *controller.Assignment) *controller.Assignment { return a.At(b.tier) },
		Service: func(m *member.Member) fairleadv1connect.FairleadHandler { return service{member.Service{Member: m}, b} },
		Metrics: families, Emit: emit, Collectors: []prometheus.Collector{b.unaskedCounter()},
		Open: open,
	}
}

// balancer is the plane of `fairlead lb`: the data plane, and the health of
// its servers laid over the assignment.
type balancer struct {
	log    *slog.Logger
	m      *member.Member
	tier   int // 2: behind balancers
	lb     *lb.LB
	checks *health.Checker
	wake   chan struct{}

	known   []health.Known // before the first assignment: what was known
	begun   bool           // one was applied
	version uint64         // of the one that was applied last
	learned chan struct{}  // what is known has changed

	mu       sync.Mutex
	failOpen map[uint32]bool // by VIP id, as last applied
	down     map[health.Key]bool

	table  flowWatch
	owners *ownerWatch
	agents *member.Agents
	share  *sharer
	moves  *migrator
	steer  *steerWatch // nil: nothing can be steered
}

// open loads the programs, or adopts those that are pinned.
func (b *balancer) open(m *member.Member) (o member.Opened, err error) {
	b.log, b.m, b.tier = m.Log, m, m.Self.Balancer.Tier
	if err = m.Lasting(m.Options.PinDir, m.Options.PrivatePins); err != nil {
		return o, err
	}
	me := m.Self.Balancer
	if b.steer, err = openSteering(me, m.Config, m.Log); err != nil {
		return o, err
	}
	b.lb, err = lb.Open(lb.Options{
		Name: m.Name, PinDir: m.Options.PinDir, Interfaces: me.Interfaces,
		Source4: me.Source, Source6: me.Source6, Limits: m.Config.Limits,
		GUEChecksum6: me.GUEChecksum, Steer: b.steer != nil, Unguarded: m.Unguarded,
		TierAddress: me.Address,
	}, m.Log)
	if err != nil {
		return o, err
	}
	b.checks = health.NewChecker(health.Network{Steer: b.steerCheck}, b.healthChanged)
	b.owners = newOwnerWatch(m.Log, m.Config.TLS, chains{b}, b.again)
	b.agents = member.NewAgents(m.Log, m.Config.TLS)
	b.agents.Ended, b.agents.Gone = b.checks.Ended, b.checks.Ask
	b.share = newSharer(m.Log, m.Name, b.lb, func() bool { return shares(m.Assignment()) })
	b.moves = newMigrator(m.Log, m.Config.TLS, b.lb)
	b.moves.again = b.again
	b.remember()
	o = member.Opened{Plane: b, Clock: b.lb, PinDir: b.lb.PinDir(), Chains: chains{b}, Peers: b.share, Changed: b.wake, Starting: b.starting}
	if b.steer != nil {
		b.steer.plane = b.lb
		o.Fabric = b.steer.read
	}
	return o, nil
}

// chains are those of the balancer's bucket tables.
type chains struct{ b *balancer }

// VIPs implements member.Chains.
func (c chains) VIPs() (ids []uint32) {
	for _, s := range c.b.lb.Status().Buckets {
		ids = append(ids, s.VIP)
	}
	return ids
}

// Rows implements member.Chains.
func (c chains) Rows(vip uint32, first, max int) (rows []effective.BucketRow, generation uint32, size, next int) {
	rows, generation, next = c.b.lb.ChainRows(vip, first, max)
	for _, s := range c.b.lb.Status().Buckets {
		if s.VIP == vip {
			size = s.Buckets
		}
	}
	return rows, generation, size, next
}

// Learn implements member.Chains.
func (c chains) Learn(vip uint32, rows []effective.BucketRow) {
	if c.b.lb.LearnChains(vip, rows) {
		c.b.owners.applySoon()
	}
}

// EndAfter implements member.Chains. The next round of reports applies it.
func (c chains) EndAfter(t time.Time) { c.b.lb.SetEndAfter(t) }

// chained is what an ownerWatch asks about.
func (c chains) chained() map[uint32][]uint16 {
	named := map[uint32][]uint16{}
	for _, s := range c.b.lb.Status().Buckets {
		named[s.VIP] = s.Previous
	}
	return named
}

// SetOwned hands on what an agent owns.
func (c chains) SetOwned(vip uint32, slot uint16, owned []byte, at time.Time) {
	c.b.lb.SetOwned(vip, slot, owned, at)
}

func (b *balancer) healthChanged(t health.Target, r health.Report) {
	b.log.Info("server's health", "vip", t.VIPName, "server", t.Server, "state", r.State.String(), "detail", r.Detail)
	b.mu.Lock()
	// From unknown to up changes no table.
	concerns := r.State == health.Down || b.down[health.Key{VIP: t.VIP, Slot: t.Slot}] || b.failOpen[t.VIP]
	b.mu.Unlock()
	daemon.Poke(b.learned)
	b.m.AnnounceSoon()
	if concerns {
		b.again()
	}
}

// again has the assignment applied once more, soon.
func (b *balancer) again() {
	daemon.Poke(b.wake)
}

// Apply takes servers that are down out of the tables; they keep their slots. Of VIPs that
// migrate it first enters what servers have (migrator), where the version is new: what is
// applied again, since a server is down, waits for no agent.
func (b *balancer) Apply(a *controller.Assignment) (due time.Time, err error) {
	b.moves.follow(a)
	if b.begun && a.Version != b.version {
		brief, cancel := context.WithTimeout(context.Background(), hadBrief) // run asks for longer
		err := b.moves.collect(brief, a, b.moves.waits)
		if cancel(); err != nil && relies(a) {
			return due, err
		}
	}
	began := time.Now()
	a = b.moves.arrive(context.Background(), a.At(b.tier), b.begun, b.lb.Has).AtBalancers()
	if !b.begun {
		b.recall(a)
	}
	down, failOpen := overlay(a, b.checks.Down)
	due, err = b.lb.Apply(a, func(vip uint32, slot uint16) bool { return down[health.Key{VIP: vip, Slot: slot}] })
	if err != nil {
		return due, err
	}
	b.begun, b.version, b.known = true, a.Version, nil
	b.applied(a, down, failOpen)
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
	b.agents.Follow(agents(a))
	if b.steer != nil {
		b.steer.follow(a)
	}
	return due, nil
}

// relies: a has a VIP whose next version relies on what is collected for this one.
func relies(a *controller.Assignment) bool {
	return slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool {
		return v.Migration != nil && v.Migration.Stage == controller.StageCollect
	})
}

// applied says what the tables go by now. What checks said while they were filled,
// healthChanged has held against what was before: it is looked at once more.
func (b *balancer) applied(a *controller.Assignment, down map[health.Key]bool, failOpen map[uint32]bool) {
	b.mu.Lock()
	for id := range failOpen {
		if !b.failOpen[id] {
			b.log.Warn("every active server of a VIP is down by its checks: all of them are used", "vip", id)
		}
	}
	b.down, b.failOpen = down, failOpen
	b.mu.Unlock()
	if now, open := overlay(a, b.checks.Down); !maps.Equal(now, down) || !maps.Equal(open, failOpen) {
		b.again()
	}
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
			key := health.Key{VIP: v.ID, Slot: s.Number}
			if s.State == controller.Active {
				active++
			}
			switch {
			case !isDown(v.ID, s.Number):
			case s.State == controller.Active:
				out = append(out, key)
			case outlives(s.State), s.State == controller.Standby: // connections may have been moved there
				down[key] = true
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

// outlives: a server that takes no new connections is still down if it was when it
// stopped, until it answers: a client that uses a port again must not be sent to it
// because its connection before was there.
func outlives(s controller.State) bool { return s == controller.Draining || s == controller.Resting }

// targets is what is to be checked: every server that takes connections or may
// soon. A draining one that is up is left alone, so that the connections that its
// agent counts go to zero; undrained, it begins as unknown, which is up.
func (b *balancer) targets(a *controller.Assignment) (targets []health.Target) {
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !isChecked(v) {
			continue
		}
		for _, s := range v.Slots {
			if outlives(s.State) && !b.checks.Down(v.ID, s.Number) {
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

// Run implements member.Plane.
func (b *balancer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.lb.Run(ctx) })
	g.Go(func() error { return b.watchFlows(ctx) })
	g.Go(func() error { return b.owners.run(ctx) })
	g.Go(func() error { return b.agents.Run(ctx) })
	g.Go(func() error { return b.share.run(ctx) })
	g.Go(func() error { return b.keepHealth(ctx) })
	g.Go(func() error { return b.moves.run(ctx) })
	if b.steer != nil {
		g.Go(func() error { return b.steer.run(ctx) })
	}
	g.Go(func() error { <-ctx.Done(); b.checks.Close(); return nil })
	return g.Wait()
}

// Close implements member.Plane.
func (b *balancer) Close() error {
	b.checks.Close()
	return b.lb.Close()
}
