// Package router is `fairlead router`. It shares no assignment with anybody: what
// it goes by is fabric.yaml and the kernel's routing, so it has none of the other
// daemons' clocks, peers and versions.
//
//	fabric.yaml ─▶ selector, port numbers ─┐
//	kernel ─▶ router.Follower ─▶ Tables ───┴─▶ router.Plane ─▶ maps, program
package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/router"
)

// Options is what the command line decides.
type Options struct {
	File     string // fabric.yaml
	Name     string // which of its routers this is; "": found by itself
	StateDir string // daemon.DefaultStateDir where empty
	PinDir   string // /sys/fs/bpf/fairlead/NAME where empty
	// Interfaces that packets come in by; empty: those of the file, else all.
	Interfaces []string
	// PrivatePins goes on where what is pinned would be gone with this process's
	// mount namespace.
	PrivatePins bool
	Log         *slog.Logger
}

// server is one running router.
type server struct {
	*daemon.Daemon
	o      Options
	fabric *topology.Fabric // as the daemon was started with
	node   *topology.Node
	sel    *pathsel.Selector

	plane    *router.Plane
	follower *router.Follower
	// stale says that the file asks for what takes a restart; nil: it does not.
	stale atomic.Pointer[string]
}

// Run is `fairlead router`. It returns when ctx ends (nil) or when the daemon
// cannot go on. What it loaded stays, and goes on forwarding.
func Run(ctx context.Context, o Options) error {
	d := &server{o: o, Daemon: &daemon.Daemon{Log: o.Log, StateDir: o.StateDir, Unsaved: daemon.UnsavedForce, Parting: daemon.GoesOn}}
	d.Read, d.Open, d.Reload, d.Close = d.read, d.open, d.reload, d.close
	d.NotReady = func() ([]string, error) {
		s, err := d.status()
		return s.GetNotReady(), err
	}
	d.Handler, d.Service, d.Is = d.handler(), fairleadv1connect.FairleadName, "a router"
	d.Collectors = []prometheus.Collector{daemon.Collector(families, d.collect)}
	return d.Daemon.Run(ctx)
}

// read takes what the file says.
func (d *server) read() error {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return err
	}
	n, err := config.FindRouter(f, d.o.Name)
	if err != nil {
		return err
	}
	d.fabric, d.node = f, &f.Nodes[n]
	d.Name, d.Log = d.node.Name, d.Log.With("name", d.node.Name)
	d.API, d.TLS, d.Metrics = []string{d.node.API}, f.TLS, d.node.Metrics
	if d.sel, err = pathsel.New(f.Selector); err != nil {
		return err
	}
	if d.node.Plain {
		d.Log.Warn("this router is plain in fabric.yaml: it goes by the hash alone, whatever packets select")
	}
	return nil
}

// open loads the program or adopts what is pinned, and follows the kernel's routing:
// when it is in force for the first time the daemon serves.
func (d *server) open(ctx context.Context) error {
	if err := d.load(); err != nil {
		return err
	}
	d.Enter(daemon.Applying)
	first := make(chan struct{})
	d.Go(func(ctx context.Context) error {
		return d.follower.Run(ctx, func(t router.Tables) error { return d.enforce(t, first) })
	})
	select {
	case <-first:
	case <-ctx.Done():
	}
	d.Go(func(ctx context.Context) error {
		// What somebody took away from the kernel is put back.
		for daemon.Sleep(ctx, 500*time.Millisecond) {
			d.plane.Tend()
		}
		return nil
	})
	return ctx.Err()
}

// load looks at the kernel's routing, and loads the program or adopts what is
// pinned.
func (d *server) load() error {
	var err error
	if err = d.Lasting(d.o.PinDir, d.o.PrivatePins); err != nil {
		return err
	}
	numbers, err := d.loadNumbers()
	if err != nil {
		return err
	}
	d.follower, err = router.NewFollower(router.FollowOptions{
		Fabric: d.fabric, Node: d.index(d.fabric), Interfaces: d.interfaces(),
		Numbers: numbers, Keep: d.keepNumbers, Log: d.Log,
	})
	if err != nil {
		return err
	}
	d.plane, err = router.Open(router.Options{Name: d.node.Name, PinDir: d.o.PinDir, Selector: d.sel, Plain: d.node.Plain}, d.Log)
	return err
}

// index of this router in a fabric; -1: it is not there.
func (d *server) index(f *topology.Fabric) int {
	return slices.IndexFunc(f.Nodes, func(n topology.Node) bool { return n.Name == d.node.Name && !n.Host })
}

func (d *server) interfaces() []string {
	if len(d.o.Interfaces) > 0 {
		return d.o.Interfaces
	}
	return d.node.Interfaces
}

// enforce puts tables in force, and the first time says so.
func (d *server) enforce(t router.Tables, first chan struct{}) error {
	if err := d.plane.Apply(t); err != nil {
		return err
	}
	d.Log.Debug("the kernel's routing is in force", "devices", len(t.Devices), "hops", len(t.Hops), "groups", len(t.Groups), "routes", len(t.Routes))
	select {
	case <-first:
	default:
		d.Says = []any{"api", d.node.API, "metrics", d.node.Metrics, "routes", len(t.Routes)}
		close(first)
	}
	return nil
}

func (d *server) close() (err error) {
	if d.follower != nil {
		err = d.follower.Close()
	}
	if d.plane != nil {
		err = errors.Join(err, d.plane.Close())
	}
	return err
}

// reload reads fabric.yaml again: links and their numbers are taken over, what is
// constant in the program takes a restart.
func (d *server) reload() (r daemon.Reloaded, err error) {
	f, err := topology.Read(d.o.File)
	if err != nil {
		return r, err
	}
	i := d.index(f)
	if i < 0 {
		return r, fmt.Errorf("%s has no router %s any more: stop this daemon, and fairlead unload %[2]s", d.o.File, d.node.Name)
	}
	n := &f.Nodes[i]
	if d.outgrown(f, n) {
		text := d.o.File + " has another selector, tls, plain, api, metrics or interfaces than this router was started with: restart it, which stops no packet"
		d.stale.Store(&text)
		r.Restart = append(r.Restart, text)
	} else {
		d.stale.Store(nil)
	}
	if f.Selector.Radix == d.fabric.Selector.Radix {
		d.follower.Renumber(f, i)
		r.Changed = append(r.Changed, fmt.Sprintf("%s, with %d links", d.o.File, len(f.Links)))
	}
	return r, nil
}

// outgrown: the file asks for what only a restart brings.
func (d *server) outgrown(f *topology.Fabric, n *topology.Node) bool {
	return f.Selector != d.fabric.Selector || f.TLS != d.fabric.TLS || n.Plain != d.node.Plain ||
		n.Endpoint != d.node.Endpoint || !slices.Equal(n.Interfaces, d.node.Interfaces)
}

// numbersName is the file of the state folder that holds the port numbers that
// the router gave by itself.
const numbersName = "ports.json"

// loadNumbers: where they are damaged, or lost, the router numbers anew. A selector
// that names a number which is another port's now takes that one.
func (d *server) loadNumbers() (numbers []router.Number, err error) {
	err = d.State.Parse(numbersName, "; to number anew, remove the file", func(data []byte) error { return json.Unmarshal(data, &numbers) })
	if err != nil {
		return nil, fmt.Errorf("read the port numbers given before: %w", err)
	}
	return numbers, nil
}

func (d *server) keepNumbers(numbers []router.Number) error {
	text, err := json.MarshalIndent(numbers, "", "  ")
	if err != nil {
		return err
	}
	return d.State.Write(numbersName, text)
}
