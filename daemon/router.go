package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/router"
	"github.com/fairlead/fairlead/version"
)

// The life of `fairlead router`. It shares no assignment with anybody: what it
// goes by is fabric.yaml and the kernel's routing, so it has none of the other
// daemons' clocks, peers and versions.
//
//	fabric.yaml ─▶ selector, port numbers ─┐
//	kernel ─▶ router.Follower ─▶ Tables ───┴─▶ router.Plane ─▶ maps, program

// RouterOptions is what the command line decides.
type RouterOptions struct {
	File     string // fabric.yaml
	Name     string // which of its routers this is; "": found by itself
	StateDir string // DefaultStateDir where empty
	PinDir   string // /sys/fs/bpf/fairlead/NAME where empty
	// Interfaces that packets come in by; empty: those of the file, else all.
	Interfaces []string
	// PrivatePins goes on where what is pinned would be gone with this process's
	// mount namespace.
	PrivatePins bool
	Log         *slog.Logger
}

// routerDaemon is one running router.
type routerDaemon struct {
	o       RouterOptions
	log     *slog.Logger
	fabric  *topology.Fabric // as the daemon was started with
	node    *topology.Node
	sel     *pathsel.Selector
	started time.Time
	state   *stateDir
	phase   atomic.Value // phase
	private string       // warns of pins that will not last; empty: they do

	plane    *router.Plane
	follower *router.Follower
	// stale says that the file asks for what takes a restart; nil: it does not.
	stale atomic.Pointer[string]
}

// RunRouter is `fairlead router`. It returns when ctx ends (nil) or when the
// daemon cannot go on. What it loaded stays, and goes on forwarding.
func RunRouter(ctx context.Context, o RouterOptions) error {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	d := &routerDaemon{o: o, log: o.Log, started: time.Now()}
	d.phase.Store(phaseStarting)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	if err := d.read(); err != nil {
		return err
	}
	state, err := openState(o.StateDir, d.node.Name, d.log)
	if err != nil {
		return err
	}
	d.state = state
	defer state.close()
	return d.run(ctx, hup)
}

// read takes what the file says.
func (d *routerDaemon) read() error {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return err
	}
	n, err := FindRouter(f, d.o.Name)
	if err != nil {
		return err
	}
	d.fabric, d.node = f, &f.Nodes[n]
	d.log = d.log.With("name", d.node.Name)
	if d.sel, err = pathsel.New(f.Selector); err != nil {
		return err
	}
	if d.node.Plain {
		d.log.Warn("this router is plain in fabric.yaml: it goes by the hash alone, whatever packets select")
	}
	return nil
}

// run opens all that the daemon needs and serves until ctx ends.
func (d *routerDaemon) run(ctx context.Context, hup <-chan os.Signal) (err error) {
	asked := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	// What fails, fails before anything was changed.
	err = d.answer(gctx, g)
	if err == nil {
		d.phase.Store(phaseOpening)
		err = d.open()
	}
	if err == nil {
		d.phase.Store(phaseApplying)
		g.Go(func() error { return d.follower.Run(gctx, d.enforce) })
		g.Go(func() error { d.tend(gctx); return nil })
		g.Go(func() error { d.watchSignals(gctx, hup); return nil })
		<-gctx.Done()
		d.phase.Store(phaseStopping)
		notifySystemd("STOPPING=1")
		d.log.Info("stopping; what is in the kernel goes on forwarding (fairlead unload takes it out)")
	}
	if asked.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	stop()
	return errors.Join(err, g.Wait(), d.close())
}

// answer opens the API and the metrics endpoint.
func (d *routerDaemon) answer(ctx context.Context, g *errgroup.Group) error {
	l, err := listen(d.node.API, config.TLS(d.fabric.TLS), d.log, false)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(d.handler())
	g.Go(func() error { return serve(ctx, httpServer(mux, d.log), l) })
	if d.node.Metrics != "" {
		l, err := listenMetrics(d.node.Metrics, d.log, false)
		if err != nil {
			return err
		}
		g.Go(func() error { return serve(ctx, httpServer(d.metricsHandler(), d.log), l) })
	}
	return nil
}

// open looks at the kernel's routing, and loads the program or adopts what is
// pinned.
func (d *routerDaemon) open() error {
	var err error
	if d.private, err = lasting(d.o.PinDir, d.node.Name, d.o.PrivatePins, d.log); err != nil {
		return err
	}
	numbers, err := d.loadNumbers()
	if err != nil {
		return err
	}
	d.follower, err = router.NewFollower(router.FollowOptions{
		Fabric: d.fabric, Node: d.index(d.fabric), Interfaces: d.interfaces(),
		Numbers: numbers, Keep: d.keepNumbers, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.plane, err = router.Open(router.Options{Name: d.node.Name, PinDir: d.o.PinDir, Selector: d.sel, Plain: d.node.Plain}, d.log)
	return err
}

// index of this router in a fabric; -1: it is not there.
func (d *routerDaemon) index(f *topology.Fabric) int {
	return slices.IndexFunc(f.Nodes, func(n topology.Node) bool { return n.Name == d.node.Name && !n.Host })
}

func (d *routerDaemon) interfaces() []string {
	if len(d.o.Interfaces) > 0 {
		return d.o.Interfaces
	}
	return d.node.Interfaces
}

// enforce puts tables in force; the first time the daemon serves from then on.
func (d *routerDaemon) enforce(t router.Tables) error {
	if err := d.plane.Apply(t); err != nil {
		return err
	}
	d.log.Debug("the kernel's routing is in force", "devices", len(t.Devices), "hops", len(t.Hops), "groups", len(t.Groups), "routes", len(t.Routes))
	if d.phase.CompareAndSwap(phaseApplying, phaseServing) {
		d.log.Info("serving", "api", d.node.API, "metrics", d.node.Metrics, "routes", len(t.Routes), "version", version.String())
		notifySystemd("READY=1")
	}
	return nil
}

func (d *routerDaemon) close() (err error) {
	if d.follower != nil {
		err = d.follower.Close()
	}
	if d.plane != nil {
		err = errors.Join(err, d.plane.Close())
	}
	return err
}

// tend has put back what somebody took away from the kernel.
func (d *routerDaemon) tend(ctx context.Context) {
	for sleep(ctx, 500*time.Millisecond) {
		d.plane.Tend()
	}
}

// watchSignals reads fabric.yaml again on SIGHUP: links and their numbers are
// taken over, what is constant in the program takes a restart.
func (d *routerDaemon) watchSignals(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		if err := d.reload(); err != nil {
			d.log.Error("fabric.yaml could not be read again; what was read before goes on", "error", err)
		}
	}
}

func (d *routerDaemon) reload() error {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return err
	}
	i := d.index(f)
	if i < 0 {
		return fmt.Errorf("%s has no router %s any more: stop this daemon, and fairlead unload %[2]s", d.o.File, d.node.Name)
	}
	n := &f.Nodes[i]
	if d.outgrown(f, n) {
		text := d.o.File + " has another selector, tls, plain, api, metrics or interfaces than this router was started with: restart it, which stops no packet"
		d.stale.Store(&text)
		d.log.Warn(text)
	} else {
		d.stale.Store(nil)
	}
	if f.Selector.Radix == d.fabric.Selector.Radix {
		d.follower.Renumber(f, i)
	}
	d.log.Info("read fabric.yaml again", "links", len(f.Links))
	return nil
}

// outgrown: the file asks for what only a restart brings.
func (d *routerDaemon) outgrown(f *topology.Fabric, n *topology.Node) bool {
	return f.Selector != d.fabric.Selector || f.TLS != d.fabric.TLS || n.Plain != d.node.Plain ||
		n.Endpoint != d.node.Endpoint || !slices.Equal(n.Interfaces, d.node.Interfaces)
}

// numbersName is the file of the state folder that holds the port numbers that
// the router gave by itself.
const numbersName = "ports.json"

// loadNumbers: where they are damaged, or lost, the router numbers anew. A selector
// that names a number which is another port's now takes that one.
func (d *routerDaemon) loadNumbers() (numbers []router.Number, err error) {
	err = d.state.parse(numbersName, "; to number anew, remove the file", func(data []byte) error { return json.Unmarshal(data, &numbers) })
	if err != nil {
		return nil, fmt.Errorf("read the port numbers given before: %w", err)
	}
	return numbers, nil
}

func (d *routerDaemon) keepNumbers(numbers []router.Number) error {
	text, err := json.MarshalIndent(numbers, "", "  ")
	if err != nil {
		return err
	}
	return d.state.write(numbersName, text)
}

// FindRouter is the index of the fabric's router called name; without a name
// the only one, else the one that is called as this machine.
func FindRouter(f *topology.Fabric, name string) (int, error) {
	var names []string
	find := map[string]int{}
	for i, n := range f.Nodes {
		if !n.Host {
			names = append(names, n.Name)
			find[n.Name] = i
		}
	}
	if len(names) == 0 {
		return 0, errors.New("fabric.yaml has no routers: add this machine to them")
	}
	if name != "" {
		if i, ok := find[name]; ok {
			return i, nil
		}
		return 0, fmt.Errorf("--name %s: not among the fabric's routers (%s)", name, strings.Join(names, ", "))
	}
	if len(names) == 1 {
		return find[names[0]], nil
	}
	host, err := os.Hostname()
	if err != nil {
		return 0, fmt.Errorf("find this machine's name: %w; say --name", err)
	}
	short, _, _ := strings.Cut(host, ".")
	for _, called := range []string{host, short} {
		if i, ok := find[called]; ok {
			return i, nil
		}
	}
	return 0, fmt.Errorf("this machine is called %s, which is not among the fabric's routers (%s): say which it is with --name", host, strings.Join(names, ", "))
}
