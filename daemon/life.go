// Package daemon is the life of fairlead's daemons, written once. The packages
// below it are the roles, called like the room that each of them drives: lb, host
// and swtch, which are members of one deployment (package member), and router,
// paths and mptcp, which go by fabric.yaml alone.
//
// The life, from top to bottom of Run; Enter is the one door:
//
//	         read the file, lock the state folder,
//	         open API and metrics (callers are told to wait)
//	starting ──────────────────────────────────────────────▶ opening
//	         load the programs, or adopt what is pinned or installed
//	opening  ──────────────────────────────────────────────▶ applying
//	         bring what the file, the disk and others say into force
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
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/version"
)

// Daemon is one running daemon: what all of them have, filled in by its role,
// which calls Run.
type Daemon struct {
	Log      *slog.Logger
	StateDir string // DefaultStateDir where empty
	// Unguarded leaves out what holds attackers off: for the laboratory, which
	// shows with it that an attack is one (docs/security.md).
	Unguarded bool

	// Read reads the file and fills in what follows: what is wrong in it ends
	// the daemon before it has touched anything.
	Read func() error

	Name    string // of the folder of state; empty: the daemon keeps nothing
	Unsaved string // see OpenState
	State   *State // from Read on

	API     []string // endpoints
	TLS     config.TLS
	Handler http.Handler // of the API
	Service string       // which API that is, as the schema calls it
	Is      string       // what answers, for people: "a balancer"
	// Controllers are those that the daemon knows of, for who asks it what they answer;
	// nil: it knows none.
	Controllers func() []config.Controller
	// Metrics is the endpoint's address:port; empty: there is none.
	Metrics    string
	Collectors []prometheus.Collector
	// NotReady is what /ready answers; nil: it is not there.
	NotReady func() (why []string, err error)

	// Awaits is what the daemon waits for in its phase, beside that, and what people can do
	// about it; "" or nil: nothing.
	Awaits func() string

	// Open brings into force what the daemon is for, and has it tended by Go.
	// Callers are told to wait meanwhile.
	Open func(context.Context) error
	// Reload reads the file again, for Again. An error: what was read before stays.
	Reload func() (Reloaded, error)
	// Close lets go of what Open opened, however far that came; nil: of nothing.
	Close func() error

	Says    []any  // what "serving" is logged with
	Parting string // is logged when the daemon stops; empty: nothing

	started time.Time
	phase   atomic.Value // Phase
	refused *prometheus.CounterVec
	private string // warns of pins that will not last; empty: they do
	work    *errgroup.Group
	ctx     context.Context // of work

	reloading    sync.Mutex
	certificates []seenCertificate // as they were read last
}

// What daemons say whose programs or routes go on without them.
const (
	UnsavedForce = "what is in force is not on disk (%v): a restart may begin from what was before"
	GoesOn       = "stopping; what is in the kernel goes on forwarding (fairlead unload takes it out)"
)

// Phase is how far a daemon's life is.
type Phase string

const (
	Starting Phase = "starting"
	Opening  Phase = "opening"
	Applying Phase = "applying"
	Serving  Phase = "serving"
	Stopping Phase = "stopping"
)

// Enter is the one door from a phase to the next.
func (d *Daemon) Enter(p Phase) {
	d.phase.Store(p)
	d.Log.Debug("phase", "is", string(p))
}

// Started is when the daemon was.
func (d *Daemon) Started() time.Time { return d.started }

// Run lives the daemon's life. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func (d *Daemon) Run(ctx context.Context) (err error) {
	d.started = time.Now()
	d.Enter(Starting)
	thrifty()
	// From here on a SIGHUP is not the end of the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	if err := d.Read(); err != nil {
		return err
	}
	if d.Name != "" {
		if d.State, err = OpenState(d.StateDir, d.Name, d.Unsaved, d.Log); err != nil {
			return err
		}
		defer d.State.Close()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.work, d.ctx = errgroup.WithContext(ctx)
	// Sockets and certificates before the kernel: what fails, fails before
	// anything was changed. Until the daemon serves, callers are told so.
	if err = d.answer(); err == nil {
		d.Enter(Opening)
		err = d.Open(d.ctx)
	}
	if d.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // somebody wants an end, or a part that failed says why
	}
	if err == nil && d.ctx.Err() == nil {
		d.serve(hup)
	}
	stop()
	failed := d.work.Wait()
	if d.Close != nil {
		failed = errors.Join(failed, d.Close())
	}
	return errors.Join(err, failed)
}

// Go has work done in the background until the daemon ends; it ends with its error.
func (d *Daemon) Go(work func(context.Context) error) {
	d.work.Go(func() error { return work(d.ctx) })
}

// serve waits for the end of a daemon that is at work.
func (d *Daemon) serve(hup <-chan os.Signal) {
	if d.State != nil {
		d.Go(d.State.run)
	}
	d.Go(d.rest)
	d.Go(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				_, _ = d.Again() // it says itself what became of it
			}
		}
	})
	d.Enter(Serving)
	d.Log.Info("serving", append(slices.Clone(d.Says), "version", version.String())...)
	notifySystemd("READY=1")
	<-d.ctx.Done()
	d.Enter(Stopping)
	notifySystemd("STOPPING=1")
	if d.Parting != "" {
		d.Log.Info(d.Parting)
	}
}

// answer opens the API and the metrics endpoint.
func (d *Daemon) answer() error {
	d.refused = newRefused()
	d.certificates, _ = d.seenCertificates()
	for _, warning := range d.expiryWarnings(time.Now()) {
		d.Log.Warn(warning)
	}
	for _, endpoint := range d.API {
		l, err := d.listen(endpoint)
		if err != nil {
			return err
		}
		answers := d.directed(d.Handler)
		h := known(answers)
		if plainly(endpoint) {
			h = loopbackName(local(answers))
		}
		d.Go(func(ctx context.Context) error { return serve(ctx, httpServer(h, d.Log), l) })
	}
	if d.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", d.Metrics)
	if err != nil {
		return fmt.Errorf("metrics %s: %w; give this daemon another address under metrics in the configuration, or \"\" for none", d.Metrics, err)
	}
	l = d.guarded(l, "metrics")
	d.Go(func(ctx context.Context) error { return serve(ctx, httpServer(d.metricsHandler(), d.Log), l) })
	return nil
}

// unready says why the daemon does not answer yet, or no more; nil: it does.
func (d *Daemon) unready() error {
	p := d.phase.Load().(Phase)
	if p == Serving {
		return nil
	}
	says := "the daemon is " + string(p)
	if d.Awaits != nil {
		if more := d.Awaits(); more != "" {
			says += "; " + more
		}
	}
	return errors.New(says)
}

// Guard is an API handler's: it answers whom api/access lets call, and, until the
// daemon serves, only calls of the procedures named.
func (d *Daemon) Guard(always ...string) connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithInterceptors(guard{d, always}), connect.WithReadMaxBytes(api.MaxMessage))
}

// Sleep waits; false: ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Poke wakes who waits at c, which has room for one: several pokes before it looks
// are one.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is told already
	}
}

// notifySystemd tells the service manager, if there is one, a state of
// sd_notify(3).
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // the manager times the start out and says so
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
