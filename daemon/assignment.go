package daemon

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
)

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
func (d *daemon) install(a *controller.Assignment, must bool) error {
	data := a.Encode()
	before := d.force.Load()
	if before == nil || !bytes.Equal(data, before.encoded) {
		err := d.state.save(data, must)
		if err != nil && must {
			// It may be on disk all the same, and must not be what the next
			// daemon begins from. What the disk does not take is warned of.
			_ = d.state.save(before.encoded, false)
			return err
		} else if err != nil {
			d.log.Error("the assignment goes into force and is not on disk yet: a restart begins from the one before and catches up with a peer", "version", a.Version, "error", err)
		}
	}
	own := a
	if d.me.role == RoleBalancer {
		own = controller.Follow(d.had, a, time.Now())
	}
	if before == nil || before.Version != a.Version {
		d.together.behind()
	}
	due, err := d.plane.apply(own)
	switch {
	case errors.Is(err, controller.ErrInForce):
		// Packets follow it: there is no way back, only forward.
		d.log.Error("the assignment is in force, but what follows failed; trying again", "version", a.Version, "error", err)
		d.again()
	case err != nil:
		if before != nil {
			err = errors.Join(err, d.state.save(before.encoded, false))
		}
		return err
	}
	d.force.Store(&inForce{a, own, data, digest(data), time.Now()})
	d.due.set(due)
	d.writePinned(a.Version, digest(data))
	d.keepOwn(own)
	return nil
}

// keepOwn remembers what packets go by from now on. On disk it comes after the
// maps: a daemon killed in between begins what is new once more, which holds
// connections longer and breaks none.
func (d *daemon) keepOwn(own *controller.Assignment) {
	d.had = own
	if d.me.role != RoleBalancer {
		return
	}
	if err := d.state.saveOwn(own.Encode()); err != nil {
		d.log.Warn("since when servers are new, drain or have their weights here is not on disk: a restart of this daemon takes these times from the assignment before", "error", err)
	}
}

// hadBefore is what packets went by until this daemon started, as far as the
// disk tells; nil if there were none, because the programs were loaded anew: the
// connections that come are the other balancers', and so are the times.
func (d *daemon) hadBefore(onDisk *controller.Assignment) *controller.Assignment {
	if d.clock.Load().source != clockPinned {
		return nil
	}
	own, err := d.state.loadOwn()
	if err != nil {
		d.log.Warn("since when servers are new, drain or have their weights here is unknown; the times of the assignment on disk are used", "error", err)
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
func (d *daemon) setAssignment(data []byte, expected uint64, catchUp bool) (uint64, error) {
	next, err := controller.Decode(data)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	force := d.force.Load()
	now := force.Version
	if next.Version == now {
		if bytes.Equal(next.Encode(), force.encoded) {
			return now, nil
		}
		return 0, fmt.Errorf("%w: %s has another version %d in force; fairlead status shows who differs, fairlead apply brings all to one",
			errRefused, d.me.name, now)
	}
	if err := controller.Accept(force.Assignment, next, expected, catchUp); err != nil {
		return 0, fmt.Errorf("%w by %s: %w", errRefused, d.me.name, err)
	}
	if err := d.install(next, !catchUp); err != nil {
		return 0, err
	}
	d.log.Info("assignment in force", "version", next.Version, "from", "api", "vips", len(next.VIPs))
	return next.Version, nil
}

// newestOfPeers fetches the newest assignment among the peers, if any has a
// newer one than own (nil: none); nil otherwise. One of another deployment (a
// machine that was moved here with its old state) is not taken.
// heard says whether any peer answered.
func (d *daemon) newestOfPeers(ctx context.Context, own *controller.Assignment) (newest *controller.Assignment, from string, heard bool) {
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
	for _, p := range d.peers.list() {
		wg.Go(func() {
			t, err := p.client.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{}))
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
				d.log.Warn("peer's assignment cannot be used", "peer", p.name, "error", err)
				return
			}
			if a != nil && own != nil && a.HashKey != own.HashKey {
				d.log.Warn("peer has an assignment of another deployment: remove its state folder, or correct the file", "peer", p.name, "version", a.Version)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a != nil && a.Version > known && (newest == nil || a.Version > newest.Version) {
				newest, from = a, p.name
			}
		})
	}
	wg.Wait()
	return newest, from, heard
}

func fetchAssignment(ctx context.Context, p *peer) (*controller.Assignment, error) {
	resp, err := p.client.GetAssignment(ctx, connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
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
func (d *daemon) catchUp(ctx context.Context) {
	newer, from, _ := d.newestOfPeers(ctx, d.force.Load().Assignment)
	if newer == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if newer.Version <= d.force.Load().Version {
		return // handed over meanwhile
	}
	if err := d.install(newer, false); err != nil {
		d.log.Error("could not catch up with a peer", "peer", from, "version", newer.Version, "error", err)
		return
	}
	d.log.Info("assignment in force", "version", newer.Version, "from", from, "vips", len(newer.VIPs))
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}
