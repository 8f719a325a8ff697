// Package ctl is `fairlead controller`: it keeps the deployment's store, an etcd
// in this process (store/embedded). Nothing in the way of packets depends on it.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/store/embedded"
)

// Options is what the command line decides.
type Options struct {
	File     string // the configuration
	Name     string // which of its controllers this is; "": found by itself
	StateDir string // daemon.DefaultStateDir where empty
	Log      *slog.Logger
	// Beside another daemon of this process, which has the metrics' address and
	// tells the service manager.
	Beside bool
}

// unsaved is never said: etcd writes its own folder, and says by itself what its
// disk does not take.
const unsaved = "what this controller keeps beside the store is not on disk (%v)"

// ctl is the running daemon.
type ctl struct {
	*daemon.Daemon
	o      Options
	config *config.Config
	self   config.Self
	server *embedded.Server
}

// Run is `fairlead controller`. It returns when ctx ends (nil) or when the daemon
// cannot go on.
func Run(ctx context.Context, o Options) error {
	c := &ctl{o: o, Daemon: &daemon.Daemon{Log: o.Log, StateDir: o.StateDir, Unsaved: unsaved, Beside: o.Beside,
		Parting: "stopping; everything forwards on as it does, and changes need most of the controllers"}}
	c.Read, c.Open, c.Reload, c.Close = c.read, c.open, c.reload, c.close
	c.Collectors = []prometheus.Collector{}
	return c.Daemon.Run(ctx)
}

func (c *ctl) read() (err error) {
	if c.config, err = config.Load(c.o.File); err != nil {
		return err
	}
	if c.self, err = c.config.Find(config.RoleController, c.o.Name); err != nil {
		return err
	}
	c.Name, c.TLS, c.Metrics = c.self.Name, c.config.TLS, c.self.Metrics
	if c.o.Beside {
		c.Metrics = ""
	}
	c.Log = c.Log.With("name", c.Name)
	c.Says = []any{"store", c.self.Controller.Store, "peer", c.self.Controller.Peer, "metrics", c.Metrics}
	return nil
}

func (c *ctl) open(ctx context.Context) (err error) {
	initial := map[string]string{}
	for _, o := range c.config.Controllers {
		initial[o.Name] = peerURL(o)
	}
	c.server, err = embedded.Start(ctx, embedded.Options{
		Name: c.Name, Dir: c.State.Path("etcd"), Client: []string{url(c.self.Controller.Store)}, Peer: []string{peerURL(*c.self.Controller)},
		Initial: initial, TLS: embedded.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}, Log: c.Log,
	})
	if err != nil {
		return fmt.Errorf("start the store: %w", err)
	}
	c.Go(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-c.server.Done():
			return errors.New("the store stopped by itself: its log says why")
		}
	})
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
	return url(at + ".peer")
}

// url is an endpoint as etcd writes it.
func url(endpoint string) string {
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		return "unix://" + path
	}
	return endpoint
}

// reload: all that the file says of a controller takes a restart.
func (c *ctl) reload() {
	cfg, err := config.Load(c.o.File)
	if err == nil {
		_, err = cfg.Find(config.RoleController, c.Name)
	}
	if err != nil {
		c.Log.Error("configuration not reloaded; what was read before stays", "error", err)
		return
	}
	c.Log.Info("what the file says of controllers takes effect when this one is started again")
}

func (c *ctl) close() error {
	if c.server != nil {
		c.server.Close()
	}
	return nil
}
