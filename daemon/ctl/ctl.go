// Package ctl is `fairlead controller`: it makes changes for whoever may (the API
// fairlead.v1.Control), keeps the deployment's store, an etcd in this process
// (store/embedded), unless that is somebody else's, and where it leads, finishes what
// nobody else does (rollout.Lead). Nothing in the way of packets depends on it.
package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/kept"
	"github.com/fairlead/fairlead/l2"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/store/embedded"
	"github.com/fairlead/fairlead/tables"
)

// Options is what the command line decides.
type Options struct {
	File     string // the configuration
	Name     string // which of its controllers this is; "": found by itself
	StateDir string // daemon.DefaultStateDir where empty
	Log      *slog.Logger
	// QuotaBytes bounds the store that it keeps, in bytes; 0: as store/embedded has it.
	QuotaBytes int64
}

// ctl is the running daemon.
type ctl struct {
	*daemon.Daemon
	o      Options
	config atomic.Pointer[config.Config]
	began  *config.Config // what config was at the start
	self   config.Self
	store  store.Store
	ledger *ledger.Ledger
	server *embedded.Server // nil: the store is somebody else's
	audit  *audit
	meters *meters
	// have is a version that need not be read again.
	have atomic.Pointer[controller.Assignment]
	memo rollout.Memo
	// clients are of the daemons that are asked.
	clients api.Clients
	// undone is what is left to do and cannot be done, as far as this one leads.
	undone atomic.Pointer[[]string]
	say    chan struct{} // what this controller says of itself has changed
	// changing has room for the one change that is under way.
	changing chan struct{}
	// planning is the same of plans.
	planning chan struct{}
	// stopping ends with the daemon: streams have no other end.
	stopping context.Context
}

// maxSocket is sun_path less its zero, in bytes.
const maxSocket = 107

// Run is `fairlead controller`. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func Run(ctx context.Context, o Options) error {
	c := &ctl{o: o, meters: newMeters(), changing: make(chan struct{}, 1), planning: make(chan struct{}, 1), say: make(chan struct{}, 1), stopping: ctx, Daemon: &daemon.Daemon{Log: o.Log, StateDir: o.StateDir,
		Parting: "stopping; everything forwards on as it does, and changes need most of the controllers"}}
	c.Read, c.Open, c.Reload, c.Close = c.read, c.open, c.reload, c.close
	return c.Daemon.Run(ctx)
}

func (c *ctl) read() error {
	cfg, err := config.Load(c.o.File)
	if err != nil {
		return err
	}
	if c.self, err = cfg.Find(config.RoleController, c.o.Name); err != nil {
		return err
	}
	c.config.Store(cfg)
	c.began = cfg
	c.Name, c.TLS, c.Metrics = c.self.Name, cfg.TLS, c.self.Metrics
	c.API = []string{c.self.API}
	// Where that is for other machines, this one's root has a socket all the same.
	if own := kept.OwnSocket(c.StateDir, c.Name); strings.HasPrefix(c.self.API, "https://") && len(own) <= maxSocket {
		c.API = append(c.API, "unix:"+own)
	}
	c.Log = c.Log.With("name", c.Name)
	c.audit = newAudit(filepath.Join(cmp.Or(c.StateDir, daemon.DefaultStateDir), c.Name, auditName), c.Log)
	c.Handler, c.Service, c.Is = c.handler(), fairleadv1connect.ControlName, config.RoleController.Article()
	c.Collectors = []prometheus.Collector{c.meters.calls, c.meters.changes, c.meters.took, c.meters.rooms, daemon.Collector(ofStore, c.collect)}
	c.Says = []any{"api", c.self.API, "store", strings.Join(cfg.StoreEndpoints(), ", "), "peer", c.self.Controller.Peer, "metrics", c.Metrics}
	return nil
}

func (c *ctl) open(ctx context.Context) error {
	if len(c.config.Load().Store.Etcd) == 0 {
		if err := c.keep(ctx); err != nil {
			return err
		}
	}
	return c.lead()
}

// keep runs this controller's member of the store.
func (c *ctl) keep(ctx context.Context) (err error) {
	initial := map[string]string{}
	cfg := c.config.Load()
	var others []string
	for _, o := range cfg.Controllers {
		initial[o.Name] = peerURL(o)
		if o.Name != c.Name {
			others = append(others, store.URL(o.Store))
		}
	}
	c.server, err = embedded.Start(ctx, embedded.Options{
		Name: c.Name, Dir: c.State.Path("etcd"), Client: []string{store.URL(c.self.Controller.Store)}, Peer: []string{peerURL(*c.self.Controller)},
		Open: []string{cfg.Store.Prefix + ledger.ReportsKey, cfg.Store.Prefix + l2.Keys}, Once: []string{cfg.Store.Prefix + ledger.ClockKey},
		Initial: initial, Others: others, QuotaBytes: c.o.QuotaBytes, TLS: embedded.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}, Log: c.Log,
	})
	if err != nil {
		return fmt.Errorf("start the store: %w", err)
	}
	c.Go(func(ctx context.Context) error {
		c.server.KeepRoom(ctx, c.roomMade)
		return nil
	})
	lost := c.server.Lost()
	c.Go(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			return err
		case <-c.server.Done():
			return errors.New("the store stopped by itself: its log says why")
		}
	})
	return nil
}

// quiet is how long a change stands still before the leader takes it for given up,
// in which no daemon is waited for as long.
const quiet = 30 * time.Second

// lead makes this controller a candidate.
func (c *ctl) lead() error {
	s, l, err := rollout.Open(c.config.Load(), c.Log)
	if err != nil {
		return err
	}
	c.store, c.ledger = s, l
	leader := &rollout.Coordinator{
		Config: c.config.Load, Ledger: l, Who: "controller " + c.Name, Log: c.Log,
		Fits: tables.Fits, Warn: c.warns, Clients: &c.clients,
	}
	if c.config.Load().Implied() {
		first := *leader // each writes what it has read into its own
		c.Go(func(ctx context.Context) error { return begin(ctx, &first, c.o.File, c.Log) })
	}
	c.Go(func(ctx context.Context) error { return leader.Lead(ctx, s, c.Name, quiet, c.Log) })
	c.Go(c.attend)
	c.Go(c.measure)
	return nil
}

// peerURL is where other controllers reach a member; the only one of its store needs
// no such place, but a name for it.
func peerURL(c config.Controller) string {
	if c.Peer != "" {
		return c.Peer
	}
	at := c.Store
	if !strings.HasPrefix(at, "unix:") {
		at = config.DefaultStore(c.Name)
	}
	return store.URL(at + ".peer")
}

// reload reads the file again, for what it has of the deployment where the store has
// nothing yet; all that it says of a controller takes a restart.
func (c *ctl) reload() (r daemon.Reloaded, err error) {
	cfg, err := config.Load(c.o.File)
	if err != nil {
		return r, err
	}
	self, err := cfg.Find(config.RoleController, c.Name)
	if err != nil {
		return r, err
	}
	c.config.Store(cfg)
	r.Changed = []string{c.o.File}
	r.Restart = daemon.Bootstrapped(c.began, cfg)
	for what, differs := range map[string]bool{"api": self.API != c.self.API, "metrics": self.Metrics != c.self.Metrics, "peer": self.Controller.Peer != c.self.Controller.Peer} {
		if differs {
			r.Restart = append(r.Restart, daemon.Restarts(what, c.o.File))
		}
	}
	slices.Sort(r.Restart)
	return r, nil
}

func (c *ctl) close() error {
	var err error
	if c.store != nil {
		err = c.store.Close()
	}
	if c.server != nil {
		c.server.Close()
	}
	return errors.Join(err, c.audit.close())
}
