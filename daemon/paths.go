package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/version"
)

// The life of `fairlead path serve`, the path service. It goes by fabric.yaml,
// asks routers how much their links carry, and keeps the flows that it placed
// on disk. Nothing in the way of packets depends on it.

// PathsOptions is what the command line decides.
type PathsOptions struct {
	File     string // fabric.yaml
	StateDir string // DefaultStateDir where empty
	// HTTP is an address of the loopback with a port, at which the API answers
	// in the clear, too; empty: none.
	HTTP string
	Log  *slog.Logger
	// Measure is how often routers are asked what their links carry; 0: never.
	Measure time.Duration
}

// pathsName is the folder of the service's state.
const pathsName = "path-service"

// flowsName is the file there that holds the placed flows.
const flowsName = "flows.json"

// pathsDaemon is the running service.
type pathsDaemon struct {
	o       PathsOptions
	log     *slog.Logger
	fabric  *topology.Fabric // as the daemon was started with
	state   *stateDir
	service *pathService
}

// RunPaths is `fairlead path serve`. It returns when ctx ends (nil) or when the
// daemon cannot go on.
func RunPaths(ctx context.Context, o PathsOptions) error {
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	d := &pathsDaemon{o: o, log: o.Log}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var err error
	if d.fabric, err = topology.Read(o.File); err != nil {
		return err
	}
	if d.state, err = openState(o.StateDir, pathsName, o.Log); err != nil {
		return err
	}
	defer d.state.close()
	if err := d.begin(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	if err := d.answer(ctx, g); err != nil {
		stop() // what answers already
		return errors.Join(err, g.Wait())
	}
	g.Go(func() error { d.watch(ctx, hup); return nil })
	if o.Measure > 0 {
		g.Go(func() error { d.measure(ctx); return nil })
	}
	d.log.Info("serving", "api", d.fabric.Service.API, "http", o.HTTP, "metrics", d.fabric.Service.Metrics, "version", version.String())
	notifySystemd("READY=1")
	err = g.Wait()
	notifySystemd("STOPPING=1")
	return err
}

// begin brings back what was placed.
func (d *pathsDaemon) begin() error {
	s, err := newPathService(d.fabric)
	if err != nil {
		return err
	}
	var state paths.State
	// Where it is damaged no flow is known to be placed.
	err = d.state.parse(flowsName, "; move the file away and start again: then no flow is known to be placed",
		func(data []byte) error { return json.Unmarshal(data, &state) })
	if err != nil {
		return fmt.Errorf("read placed flows: %w", err)
	}
	d.report(s.view().scheduler.Restore(state))
	s.log = d.log
	s.keep = func(state paths.State) error {
		data, err := json.Marshal(state)
		if err != nil {
			return err
		}
		return d.state.write(flowsName, data)
	}
	s.damaged = d.state.warnings
	d.service = s
	// Without what could not be brought back. Where the disk is full, what is
	// placed already still counts, and new placements are refused one by one.
	if err := s.save(); err != nil {
		d.log.Error("the disk takes no placed flows; none can be placed until it does", "file", flowsName, "error", err)
	}
	return nil
}

// report tells what became of flows in a fabric that has changed.
func (d *pathsDaemon) report(changed []paths.Restored) {
	for _, c := range changed {
		if c.Err != nil {
			d.log.Warn("a placed flow has no path any more and is released", "id", c.ID, "owner", c.Owner, "from", c.From.Node, "to", c.To.Node, "error", c.Err)
		} else {
			d.log.Warn("a placed flow takes another path now", "id", c.ID, "owner", c.Owner, "from", c.From.Node, "to", c.To.Node)
		}
	}
}

// answer opens the API and the metrics endpoint.
func (d *pathsDaemon) answer(ctx context.Context, g *errgroup.Group) error {
	mux := http.NewServeMux()
	mux.Handle(d.service.handler())
	open := func(api string) error {
		l, err := d.listen(api)
		if err != nil {
			return err
		}
		var h http.Handler = mux
		if strings.HasPrefix(api, "http://") {
			h = loopbackName(mux)
		}
		g.Go(func() error { return serve(ctx, httpServer(h, d.log), l) })
		return nil
	}
	if err := open(d.fabric.Service.API); err != nil {
		return err
	}
	if d.o.HTTP != "" {
		if err := topology.CheckAPI("http://"+d.o.HTTP, true); err != nil {
			return fmt.Errorf("--http %s: %w; write 127.0.0.1:PORT", d.o.HTTP, err)
		}
		if err := open("http://" + d.o.HTTP); err != nil {
			return err
		}
	}
	if d.fabric.Service.Metrics == "" {
		return nil
	}
	l, err := listenMetrics(d.fabric.Service.Metrics, d.log, false)
	if err == nil {
		g.Go(func() error { return serve(ctx, httpServer(d.metricsHandler(), d.log), l) })
	}
	return err
}

// listen is listen, or in the clear on the loopback.
func (d *pathsDaemon) listen(api string) (net.Listener, error) {
	address, plain := strings.CutPrefix(api, "http://")
	if !plain {
		return listen(api, config.TLS(d.fabric.TLS), d.log, false)
	}
	ap, err := netip.ParseAddrPort(strings.TrimSuffix(address, "/"))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", ap.String())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; stop who listens there, or name another port", api, err)
	}
	return newDoor(l, "api", d.log), nil
}

// watch ends flows whose time is over, and reads the file again on SIGHUP.
func (d *pathsDaemon) watch(ctx context.Context, hup <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.service.expire(now)
			d.service.retry()
		case <-hup:
			if err := d.reload(); err != nil {
				d.log.Error("fabric.yaml could not be read again; what was read before goes on", "error", err)
			}
		}
	}
}

func (d *pathsDaemon) reload() error {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return err
	}
	changed, err := d.service.replace(f)
	if err != nil {
		return err
	}
	d.report(changed)
	d.log.Info("fabric.yaml was read again", "nodes", len(f.Nodes), "links", len(f.Links))
	if f.Service != d.fabric.Service || f.TLS != d.fabric.TLS {
		d.log.Warn("what the file says of the service's own api, metrics or tls takes effect when it is started again")
	}
	return nil
}

// loopbackName lets through what was asked of an address of the loopback, or of
// localhost. A web page may give a name of its own that address and have a
// browser of this machine ask for it.
func loopbackName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(r.Host); err == nil {
			host = h
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !a.IsLoopback()) {
			http.Error(w, "ask under one of the names 127.0.0.1, [::1] and localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
