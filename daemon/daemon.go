// Package daemon is the life of fairlead's three daemons, `fairlead lb`,
// `fairlead host` and `fairlead switch`: written once, for all. What differs is
// behind plane: the balancer's kernel side (balancer.go), the host agent's
// (host.go) or the switch's (switch.go).
//
// The life, from top to bottom of Run; setPhase is the one door:
//
//	         find itself in the file, lock the state folder,
//	         open API and metrics (callers are told to wait)
//	starting ──────────────────────────────────────────────▶ opening
//	         load the programs, or adopt what is pinned or installed
//	opening  ──────────────────────────────────────────────▶ applying
//	         fix the clock; newest assignment of disk, peers
//	         and file into the maps
//	applying ──────────────────────────────────────────────▶ serving
//	         signal, or a part fails
//	serving  ──────────────────────────────────────────────▶ stopping
//	         let go of everything; it stays pinned and goes on forwarding
//	stopping ──────────────────────────────────────────────▶ (gone)
//
// SIGKILL may come at any arrow: what packets need is in pinned maps and
// programs, what the next daemon needs is in the state folder, and both are
// replaced in one step each.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/version"
)

// Options is what the command line decides.
type Options struct {
	File     string // the configuration
	Name     string // which of its entries this is; "": found by itself
	StateDir string // DefaultStateDir where empty
	PinDir   string // /sys/fs/bpf/fairlead/NAME where empty
	Log      *slog.Logger
	// Unguarded leaves out what holds attackers off: for the laboratory, which
	// shows with it that an attack is one (docs/security.md).
	Unguarded bool
	// PrivatePins goes on where what is pinned would be gone with this process's
	// mount namespace.
	PrivatePins bool

	// state is the daemon's folder, once it is locked.
	state *stateDir

	// open is the edge to the kernel: openPlane, but in tests.
	open func(self, *config.Config, Options, *slog.Logger) (plane, error)
}

// plane is a daemon's kernel side.
type plane interface {
	// clockBase is the clock's base pinned earlier in this boot.
	clockBase() (base uint32, ok bool)
	// fixClock fixes and pins the base: shared ms = CLOCK_MONOTONIC ms + base.
	fixClock(base uint32) error
	// apply puts an assignment in force, in one step for packets. due is when
	// it has to be applied again although nothing changed, because a warm-up
	// ends (zero: never).
	apply(a *controller.Assignment) (due time.Time, err error)
	// run does the plane's background work until ctx ends.
	run(ctx context.Context) error
	// describe fills in what the plane knows of a status.
	describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error
	// live counts established connections; nil but on a host.
	live(a *controller.Assignment) ([]*fairleadv1.LiveVIP, error)
	// changed tells that the assignment should be applied again because
	// something local changed (health).
	changed() <-chan struct{}
	// flows is the flow table that balancers share; nil elsewhere.
	flows() flowTable
	// close lets go of the kernel's objects, which stay pinned.
	close() error
}

type phase string

const (
	phaseStarting phase = "starting"
	phaseOpening  phase = "opening"
	phaseApplying phase = "applying"
	phaseServing  phase = "serving"
	phaseStopping phase = "stopping"
)

// daemon is one running daemon.
type daemon struct {
	opts    Options
	log     *slog.Logger
	me      self
	first   *config.Config // as the daemon was started with
	started time.Time
	state   *stateDir
	plane   plane
	phase   atomic.Value // phase

	clock  atomic.Pointer[sharedClock] // nil until it is fixed
	asking atomic.Bool                 // there is none pinned: peers are asked
	alone  atomic.Bool                 // started from the file, no peer answered since
	ready  atomic.Bool                 // a router may use this balancer (status.go)

	// mu is held by whoever changes the assignment, over map, disk and force;
	// readers of force never wait (a clock that waited would be wrong).
	mu       sync.Mutex
	force    atomic.Pointer[inForce]
	had      *controller.Assignment // what packets go by; nil: nothing yet
	pinned   pinnedForce            // what they went by when this daemon started
	retry    chan struct{}          // apply what is in force again
	due      *schedule              // when that is due by itself
	settings atomic.Pointer[settings]

	// verbs lets one change at a time through this daemon.
	verbs  sync.Mutex
	peers  peerTable
	learns *learner // nil on a host
	// together is whether all daemons of this kind go by one version.
	together together
	share    *sharer // nil on a host, and until the plane is open
}

// settings is what a SIGHUP replaces.
type settings struct {
	cfg      *config.Config
	warnings []string // of what needs a restart

	mu       sync.Mutex
	compared uint64 // version of the assignment that differs is about
	differs  string
}

// RunLB is `fairlead lb`. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func RunLB(ctx context.Context, o Options) error { return run(ctx, RoleBalancer, o) }

// RunHost is `fairlead host`.
func RunHost(ctx context.Context, o Options) error { return run(ctx, RoleHost, o) }

// RunSwitch is `fairlead switch`.
func RunSwitch(ctx context.Context, o Options) error { return run(ctx, RoleSwitch, o) }

func run(ctx context.Context, role Role, o Options) (err error) {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	if o.open == nil {
		o.open = openPlane
	}
	d := newDaemon(o)
	d.setPhase(phaseStarting)
	// From here on a SIGHUP is not the end of the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	cfg, err := config.Load(o.File)
	if err != nil {
		return err
	}
	if d.me, err = findSelf(cfg, role, o.Name); err != nil {
		return err
	}
	d.first = cfg
	d.log = d.log.With("name", d.me.name)
	if d.state, err = openState(o.StateDir, d.me.name, d.log); err != nil {
		return err
	}
	defer d.state.close()
	d.opts.state = d.state
	d.settings.Store(&settings{cfg: cfg})
	if err := d.peers.set(cfg, d.me.name); err != nil {
		return err
	}

	asked := ctx // it ends when somebody asks the daemon to stop
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	// Sockets and certificates before the kernel: what fails, fails before
	// anything was changed. Until the daemon serves, callers are told so.
	err = d.answer(gctx, g)
	if err == nil {
		err = d.begin(gctx, cfg)
	}
	if err == nil {
		err = d.serve(gctx, g, hup)
	}
	if asked.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	stop()
	failed := g.Wait()
	if d.plane != nil {
		failed = errors.Join(failed, d.plane.close())
	}
	return errors.Join(err, failed)
}

func newDaemon(o Options) *daemon {
	return &daemon{opts: o, log: o.Log, started: time.Now(), retry: make(chan struct{}, 1), due: newSchedule()}
}

// answer opens the API and the metrics endpoint.
func (d *daemon) answer(ctx context.Context, g *errgroup.Group) error {
	api, err := listen(d.me.api, d.settings.Load().cfg.TLS, d.log, d.opts.Unguarded)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(d.handler())
	g.Go(func() error { return serve(ctx, httpServer(mux, d.log), api) })
	if d.me.metrics != "" {
		l, err := listenMetrics(d.me.metrics, d.log, d.opts.Unguarded)
		if err != nil {
			return err
		}
		g.Go(func() error { return serve(ctx, httpServer(d.metricsHandler(), d.log), l) })
	}
	return nil
}

// begin brings the programs, the clock and the assignment into force.
func (d *daemon) begin(ctx context.Context, cfg *config.Config) (err error) {
	// An assignment that this build refuses (a later one wrote it) does so before
	// the program in the kernel is replaced by one that nobody would fill.
	if _, err := d.state.load(); err != nil {
		return err
	}
	d.setPhase(phaseOpening)
	if d.plane, err = d.opts.open(d.me, cfg, d.opts, d.log); err != nil {
		return err
	}
	if table := d.plane.flows(); table != nil {
		d.share = newSharer(d.log, d.me.name, table, func() bool { return shares(d.force.Load().Assignment) })
		d.share.follow(d.peers.list())
	}
	if p, ok := d.plane.(chainTables); ok {
		d.learns = &learner{d: d, tables: p}
	}
	if p, ok := d.plane.(endsChains); ok {
		d.together.tell = p.endAfter
	}
	d.setPhase(phaseApplying)
	d.pinned = d.readPinned()
	if err := d.fixClock(ctx); err != nil {
		return err
	}
	if err := d.firstAssignment(ctx, cfg); err != nil {
		return err
	}
	d.compareFile(cfg)
	return nil
}

func (d *daemon) setPhase(p phase) {
	d.phase.Store(p)
	d.log.Debug("phase", "is", string(p))
}

// fixClock keeps the clock of this boot, or asks the peers, or reads the
// wall clock; in this order, because the constants of live connections depend
// on it.
func (d *daemon) fixClock(ctx context.Context) error {
	if d.me.role == RoleSwitch {
		// Nothing there counts in it, and no peer asks for it.
		d.clock.Store(&sharedClock{wallMS() - monotonicMS(), clockWall})
		return nil
	}
	clock := sharedClock{source: clockPinned}
	var ok bool
	if clock.base, ok = d.plane.clockBase(); ok {
		clock.base = d.trueClock(clock.base)
	} else {
		d.asking.Store(true)
		clock = chooseClock(ctx, d.me.name, d.peers.withClock())
		if ctx.Err() != nil {
			return ctx.Err() // peers were not really asked: fix nothing
		}
		if err := d.plane.fixClock(clock.base); err != nil {
			return err
		}
		// The plane may round it.
		clock.base, _ = d.plane.clockBase()
	}
	d.clock.Store(&clock)
	d.log.Info("shared clock", "source", string(clock.source), "base_ms", clock.base)
	return nil
}

// firstAssignment puts the newest of disk and peers in force; without any,
// version 1, which everybody computes alike from the file.
func (d *daemon) firstAssignment(ctx context.Context, cfg *config.Config) error {
	a, err := d.state.load()
	if err != nil {
		return err
	}
	if d.pinned.contradicts(a) {
		d.state.setAside(assignmentName, errors.New("the programs go by another one of the same version"))
		a = nil
	}
	had := d.hadBefore(a)
	source := "disk"
	newer, from, heard := d.newestOfPeers(ctx, a)
	if newer != nil {
		a, source = newer, from
	}
	first := a == nil
	if first {
		source = d.opts.File
		d.alone.Store(!heard && len(d.peers.list()) > 0)
		if a, err = controller.First(cfg); err != nil {
			return err
		}
	}
	if err := d.mayReplace(d.pinned, a, source, first); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.had = had
	if err := d.install(a, false); err != nil {
		return fmt.Errorf("put assignment version %d (from %s) in force: %w", a.Version, source, err)
	}
	d.log.Info("assignment in force", "version", a.Version, "from", source, "vips", len(a.VIPs))
	return nil
}

// serve keeps the background work going until ctx ends or a part fails.
func (d *daemon) serve(ctx context.Context, g *errgroup.Group, hup <-chan os.Signal) error {
	g.Go(func() error { return d.plane.run(ctx) })
	g.Go(func() error { return d.watchPeers(ctx) })
	g.Go(func() error { return d.reapply(ctx) })
	g.Go(func() error { return d.state.run(ctx) })
	g.Go(func() error { return d.tendPinned(ctx) })
	if d.share != nil {
		g.Go(func() error { return d.share.run(ctx) })
	}
	if d.learns != nil {
		g.Go(func() error { return d.learns.run(ctx) })
	}
	g.Go(func() error { return d.watchSignals(ctx, hup) })
	if d.me.role == RoleBalancer {
		g.Go(func() error { return d.becomeReady(ctx) })
	}
	d.setPhase(phaseServing)
	d.log.Info("serving", "api", d.me.api, "metrics", d.me.metrics, "version", version.String())
	notifySystemd("READY=1")
	<-ctx.Done()
	d.setPhase(phaseStopping)
	notifySystemd("STOPPING=1")
	d.log.Info("stopping; what is in the kernel goes on forwarding (fairlead unload takes it out)")
	return nil
}

// retryInterval is how long a failed application rests before the next try.
const retryInterval = time.Second

// again has the assignment applied once more, soon.
func (d *daemon) again() {
	select {
	case d.retry <- struct{}{}:
	default: // it is going to be
	}
}

// reapply puts the assignment in force again when the plane asks for it, or
// when that is due. A burst of changes (a rack goes down) makes a few runs, not
// hundreds.
func (d *daemon) reapply(ctx context.Context) error {
	const gather = 50 * time.Millisecond
	for {
		fires, stop := d.due.wait()
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-d.due.moved:
			stop()
			continue
		case <-fires:
			if !d.due.come() {
				continue
			}
		case <-d.plane.changed():
		case <-d.retry:
		}
		stop()
		timer := time.NewTimer(gather)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		d.mu.Lock()
		due, err := d.plane.apply(d.force.Load().own)
		if err == nil {
			d.due.set(due)
		}
		d.mu.Unlock()
		if err != nil {
			// Packets go on by what is in the maps.
			d.log.Error("could not apply the assignment again; trying once more", "error", err)
			timer.Reset(retryInterval)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
				d.again()
			}
		}
	}
}

// watchSignals reads the configuration again on SIGHUP.
func (d *daemon) watchSignals(ctx context.Context, hup <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			d.reload()
		}
	}
}
