package member

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/kept"
)

const (
	assignmentName = "assignment.json"
	// ownName is where a balancer keeps the same with its own times.
	ownName = "own.json"
)

// ReadAssignment is the assignment that the daemon called name keeps on disk
// under base, for whoever looks while it runs; nil where there is none.
func ReadAssignment(base, name string) (*controller.Assignment, error) {
	data, err := kept.Read(base, name, assignmentName)
	if err != nil || data == nil {
		return nil, err
	}
	return controller.Decode(data)
}

// loadAssignment is the assignment on disk, nil where there is none that is whole.
func loadAssignment(s *daemon.State) (*controller.Assignment, error) {
	return load(s, assignmentName, "; start a build that knows it, or move the file away and start again to take the store's")
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

// install puts a in force: first the pin says so (writePinned), then come the maps, and
// then the disk, for which packets do not wait. A daemon killed in between finds less on
// disk than the pin says, and takes what the store or a peer has, or waits for one of
// them while packets go on. One that has just started, or pins nothing, puts it on disk
// first. The caller holds mu. On error everything is as it was before.
//
// The text of a large one (controller.Large) is a hundred megabytes: it comes behind the
// maps, in the background. A daemon that is killed meanwhile finds by what is pinned
// that its disk is behind, and takes it from the store or a peer.
//
// One that the disk does not take goes into force all the same, as it is agreed on,
// and not to follow it breaks more than to forget it: it is written when the disk
// takes it, and warned of until then.
func (m *Member) install(a *controller.Assignment) error {
	sum := m.digest(a)
	before := m.force.Load()
	news := before == nil || !bytes.Equal(sum, before.digest)
	first := before == nil || m.forcePin() == "" // the pin is an earlier process's, or nobody's
	if first && !a.Large() {
		m.keepAssignment(a)
	} else if !first && news {
		m.writePinned(a.Version, sum)
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
			m.writePinned(before.Version, before.digest)
			if first && !a.Large() {
				err = errors.Join(err, m.State.Keep(assignmentName, before.Encode()))
			}
		}
		return err
	}
	m.force.Store(&inForce{a, own, sum, time.Now()})
	m.due.set(due)
	if first {
		m.writePinned(a.Version, sum)
	}
	if news && (!first || a.Large()) {
		m.keepAssignment(a)
	}
	m.keepOwn(a, own)
	m.AnnounceSoon()
	return nil
}

// keepAssignment puts a on disk, a large one in the background.
func (m *Member) keepAssignment(a *controller.Assignment) {
	if a.Large() {
		m.State.KeepSoon(assignmentName, a.Encode)
	} else if err := m.State.Keep(assignmentName, a.Encode()); err != nil {
		m.Log.Error("the assignment is in force, or goes into it, and is not on disk yet: a restart begins from the one before and catches up with the store", "version", a.Version, "error", err)
	}
}

// digest is a's, which the ledger has taken already where it gave a.
func (m *Member) digest(a *controller.Assignment) []byte {
	sum, err := hex.DecodeString(m.stored.ledger.Digest(a))
	if err != nil {
		panic(err) // it is ours
	}
	return sum
}

// keepOwn remembers what packets go by from now on. On disk it comes after the
// maps: a daemon killed in between begins what is new once more, which holds
// connections longer and breaks none.
func (m *Member) keepOwn(a, own *controller.Assignment) {
	m.had = own
	if !m.role.OwnTimes {
		return
	}
	if own.Large() {
		m.State.KeepSoon(ownName, func() []byte {
			if reflect.DeepEqual(a, own) {
				return nil // a table's times are those of the assignment, which is there
			}
			return own.Encode()
		})
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
	own    *controller.Assignment
	digest []byte // Assignment.Digest()
	since  time.Time
}

// newestOfPeers fetches the newest assignment among the peers, if any has a
// newer one than own (nil: none); nil otherwise. One of another deployment (a
// machine that was moved here with its old state) is not taken.
func (m *Member) newestOfPeers(ctx context.Context, own *controller.Assignment) (newest *controller.Assignment, from string) {
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
			if err != nil || t.Msg.AssignmentVersion <= known {
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
	return newest, from
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
