// Package embedded runs a member of an etcd in this process, so that a deployment
// needs no other program to agree: alone, or as one of three, of which one may fail.
// store.Open is how it is used, from this process as from others.
//
// Its members are those it began with. One whose folder is damaged or lost takes its place
// again when it is started, as long as most of the others run (rejoin.go).
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/store/internal/zaplog"
)

// Options of a member.
type Options struct {
	// Name is this member's among Initial.
	Name string
	// Dir holds all that the store knows; nobody but this user may enter it (0700).
	Dir string
	// Client and Peer are where it listens, and where clients and the other members
	// find it: https://IP:port, http://IP:port, or unix:///path, which the path's
	// folder guards. Who reaches a Client address without TLS may write everything.
	Client, Peer []string
	// Open are keys, and Once too, which nobody writes but where there is none yet, that
	// every certificate of the authority may write; those that end with a slash are
	// prefixes. All else takes one that names an address of a member (guard.go). Both
	// empty: every certificate may write everything.
	Open, Once []string
	// Initial has the peer addresses of all members, by name, the same at each and
	// for ever; empty: this one is alone.
	Initial map[string]string
	// Others are where clients find the other members: with them it takes its place
	// again if its folder is damaged or lost; empty: then it does not start.
	Others []string
	// TLS is for https; whoever connects shows a certificate of the authority, too.
	TLS TLS
	// QuotaBytes bounds the store's size on disk, in bytes, until which it takes
	// writes; 0: 2 GiB.
	QuotaBytes int64
	// Log takes what etcd warns of; nil: nobody.
	Log *slog.Logger
}

// TLS names files, in PEM. The certificate is for servers and clients.
type TLS struct{ Cert, Key, CA string }

// Server is a member that runs.
type Server struct {
	etcd *embed.Etcd
	o    Options
	lock *os.File
	held held
	// hangUp ends calls that would last as long as the server does.
	hangUp  context.CancelFunc
	closing sync.Once
}

// Start gives a member that is ready, with what its folder holds, if it was there
// before. A majority has to be starting for that, within ctx. If the folder is damaged,
// parts of etcd may stay behind in the process, and its addresses taken.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{o: o}
	cfg, err := o.config()
	if err != nil {
		return nil, fmt.Errorf("store member %q: %w", o.Name, err)
	}
	var serving context.Context
	serving, s.hangUp = context.WithCancel(context.Background())
	cfg.GRPCAdditionalServerOptions = append(s.guard(), hangingUp(serving)...)
	if s.lock, err = lockDir(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.marking(zaplog.New(o.Log)))
	if err = s.rejoin(ctx, cfg); err != nil {
		return nil, fmt.Errorf("store member %q in %s: %w", o.Name, o.Dir, err)
	}
	if s.etcd, err = start(cfg); err != nil {
		if isDamage(err) {
			s.mark(err.Error())
		}
		if strings.Contains(err.Error(), "has already been bootstrapped") {
			err = fmt.Errorf("its folder is empty, but the other members know it: put back a copy, or give all members empty folders: daemons bring what they have into the new store (%w)", err)
		}
		return nil, fmt.Errorf("store member %q in %s: %w", o.Name, o.Dir, err)
	}
	if err := s.ours(); err != nil {
		return nil, err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		return nil, fmt.Errorf("store member %q stopped: %w", o.Name, err)
	case <-s.etcd.Server.StopNotify():
		return nil, fmt.Errorf("store member %q stopped: the others have removed it", o.Name)
	case <-ctx.Done():
		return nil, fmt.Errorf("store member %q is not ready (%w): do more than half of %s run, with the same list of members, and reach each other?",
			o.Name, ctx.Err(), cfg.InitialCluster)
	}
	s.joined()
	if _, err := s.makeRoom(ctx); err != nil {
		return nil, err
	}
	if err := s.hold(); err != nil {
		return nil, err
	}
	return s, nil
}

// ours: the folder is of the members that were given. Etcd would go by the folder.
func (s *Server) ours() error {
	cfg := s.etcd.Config()
	given, err := s.initial(&cfg)
	if err != nil {
		return err
	}
	if is := s.etcd.Server.Cluster().ID(); is != given.ID() {
		return fmt.Errorf("the store's folder %s is of another store (%s, not %s of %s): give the members it began with, or move it away to begin anew",
			s.o.Dir, is, given.ID(), cfg.InitialCluster)
	}
	return nil
}

// Endpoints are for store.Open.
func (s *Server) Endpoints() []string { return s.o.Client }

// Bytes is what the store takes on this member's disk, in bytes.
func (s *Server) Bytes() uint64 { return uint64(max(0, s.etcd.Server.Backend().Size())) }

// Quota is until what size it takes writes, in bytes.
func (s *Server) Quota() uint64 { return uint64(max(0, s.etcd.Server.Cfg.QuotaBackendBytes)) }

// Alarms are those that any member has raised, as etcd calls them: NOSPACE, CORRUPT.
func (s *Server) Alarms() (names []string) {
	for _, a := range s.etcd.Server.Alarms() {
		if name := a.Alarm.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Done is closed when the member runs no longer.
func (s *Server) Done() <-chan struct{} { return s.etcd.Server.StopNotify() }

// Close stops the member, within 3 s; its folder stays. The others go on, if they are
// a majority.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.hangUp()
		if s.etcd != nil {
			s.handOver()
			// First, or what waits for a majority would hold up the rest, or,
			// before it is ready, for ever.
			s.etcd.Server.HardStop()
			s.etcd.Close()
		}
		s.lock.Close()
	})
}

// handOver lets another member lead at once, so that writes need not wait until it is
// missed. If none can, as all are stopped, etcd would try for 7 s.
func (s *Server) handOver() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.etcd.Server.TryTransferLeadershipOnShutdown()
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// lockDir makes the folder this process's alone. Etcd would wait for another that has
// it, without an end.
func lockDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, errors.New("a store member needs a folder")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the store's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // it was there, with another mode
		return nil, fmt.Errorf("the store's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the store's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another process runs the store in %s: stop it first (%w)", dir, err)
	}
	return f, nil
}
