package mptcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// MaxSubflows is how many subflows a connection has at most, its first one
// included: what a server can be told to take (ip-mptcp(8), limits) is 8 more
// than the first, and one is left for a replacement.
const MaxSubflows = 8

// How often the subflows are looked at while there are connections, and, in
// case an event was lost, without. Between two looks is at least least, and
// least times what a look takes: where a host has very many sockets, or opens
// many connections at a time, this is not what it is busy with.
const (
	period     = 250 * time.Millisecond
	idlePeriod = 5 * time.Second
	least      = 10 * time.Millisecond
	leastTimes = 10
)

// Options of a Manager.
type Options struct {
	Net *paths.Net
	// Subflows of a connection, the first one included, 1 to MaxSubflows; 0:
	// as many as there are paths that share no link, but for those that all share.
	Subflows int
	// RandomPorts gives subflows random ports, as hosts do that know of no
	// paths: to compare with.
	RandomPorts bool
	Log         *slog.Logger // nil: silent
}

// Counters since the manager was opened.
type Counters struct {
	Created  uint64 // subflows asked for
	Refused  uint64 // that ended before they were open
	Failed   uint64 // that were ended because their path failed
	Avoided  int    // links avoided now
	Managed  int    // connections now that have paths in the fabric
	Foreign  int    // connections now that have not, or cannot choose, or were opened by the peer
	Subflows int    // of managed connections now
}

// Manager opens and ends subflows. Its methods may be called by several
// goroutines, but for Run.
type Manager struct {
	o      Options
	kernel pathManager
	diag   lister

	mu       sync.Mutex
	net      *paths.Net
	between  map[[2]int]*ways
	counters Counters

	connections map[uint32]*connection
	avoided     avoided
	said        said

	office *office
}

// pathManager is the kernel's (kernel.go).
type pathManager interface {
	events(ctx context.Context, until time.Time) ([]event, error)
	create(token uint32, id uint8, local, remote netip.AddrPort) error
	destroy(s *Subflow) error
	remove(token uint32, id uint8) error
	close() error
}

// lister lists the kernel's sockets (diag.go).
type lister interface {
	subflows() ([]Subflow, error)
	close() error
}

// Open makes programs, not the kernel, manage the paths of connections that
// begin from now on. It is for the calling thread's network namespace, and needs
// root, or the capability to administer the network.
func Open(o Options) (*Manager, error) {
	if o.Subflows < 0 || o.Subflows > MaxSubflows {
		return nil, fmt.Errorf("%d subflows: must be 1 to %d", o.Subflows, MaxSubflows)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	d, err := openDiag()
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	m := newManager(o, k, d)
	if m.office, err = takeOver(); err != nil {
		return nil, errors.Join(err, d.close(), k.close())
	}
	return m, nil
}

func newManager(o Options, k pathManager, d lister) *Manager {
	m := &Manager{o: o, kernel: k, diag: d, connections: map[uint32]*connection{}, avoided: avoided{}, said: said{}}
	m.SetNet(o.Net)
	return m
}

// Close leaves all subflows as they are, and later connections to whoever
// managed paths before. It must be called in the network namespace of Open.
func (m *Manager) Close() error {
	return errors.Join(m.office.end(), m.kernel.close(), m.diag.close())
}

// SetNet is another state of the fabric. Links that have the same name in it
// are avoided as before.
func (m *Manager) SetNet(n *paths.Net) {
	if n.Selector().Field(true) == pathsel.FlowLabel {
		m.o.Log.Warn("connections of IPv6 are left alone: the fabric's selector.ipv6 is flow-label, and the kernel sets the labels of TCP itself; routers and hosts with ports or source-port could choose")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.avoided = m.avoided.in(m.net, n)
	m.net, m.between, m.said = n, map[[2]int]*ways{}, said{}
	for _, c := range m.connections {
		c.hops, c.unfit, c.failed = map[pathsel.Flow][]paths.Hop{}, map[int]time.Time{}, uses{}
	}
}

// Counters are as of the last look.
func (m *Manager) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counters
}

// Run manages the paths of connections that began after Open, and of those that
// a manager before this one had, until ctx ends (nil).
func (m *Manager) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		if err := m.look(began); err != nil {
			m.o.Log.Warn("subflows could not be seen to; tried again", "error", err)
		}
		m.watchOffice(began)
		took := time.Since(began)
		wait := idlePeriod
		if len(m.connections) > 0 {
			wait = period
		}
		if err := m.listen(ctx, began.Add(max(wait, leastTimes*took)), time.Now().Add(max(least, leastTimes*took))); err != nil {
			return err
		}
	}
	return nil
}

// watchOffice complains where somebody else manages paths now.
func (m *Manager) watchOffice(now time.Time) {
	is, whose := m.office.holds()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !is && m.said.first("office", now) {
		m.o.Log.Warn("somebody has changed who manages paths: connections that begin now get no chosen subflows; restart this daemon, or set net.mptcp.path_manager to userspace (pm_type to 1 in earlier kernels)", "now", whose)
	}
}

// listen returns when something has happened, but not before soonest, or when
// nothing has until latest.
func (m *Manager) listen(ctx context.Context, latest, soonest time.Time) error {
	for until := latest; ctx.Err() == nil; until = soonest {
		events, err := m.kernel.events(ctx, until)
		if err != nil {
			return err
		}
		for _, e := range events {
			m.heard(e)
		}
		if !time.Now().Before(until) || until.Equal(soonest) && len(events) == 0 {
			return nil
		}
	}
	return nil
}

// heard keeps what an event says of a subflow that was closed, for whoever
// reads why the peer took none.
func (m *Manager) heard(e event) {
	m.o.Log.Debug("event", "kind", e.kind, "token", e.token, "error", e.err, "reset", e.reset)
	if c := m.connections[e.token]; c != nil && e.kind == eventSubClosed {
		c.lastError, c.lastReset = e.err, e.reset
	}
}

// look compares what there is with what should be, and acts.
func (m *Manager) look(now time.Time) error {
	all, err := m.diag.subflows()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	groups := map[uint32][]Subflow{}
	for _, s := range all {
		groups[s.Token] = append(groups[s.Token], s)
	}
	managed, subflows := m.update(groups, now)
	m.blame(managed, now)
	total := uses{}
	for _, c := range managed {
		total.addAll(c.own)
	}
	var errs []error
	for _, c := range managed {
		if err := m.tend(c, total, all, now); err != nil {
			errs = append(errs, err)
		}
	}
	m.counters.Managed, m.counters.Foreign, m.counters.Subflows = len(managed), len(groups)-len(managed), subflows
	m.counters.Avoided = m.avoided.count(now)
	if len(errs) > 0 {
		return fmt.Errorf("%d connections; the first error: %w", len(errs), errs[0])
	}
	return nil
}

func (u uses) addAll(v uses) {
	for h, n := range v {
		u[h] += n
	}
}

// update makes the connections those that the kernel has, and returns the ones
// that this side opened to a node of the fabric.
func (m *Manager) update(groups map[uint32][]Subflow, now time.Time) (managed []*connection, subflows int) {
	for token := range m.connections {
		if _, ok := groups[token]; !ok {
			delete(m.connections, token)
		}
	}
	for token, list := range groups {
		if !slices.ContainsFunc(list, func(s Subflow) bool { return s.Client }) {
			continue
		}
		c := m.connections[token]
		if c == nil {
			c = newConnection(token)
		}
		slices.SortFunc(list, func(a, b Subflow) int {
			return cmp.Or(int(a.LocalID)-int(b.LocalID), int(a.Local.Port())-int(b.Local.Port()))
		})
		if !c.place(m.net, list) {
			continue
		}
		m.connections[token] = c
		managed, subflows = append(managed, c), subflows+len(list)
		m.counters.Refused += uint64(c.update(m, list, now))
	}
	slices.SortFunc(managed, func(a, b *connection) int { return cmp.Compare(a.token, b.token) })
	return managed, subflows
}

// blame finds the links that only failing subflows use, and forgives those
// over which data passes.
func (m *Manager) blame(managed []*connection, now time.Time) {
	works := map[paths.Hop]bool{}
	for _, c := range managed {
		for i := range c.list {
			s := &c.list[i]
			if !c.works(s, now) {
				continue
			}
			for _, h := range c.hops[s.flow()] {
				works[h] = true
			}
			if c.worked[s.key()].Equal(now) {
				m.avoided.works(c.hops[s.flow()])
			}
		}
	}
	for _, c := range managed {
		// With nothing that works the peer may be gone, or the cable of this host.
		w := m.waysOf(c)
		if w == nil || !slices.ContainsFunc(c.list, func(s Subflow) bool { return c.works(&s, now) }) {
			continue
		}
		for _, s := range c.list {
			if !s.fails() {
				continue
			}
			for _, h := range c.hops[s.flow()] {
				if !works[h] && !w.common[h] && m.avoided.blame(h, now) {
					m.o.Log.Warn("a link answers no more; its subflows go elsewhere", "link", m.net.LinkName(h.Link), "for", m.avoided[h].last)
				}
			}
		}
	}
}

// waysOf are the paths that a connection could use; nil: the fabric has none.
func (m *Manager) waysOf(c *connection) *ways {
	key := [2]int{c.from, c.to}
	w, ok := m.between[key]
	if !ok {
		var err error
		if w, err = waysBetween(m.net, c.from, c.to); err != nil {
			m.o.Log.Warn("no paths for a connection", "error", err)
		}
		m.between[key] = w
	}
	return w
}
