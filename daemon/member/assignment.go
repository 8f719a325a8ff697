package member

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
)

const (
	assignmentName = "assignment.json"
	// ownName is where a balancer keeps the same with its own times.
	ownName = "own.json"
)

// ReadAssignment is the assignment that the daemon called name keeps on disk
// under base, for whoever looks while it runs; nil where there is none.
func ReadAssignment(base, name string) (*controller.Assignment, error) {
	data, err := daemon.ReadState(base, name, assignmentName)
	if err != nil || data == nil {
		return nil, err
	}
	return controller.Decode(data)
}

// loadAssignment is the assignment on disk, nil where there is none that is whole.
func loadAssignment(s *daemon.State) (*controller.Assignment, error) {
	return load(s, assignmentName, "; start a build that knows it, or move the file away and start again to take a peer's (where no peer answers, and what is pinned forwards: after fairlead unload)")
}

func load(s *daemon.State, name, remedy string) (a *controller.Assignment, err error) {
	err = s.Parse(name, remedy, func(data []byte) error {
		a, err = controller.Decode(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read assignment: %w", err)
	}
	return a, nil
}

// save replaces the assignment; without must, as soon as the disk takes it.
func (m *Member) save(data []byte, must bool) error {
	if must {
		return m.State.Write(assignmentName, data)
	}
	return m.State.Keep(assignmentName, data)
}

// errRefused: an assignment cannot follow the one in force.
var errRefused = errors.New("assignment refused")

// install puts a in force: on disk first, then into the maps, so that a
// daemon killed in between starts with what it was told and not with less.
// The caller holds mu. On error everything is as it was before.
//
// With must, an assignment that the disk does not take is refused: somebody wants
// a change, and would believe that it lasts. Without, it is one that others have
// or that the file says, and not to follow it breaks more than to forget it: it is
// in force, and written when the disk takes it.
func (m *Member) install(a *controller.Assignment, must bool) error {
	data := a.Encode()
	before := m.force.Load()
	if before == nil || !bytes.Equal(data, before.encoded) {
		err := m.save(data, must)
		if err != nil && must {
			// It may be on disk all the same, and must not be what the next
			// daemon begins from. What the disk does not take is warned of.
			_ = m.save(before.encoded, false)
			return err
		} else if err != nil {
			m.Log.Error("the assignment goes into force and is not on disk yet: a restart begins from the one before and catches up with a peer", "version", a.Version, "error", err)
		}
	}
	own := a
	if m.role.OwnTimes {
		own = controller.Follow(m.had, a, time.Now())
	}
	if before == nil || before.Version != a.Version {
		m.together.behind()
	}
	due, err := m.opened.Plane.Apply(own)
	switch {
	case errors.Is(err, controller.ErrInForce):
		// Packets follow it: there is no way back, only forward.
		m.Log.Error("the assignment is in force, but what follows failed; trying again", "version", a.Version, "error", err)
		m.again()
	case err != nil:
		if before != nil {
			err = errors.Join(err, m.save(before.encoded, false))
		}
		return err
	}
	m.force.Store(&inForce{a, own, data, digest(data), time.Now()})
	m.due.set(due)
	m.writePinned(a.Version, digest(data))
	m.keepOwn(own)
	m.announceSoon()
	return nil
}

// keepOwn remembers what packets go by from now on. On disk it comes after the
// maps: a daemon killed in between begins what is new once more, which holds
// connections longer and breaks none.
func (m *Member) keepOwn(own *controller.Assignment) {
	m.had = own
	if !m.role.OwnTimes {
		return
	}
	if err := m.State.Keep(ownName, own.Encode()); err != nil {
		m.Log.Warn("since when servers are new, drain or have their weights here is not on disk: a restart of this daemon takes these times from the assignment before", "error", err)
	}
}

// hadBefore is what packets went by until this daemon started, as far as the
// disk tells; nil if there were none, because the programs were loaded anew: the
// connections that come are the other balancers', and so are the times.
func (m *Member) hadBefore(onDisk *controller.Assignment) *controller.Assignment {
	if m.clock.Load().source != clockPinned {
		return nil
	}
	own, err := load(m.State, ownName, "")
	if err != nil {
		m.Log.Warn("since when servers are new, drain or have their weights here is unknown; the times of the assignment on disk are used", "error", err)
	}
	if own == nil {
		return onDisk
	}
	return own
}

// inForce is the assignment in force. Nothing in it is ever changed in place.
type inForce struct {
	*controller.Assignment
	// own is it with this balancer's own times (controller.Follow), as the
	// plane has it. An agent's is the same.
	own     *controller.Assignment
	encoded []byte // Assignment.Encode()
	digest  []byte // of encoded
	since   time.Time
}

// setAssignment is the compare-and-set behind SetAssignment: expected is the
// version that the caller believes in force. The same assignment again is
// done already.
func (m *Member) setAssignment(data []byte, expected uint64, catchUp bool) (uint64, error) {
	next, err := controller.Decode(data)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	force := m.force.Load()
	now := force.Version
	if next.Version == now {
		if bytes.Equal(next.Encode(), force.encoded) {
			return now, nil
		}
		return 0, fmt.Errorf("%w: %s has another version %d in force; fairlead status shows who differs, fairlead apply brings all to one",
			errRefused, m.Name, now)
	}
	if err := controller.Accept(force.Assignment, next, expected, catchUp); err != nil {
		return 0, fmt.Errorf("%w by %s: %w", errRefused, m.Name, err)
	}
	if err := m.install(next, !catchUp); err != nil {
		return 0, err
	}
	m.Log.Info("assignment in force", "version", next.Version, "from", "api", "vips", len(next.VIPs))
	return next.Version, nil
}

// newestOfPeers fetches the newest assignment among the peers, if any has a
// newer one than own (nil: none); nil otherwise. One of another deployment (a
// machine that was moved here with its old state) is not taken.
// heard says whether any peer answered.
func (m *Member) newestOfPeers(ctx context.Context, own *controller.Assignment) (newest *controller.Assignment, from string, heard bool) {
	var known uint64
	if own != nil {
		known = own.Version
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, p := range m.peers.list() {
		wg.Go(func() {
			t, err := p.Client.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{}))
			if err != nil {
				return
			}
			mu.Lock()
			heard = true
			mu.Unlock()
			if t.Msg.AssignmentVersion <= known {
				return
			}
			a, err := fetchAssignment(ctx, p)
			if err != nil {
				m.Log.Warn("peer's assignment cannot be used", "peer", p.Name, "error", err)
				return
			}
			if a != nil && own != nil && a.HashKey != own.HashKey {
				m.Log.Warn("peer has an assignment of another deployment: remove its state folder, or correct the file", "peer", p.Name, "version", a.Version)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a != nil && a.Version > known && (newest == nil || a.Version > newest.Version) {
				newest, from = a, p.Name
			}
		})
	}
	wg.Wait()
	return newest, from, heard
}

func fetchAssignment(ctx context.Context, p *Peer) (*controller.Assignment, error) {
	resp, err := p.Client.GetAssignment(ctx, connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		return nil, err
	}
	if len(resp.Msg.Assignment) == 0 {
		return nil, nil
	}
	return controller.Decode(resp.Msg.Assignment)
}

// catchUp takes over a newer assignment of a peer: this daemon was away or
// cut off while the others went on.
func (m *Member) catchUp(ctx context.Context) {
	newer, from, _ := m.newestOfPeers(ctx, m.force.Load().Assignment)
	if newer == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if newer.Version <= m.force.Load().Version {
		return // handed over meanwhile
	}
	if err := m.install(newer, false); err != nil {
		m.Log.Error("could not catch up with a peer", "peer", from, "version", newer.Version, "error", err)
		return
	}
	m.Log.Info("assignment in force", "version", newer.Version, "from", from, "vips", len(newer.VIPs))
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}
