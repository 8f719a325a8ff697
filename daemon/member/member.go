// Package member is the life of a daemon that goes by a deployment's assignment: a
// balancer, a host's agent or a switch. It has the peers, the shared clock, the
// assignment in force, what balancers and switches tell each other of their bucket
// tables, and the API's part that all have. What a role has beside it is its Role.
//
// Between opening and serving it fixes the clock, and puts the newest assignment of
// disk and store into force.
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/gobgp"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/l2"
	"github.com/fairlead/fairlead/l2/segment"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// Options is what the command line decides.
type Options struct {
	File     string // the configuration
	Name     string // which of its entries this is; "": found by itself
	StateDir string // daemon.DefaultStateDir where empty
	PinDir   string // /sys/fs/bpf/fairlead/NAME where empty
	Log      *slog.Logger
	// Unguarded: see daemon.Daemon.
	Unguarded bool
	// PrivatePins goes on where what is pinned would be gone with this process's
	// mount namespace.
	PrivatePins bool
	// OpenStore opens the deployment's store; nil: rollout.Open.
	OpenStore func(*config.Config, *slog.Logger) (store.Store, *ledger.Ledger, error)
	// OpenSpeaker makes what speaks BGP; nil: gobgp.Open.
	OpenSpeaker func(gobgp.Options) (bgp.Speaker, error)
	// OpenWire opens the Ethernets on which addresses are held; nil: segment.Open.
	OpenWire func(segment.Options) (l2.Wire, error)
}

// Role is what a daemon of one kind is and does.
type Role struct {
	Is     config.Role
	Status fairleadv1.Role
	What   string // in a sentence
	// Routed: routers send packets to its machine, while /ready says that it may
	// have some.
	Routed bool
	// Counts packets by VIP and server.
	Counts bool
	// OwnTimes: it keeps by itself since when servers are new, drain or have their
	// weights (controller.Follow).
	OwnTimes bool
	// View is what of an assignment the role goes by; nil: all.
	View func(*controller.Assignment) *controller.Assignment
	// Concerns says whether a VIP is any business of the one called name.
	Concerns func(v *controller.VIP, name string) bool
	// Fixed is what of its entry takes a restart, as it is opened with it.
	Fixed func(config.Self) []Setting
	// Service answers the API: Service, and calls that are for this role alone.
	Service func(*Member) fairleadv1connect.FairleadHandler
	// Metrics are the role's own, which Emit emits, and Collectors others.
	Metrics    []daemon.Metric
	Emit       func(daemon.Emitter, *fairleadv1.GetStatusResponse)
	Collectors []prometheus.Collector
	// Open is the edge to the kernel.
	Open func(*Member) (Opened, error)
}

// Opened is a role's side of the kernel, open.
type Opened struct {
	Plane Plane
	// Clock is the shared one in pinned maps; nil: nothing there counts in it.
	Clock Clock
	// PinDir is where programs and maps are pinned; empty: nowhere.
	PinDir string
	// Chains are those of its bucket tables; nil: it has none.
	Chains Chains
	// Peers is told about other daemons; nil: nobody is.
	Peers PeerWatch
	// Fabric takes over a fabric's file that has changed; nil: it goes by none. It
	// says whether it uses anything of what has; with an error it goes on as before.
	Fabric func(*topology.Fabric) (changed bool, err error)
	// Changed tells that the assignment should be applied again because something
	// local changed (health); nil: nothing does.
	Changed <-chan struct{}
	// Starting says what one that has just started does not know yet: until it
	// says nothing, once, the machine is not ready; nil: it is at once.
	Starting func(*fairleadv1.GetStatusResponse) (why []string)
}

// Plane is a member's kernel side.
type Plane interface {
	// Apply puts an assignment in force, in one step for packets. due is when it
	// has to be applied again although nothing changed, because a warm-up ends
	// (zero: never).
	Apply(a *controller.Assignment) (due time.Time, err error)
	// Run does the plane's background work until ctx ends.
	Run(ctx context.Context) error
	// Describe fills in what the plane knows of a status.
	Describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error
	// Close lets go of the kernel's objects, which stay pinned.
	Close() error
}

// Clock is the shared clock in pinned maps.
type Clock interface {
	// ClockBase is the clock's base pinned earlier in this boot.
	ClockBase() (base uint32, ok bool)
	// SetClock fixes and pins the base: shared ms = CLOCK_MONOTONIC ms + base.
	SetClock(shared func() uint32) error
	// RestoreClock puts the base back that was fixed in this boot.
	RestoreClock(base uint32) error
}

// PeerWatch is a part that has to do with other daemons.
type PeerWatch interface {
	// Follow makes peers those that there are.
	Follow(peers []*Peer)
	// Heard is what a round of asking found out about one of them.
	Heard(name string, err error)
}

// Member is one running daemon.
type Member struct {
	*daemon.Daemon
	Options Options
	Self    config.Self    // its entry, as the daemon was started with
	Config  *config.Config // the same

	role    Role
	opened  Opened
	service fairleadv1connect.FairleadHandler

	clock  atomic.Pointer[sharedClock] // nil until it is fixed
	asking atomic.Bool                 // there is none pinned: peers are asked
	ready  atomic.Bool                 // a router may use this machine (status.go)

	announcer atomic.Pointer[bgp.Announcer] // nil: nothing is announced here
	keeper    atomic.Pointer[l2.Keeper]     // nil: no address is held here
	leaving   atomic.Bool                   // routers and other balancers are told to go elsewhere

	// mu is held by whoever changes the assignment, over map, disk and force;
	// readers of force never wait (a clock that waited would be wrong).
	mu       sync.Mutex
	force    atomic.Pointer[inForce]
	had      *controller.Assignment // what packets go by; nil: nothing yet
	pinned   pinnedForce            // what they went by when this daemon started
	retry    chan struct{}          // apply what is in force again
	due      *schedule              // when that is due by itself
	going    sync.Mutex             // held by whoever has the daemon go by another text or file
	settings atomic.Pointer[settings]

	stored  *stored
	desired desired
	life    context.Context // until this daemon is to stop

	peers  peerTable
	learns *learner // nil: it has no bucket tables
	// together is whether all daemons of this kind go by one version.
	together together
}

// settings is what a SIGHUP replaces, or a change of what the store wants.
type settings struct {
	boot     *config.Config // the file of this machine
	cfg      *config.Config // what this daemon goes by: the file, or what the store wants
	from     string         // whence cfg comes, for messages
	changed  []string       // what came into force with it, beside peers
	refused  []string       // what could not
	restart  []string       // what needs one
	patience time.Time      // until then it is no news that cfg is not all in force

	mu       sync.Mutex
	ignored  string // how the file differs from what the store wants, which counts
	compared uint64 // version of the assignment that differs is about
	differs  string
}

// Run lives a member's life. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func Run(ctx context.Context, o Options, r Role) error { return newMember(o, r).Run(ctx) }

func newMember(o Options, r Role) *Member {
	if o.OpenStore == nil {
		o.OpenStore = rollout.Open
	}
	if o.OpenSpeaker == nil {
		o.OpenSpeaker = openSpeaker
	}
	if o.OpenWire == nil {
		o.OpenWire = openWire
	}
	m := &Member{Options: o, role: r, life: context.Background(), retry: make(chan struct{}, 1), due: newSchedule(), Daemon: &daemon.Daemon{
		Log: o.Log, StateDir: o.StateDir, Unguarded: o.Unguarded, Unsaved: daemon.UnsavedForce, Parting: daemon.GoesOn}}
	m.service = r.Service(m)
	m.Read, m.Open, m.Reload, m.Close = m.read, m.open, m.reload, m.close
	m.Service, m.Is, m.Controllers = fairleadv1connect.FairleadName, r.Is.Article(), m.controllers
	m.Awaits = m.awaits
	m.Handler, m.Collectors = m.handler(), append(r.Collectors, daemon.Collector(append(metrics, r.Metrics...), m.collect))
	m.NotReady = func() ([]string, error) {
		s, err := m.status()
		return s.GetNotReady(), err
	}
	return m
}

// Assignment is the one in force.
func (m *Member) Assignment() *controller.Assignment { return m.force.Load().Assignment }

// open brings the programs, the clock and the assignment into force, and keeps them
// there.
func (m *Member) open(ctx context.Context) (err error) {
	// An assignment that this build refuses (a later one wrote it) does so before
	// the program in the kernel is replaced by one that nobody would fill.
	if _, err := loadAssignment(m.State); err != nil {
		return err
	}
	if m.opened, err = m.role.Open(m); err != nil {
		return err
	}
	if m.opened.Peers != nil {
		m.opened.Peers.Follow(m.peers.list())
	}
	if c := m.opened.Chains; c != nil {
		m.learns = &learner{m: m, chains: c}
		m.together.tell = c.EndAfter
	}
	m.Enter(daemon.Applying)
	m.Go(m.stored.live)
	m.pinned = m.readPinned()
	if err := m.fixClock(ctx); err != nil {
		return err
	}
	if err := m.firstAssignment(ctx); err != nil {
		return err
	}
	m.keepDesired()
	m.compareFile(m.settings.Load().boot, m.Config, nil, nil)
	m.compareText(m.settings.Load().boot)
	m.Go(m.opened.Plane.Run)
	m.Go(m.watchPeers)
	m.Go(m.reapply)
	m.Go(m.tendPinned)
	m.Go(m.stored.follow)
	m.Go(m.keepClock)
	if m.learns != nil {
		m.Go(m.learns.run)
	}
	if m.opened.Starting != nil {
		m.Go(m.becomeReady)
	}
	if err := m.hold(); err != nil {
		return err
	}
	return m.announce()
}

func (m *Member) close() error {
	if m.opened.Plane == nil {
		return nil
	}
	return m.opened.Plane.Close()
}

// fixClock keeps the clock of this boot, or asks the peers, or takes the store's, or
// reads the wall clock; in this order, because the constants of live connections depend
// on it.
func (m *Member) fixClock(ctx context.Context) error {
	pinned := m.opened.Clock
	if pinned == nil {
		// Nothing counts in it, and no peer asks for it.
		m.clock.Store(&sharedClock{wallMS() - monotonicMS(), clockWall})
		return nil
	}
	clock := sharedClock{source: clockPinned}
	var ok bool
	if clock.base, ok = pinned.ClockBase(); ok {
		clock.base = m.trueClock(clock.base)
	} else {
		m.asking.Store(true)
		clock = chooseClock(ctx, m.Name, m.peers.withClock())
		if clock.source == clockWall {
			clock = m.agreedClock(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err() // peers were not really asked: fix nothing
		}
		if err := pinned.SetClock(clockOf(clock.base)); err != nil {
			return err
		}
		// The plane may round it.
		clock.base, _ = pinned.ClockBase()
	}
	m.clock.Store(&clock)
	m.Log.Info("shared clock", "source", string(clock.source), "base_ms", clock.base)
	return nil
}

// firstAssignment puts the newest of disk and store in force; without any, it waits
// for one.
func (m *Member) firstAssignment(ctx context.Context) error {
	a, err := loadAssignment(m.State)
	if err != nil {
		return err
	}
	if m.pinned.contradicts(a) {
		m.State.SetAside(assignmentName, errors.New("the programs go by another one of the same version"))
		a = nil
	}
	had := m.hadBefore(a)
	source, from := "disk", "store"
	newer, err := m.stored.newest(ctx, a)
	if err != nil && a != nil {
		m.Log.Warn("nothing comes from the store; going on by what is on disk", "error", err)
	}
	if m.pinned.version > max(version(a), version(newer)) {
		// What packets go by is on no disk here, and the store has not got it, or
		// does not answer. A peer's was agreed on.
		newer, from = m.newestOfPeers(ctx, a)
	}
	if a == nil && newer == nil {
		if newer, err = m.stored.await(ctx); err != nil {
			return err
		}
	}
	if newer != nil && (a == nil || newer.Version > a.Version) {
		a, source = newer, from
	}
	if err := m.mayReplace(m.pinned, a, source); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.had = had
	if err := m.install(a); err != nil {
		return fmt.Errorf("put assignment version %d (from %s) in force: %w", a.Version, source, err)
	}
	m.Log.Info("assignment in force", "version", a.Version, "from", source, "vips", len(a.VIPs))
	return nil
}

// version of an assignment, 0 of none.
func version(a *controller.Assignment) uint64 {
	if a == nil {
		return 0
	}
	return a.Version
}

// retryInterval is how long a failed application rests before the next try.
const retryInterval = time.Second

// again has the assignment applied once more, soon.
func (m *Member) again() {
	daemon.Poke(m.retry)
}

// reapply puts the assignment in force again when the plane asks for it, or
// when that is due. A burst of changes (a rack goes down) makes a few runs, not
// hundreds: the first waits little, those soon after it longer.
func (m *Member) reapply(ctx context.Context) error {
	const gather, rest = 5 * time.Millisecond, 50 * time.Millisecond
	var last time.Time
	for {
		fires, stop := m.due.wait()
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-m.due.moved:
			stop()
			continue
		case <-fires:
			if !m.due.come() {
				continue
			}
		case <-m.opened.Changed:
		case <-m.retry:
		}
		stop()
		timer := time.NewTimer(max(gather, rest-time.Since(last)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		m.mu.Lock()
		due, err := m.opened.Plane.Apply(m.force.Load().own)
		if err == nil {
			m.due.set(due)
		}
		m.mu.Unlock()
		last = time.Now()
		m.AnnounceSoon()
		if err != nil {
			// Packets go on by what is in the maps.
			m.Log.Error("could not apply the assignment again; trying once more", "error", err)
			timer.Reset(retryInterval)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
				m.again()
			}
		}
	}
}
