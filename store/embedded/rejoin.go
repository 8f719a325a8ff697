package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fairlead/fairlead/store/internal/zaplog"
)

// A member whose folder is damaged or gone takes its place among the others again,
// empty, and gets from them what the store knows:
//
//	a start that finds damage, or raft when it does ─▶ mark, and the process ends
//	the next start: marked, or its folder is empty and the others know it
//	   ─▶ most of the others answer ─▶ set aside ─▶ remove, add ─▶ join
//
// With its old number it would be taken for the one that knows what it acknowledged;
// so it gets a new one. While no majority of the others answers nothing is set aside.

const (
	markName  = "damaged"        // why; in the store's folder
	asideName = "member.damaged" // the one that was set aside last
)

// asking is how long the others may take to answer.
const asking = 3 * time.Second

// rejoin makes cfg that of a member which joins, where it has to.
func (s *Server) rejoin(ctx context.Context, cfg *embed.Config) error {
	if len(s.o.Others) == 0 {
		return nil
	}
	why, err := os.ReadFile(filepath.Join(s.o.Dir, markName))
	marked := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(filepath.Join(s.o.Dir, "member", "wal"))
	empty := errors.Is(err, fs.ErrNotExist)
	if !marked && !empty || s.answers() {
		return nil
	}
	others, members, err := s.ask(ctx)
	if err != nil {
		if marked && empty {
			return fmt.Errorf("its folder was damaged (%s) and is set aside as %s: it waits until most of the others answer (%w)", why, asideName, err)
		}
		return nil // where it is damaged its start says so; where it is new, so are they
	}
	defer others.Close()
	initial, err := s.initial(cfg)
	if err != nil {
		return err
	}
	if !s.among(members) {
		if s.o.Log != nil {
			s.o.Log.Warn("where this store's other members shall answer another store does, as of a balancer that has its own still: stop that, or restart it with the file that names these members",
				"asked", strings.Join(s.o.Others, ", "))
		}
		return nil // that is nobody's to join: this one begins
	}
	is := slices.IndexFunc(members, func(m *pb.Member) bool {
		return slices.ContainsFunc(m.PeerURLs, func(u string) bool { return slices.Contains(s.o.Peer, u) })
	})
	// A member that never ran says nothing of itself.
	ran := is >= 0 && len(members[is].ClientURLs) > 0
	began := is >= 0 && types.ID(members[is].ID) == initial.MemberByName(s.o.Name).ID
	if began && !ran && !marked {
		return nil // all begin
	}
	if err := s.setAside(); err != nil {
		return err
	}
	if is >= 0 && (ran || began) {
		if err := s.untilTaken(ctx, "remove it", func() error { _, err := others.MemberRemove(ctx, members[is].ID); return err }); err != nil {
			return err
		}
		is = -1
	}
	if is < 0 {
		if err := s.untilTaken(ctx, "take it in", func() error { _, err := others.MemberAdd(ctx, s.o.Peer); return err }); err != nil {
			return err
		}
	}
	cfg.ClusterState = embed.ClusterStateFlagExisting
	if s.o.Log != nil {
		s.o.Log.Warn("this member's folder is lost: it joins the others, empty, and gets what they have", "why", string(why))
	}
	return nil
}

// among: members are of the store that this one is, or is to be, a member of.
func (s *Server) among(members []*pb.Member) bool {
	return slices.ContainsFunc(members, func(m *pb.Member) bool {
		return slices.ContainsFunc(m.PeerURLs, func(u string) bool {
			for _, peer := range s.o.Initial {
				if u == peer {
					return true
				}
			}
			return false
		})
	})
}

// untilTaken has the others change who is a member. They refuse while they have not heard
// each other for a while.
func (s *Server) untilTaken(ctx context.Context, what string, do func() error) error {
	for told := ""; ; {
		err := do()
		if err == nil {
			return nil
		}
		if told != err.Error() && s.o.Log != nil {
			told = err.Error()
			s.o.Log.Warn("this member's folder is empty, and the others do not "+what+" yet; trying on", "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its folder is lost, and the others do not %s: %w", what, err)
		case <-time.After(time.Second):
		}
	}
}

// answers: another process is this member, it seems, and shall not be removed.
func (s *Server) answers() bool {
	u, err := url.Parse(s.o.Client[0])
	if err != nil {
		return false
	}
	network, address := "tcp", u.Host
	if u.Scheme == "unix" {
		network, address = "unix", u.Path
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// ask asks the others who is a member; that is answered by a majority only.
func (s *Server) ask(ctx context.Context) (*clientv3.Client, []*pb.Member, error) {
	cfg := clientv3.Config{Endpoints: s.o.Others, Logger: zaplog.New(nil), DialTimeout: asking}
	if strings.HasPrefix(s.o.Others[0], "https://") {
		files := transport.TLSInfo{CertFile: s.o.TLS.Cert, KeyFile: s.o.TLS.Key, TrustedCAFile: s.o.TLS.CA}
		var err error
		if cfg.TLS, err = files.ClientConfig(); err != nil {
			return nil, nil, err
		}
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, list.Members, nil
}

// initial are the members that the store began with, by the options.
func (s *Server) initial(cfg *embed.Config) (*membership.RaftCluster, error) {
	urls, err := types.NewURLsMap(cfg.InitialCluster)
	if err != nil {
		return nil, err
	}
	return membership.NewClusterFromURLsMap(cfg.GetLogger(), cfg.InitialClusterToken, urls)
}

// setAside keeps what is damaged for whoever wants to know, in the place of what was
// set aside before.
func (s *Server) setAside() error {
	member, aside := filepath.Join(s.o.Dir, "member"), filepath.Join(s.o.Dir, asideName)
	if _, err := os.Stat(member); err != nil {
		return nil // it is gone
	}
	s.mark("its folder was lost") // before there is none: an empty one that is not marked may begin a store
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("the store's folder: %w", err)
	}
	if err := os.Rename(member, aside); err != nil {
		return fmt.Errorf("the store's folder: %w", err)
	}
	return nil
}

// mark has the next start join anew, if it can.
func (s *Server) mark(why string) {
	name := filepath.Join(s.o.Dir, markName)
	if _, err := os.Stat(name); err == nil || len(s.o.Others) == 0 {
		return
	}
	if err := os.WriteFile(name, []byte(why), 0o600); err != nil && s.o.Log != nil {
		s.o.Log.Error("the store's folder is damaged, and that cannot be noted", "error", err)
	}
}

// joined: it is whole again.
func (s *Server) joined() {
	_ = os.Remove(filepath.Join(s.o.Dir, markName)) // it is not there, mostly
}

// isDamage tells damage from a disk that takes nothing, and from what else may be wrong
// with a folder that is whole.
func isDamage(err error) bool {
	for _, other := range []string{"no space left", "permission denied", "read-only file system", "too many open files", "address already in use", "resource temporarily unavailable"} {
		if strings.Contains(err.Error(), other) {
			return false
		}
	}
	return errors.Is(err, errDamaged)
}

// errDamaged is wrapped by errors about a folder that cannot be read.
var errDamaged = errors.New("put back a copy, or, of all members, move it away: daemons bring what they have into the new store")

// lostLog is what raft ends the process with, from a goroutine of its own, when the
// others know that it acknowledged more than it has.
const lostLog = "Was the raft log corrupted, truncated, or lost?"

// marking marks the folder when raft says so.
func (s *Server) marking(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		if strings.Contains(e.Message, lostLog) {
			s.mark("its log lacks what it acknowledged")
		}
		return nil
	}))
}
