// Package paths is `fairlead path serve`, the path service. It goes by fabric.yaml,
// asks routers how much their links carry, and keeps the flows that it placed on
// disk. Nothing in the way of packets depends on it.
package paths

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// Options is what the command line decides.
type Options struct {
	File     string // fabric.yaml
	StateDir string // daemon.DefaultStateDir where empty
	// HTTP is an address of the loopback with a port, at which the API answers
	// in the clear, too; empty: none.
	HTTP string
	Log  *slog.Logger
	// Measure is how often routers are asked what their links carry; 0: never.
	Measure time.Duration
}

const (
	// stateName is the folder of the service's state.
	stateName = "path-service"
	// flowsName is the file there that holds the placed flows.
	flowsName = "flows.json"
	// unsaved: see daemon.OpenState.
	unsaved = "placed flows are not on disk (%v): none is placed until it takes them, and what was released counts again after a restart"
)

// server is the running service.
type server struct {
	*daemon.Daemon
	o       Options
	fabric  *topology.Fabric // as the daemon was started with
	service *service
}

// Run is `fairlead path serve`. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func Run(ctx context.Context, o Options) error { return newServer(o).Run(ctx) }

func newServer(o Options) *server {
	d := &server{Daemon: &daemon.Daemon{Log: o.Log, StateDir: o.StateDir, Unsaved: unsaved}, o: o}
	d.Read, d.Open, d.Reload = d.read, d.open, d.reload
	return d
}

// read takes what the file says.
func (d *server) read() (err error) {
	if d.fabric, err = topology.Read(d.o.File); err != nil {
		return err
	}
	if d.service, err = newService(d.fabric); err != nil {
		return err
	}
	s := d.fabric.Service
	d.Name, d.API, d.TLS, d.Metrics = stateName, []string{s.API}, d.fabric.TLS, s.Metrics
	d.service.reload = d.AnswerReload
	d.Handler, d.Service, d.Is = d.service.handler(d.Guard()), fairleadv1connect.PathsName, "the path service"
	d.Collectors = []prometheus.Collector{daemon.Collector(families, d.service.collect)}
	d.Says = []any{"api", s.API, "http", d.o.HTTP, "metrics", s.Metrics}
	if d.o.HTTP == "" {
		return nil
	}
	http := "http://" + d.o.HTTP
	if err := topology.CheckAPI(http, true); err != nil {
		return fmt.Errorf("--http %s: %w; write 127.0.0.1:PORT", d.o.HTTP, err)
	}
	d.API = append(d.API, http)
	return nil
}

// open brings back what was placed, and begins to ask routers.
func (d *server) open(context.Context) error {
	if err := d.begin(); err != nil {
		return err
	}
	d.Go(d.watch)
	if d.o.Measure > 0 {
		d.Go(d.measure)
	}
	return nil
}

// begin brings back what was placed.
func (d *server) begin() error {
	s := d.service
	var state paths.State
	// Where it is damaged no flow is known to be placed.
	err := d.State.Parse(flowsName, "; move the file away and start again: then no flow is known to be placed",
		func(data []byte) error { return json.Unmarshal(data, &state) })
	if err != nil {
		return fmt.Errorf("read placed flows: %w", err)
	}
	d.report(s.view().scheduler.Restore(state))
	s.log = d.Log
	s.keep = func(state paths.State) error {
		data, err := json.Marshal(state)
		if err != nil {
			return err
		}
		return d.State.Keep(flowsName, data)
	}
	s.diskWarnings = d.State.Warnings
	// Without what could not be brought back. Where the disk is full, what is
	// placed already still counts, and new placements are refused one by one.
	if err := s.save(); err != nil {
		d.Log.Error("the disk takes no placed flows; none can be placed until it does", "file", flowsName, "error", err)
	}
	return nil
}

// report tells what became of flows in a fabric that has changed.
func (d *server) report(changed []paths.Restored) {
	for _, c := range changed {
		if c.Err != nil {
			d.Log.Warn("a placed flow has no path any more and is released", "id", c.ID, "owner", c.Owner, "from", c.From.Node, "to", c.To.Node, "error", c.Err)
		} else {
			d.Log.Warn("a placed flow takes another path now", "id", c.ID, "owner", c.Owner, "from", c.From.Node, "to", c.To.Node)
		}
	}
}

// watch ends flows whose time is over.
func (d *server) watch(ctx context.Context) error {
	for daemon.Sleep(ctx, time.Second) {
		d.service.expire(time.Now())
	}
	return nil
}

// reload reads the file again, and restores what is placed in the new fabric.
func (d *server) reload() (r daemon.Reloaded, err error) {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return r, err
	}
	changed, err := d.service.replace(f)
	if err != nil {
		return r, err
	}
	d.report(changed)
	r.Changed = []string{fmt.Sprintf("%s, with %d nodes and %d links", d.o.File, len(f.Nodes), len(f.Links))}
	if f.Service != d.fabric.Service || f.TLS != d.fabric.TLS {
		r.Restart = []string{daemon.Restarts("the service's own api, metrics or tls", d.o.File)}
	}
	return r, nil
}
