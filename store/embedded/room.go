package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// A store that reaches its quota takes no change until somebody takes the alarm back,
// which each member raises for itself:
//
//	its file is at the quota ─▶ forget the past ─▶ what is left is small enough? ─▶ make
//	the file smaller ─▶ take the alarm back
//
// Who watches and was behind reads all again. Making the file smaller holds up this
// member for as long as writing what is left takes: so only where that helps.

// roomEvery is how often a member looks whether it is full.
const roomEvery = 2 * time.Second

// Room is what came of making room in a member that was full.
type Room struct {
	// Before and After are what it took on disk, in bytes.
	Before, After uint64
	// Made: it takes changes again, as far as it is this member's to say. Else what is in
	// use is too much.
	Made bool
}

// KeepRoom makes room whenever this member is full, until ctx ends, and tells what came of
// it; of what is in vain, once. It tries again all the same: something may be deleted, or a
// reader have held on to what was.
func (s *Server) KeepRoom(ctx context.Context, tell func(Room)) {
	vain, failed := false, "" // the last time, which was told
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Done():
			return
		case <-tick.C:
		}
		room, err := s.makeRoom(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed != err.Error() { // as long as there is no majority it is this, again and again
				failed = err.Error()
				s.o.Log.Error("no room can be made in a full store; trying again", "error", err)
			}
			continue
		case room != nil && (room.Made || !vain):
			tell(*room)
		}
		vain, failed = room != nil && !room.Made, ""
	}
}

// makeRoom lets a store that was full take writes again, if it now may be larger, or is
// smaller without what only its past and its file's holes take. nil: this member was not
// full. An alarm of a member that was removed is nobody's, and is taken back.
func (s *Server) makeRoom(ctx context.Context) (room *Room, err error) {
	server := s.etcd.Server
	for _, a := range server.Alarms() {
		mine, known := a.MemberID == uint64(server.MemberID()), false
		for _, m := range server.Cluster().Members() {
			known = known || uint64(m.ID) == a.MemberID
		}
		if a.Alarm != pb.AlarmType_NOSPACE || known && !mine {
			continue
		}
		if mine {
			room = &Room{Before: s.Bytes()}
			if err := s.shrink(ctx); err != nil {
				return room, err
			}
			if room.After, room.Made = s.Bytes(), s.roomy(server.Backend().Size()); !room.Made {
				continue
			}
		}
		if _, err := server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: a.MemberID, Alarm: a.Alarm}); err != nil {
			return room, fmt.Errorf("store member %q was full: %w", s.o.Name, err)
		}
	}
	return room, nil
}

// roomy: so many bytes are well below the quota.
func (s *Server) roomy(bytes int64) bool { return bytes <= s.etcd.Server.Cfg.QuotaBackendBytes/10*9 }

// shrink forgets what was, and makes the file smaller, where it is too large.
func (s *Server) shrink(ctx context.Context) error {
	server := s.etcd.Server
	if s.roomy(server.Backend().Size()) {
		return nil
	}
	_, err := server.Compact(ctx, &pb.CompactionRequest{Revision: server.KV().Rev(), Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // another member came first
		return fmt.Errorf("store member %q is full, and cannot forget its past: %w", s.o.Name, err)
	}
	// Pages that were let go count as in use until the next change, or the one after it,
	// and while somebody reads what was.
	for n := 0; n < 20 && !s.roomy(server.Backend().SizeInUse()) && ctx.Err() == nil; n++ {
		if n > 2 {
			time.Sleep(10 * time.Millisecond)
		}
		server.Backend().ForceCommit()
	}
	if !s.roomy(server.Backend().SizeInUse()) {
		return nil
	}
	if err := server.Backend().Defrag(); err != nil {
		return fmt.Errorf("store member %q is full, and its file cannot be made smaller: %w", s.o.Name, err)
	}
	return nil
}
