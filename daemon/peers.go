package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

var peerInterval = 5 * time.Second // tests have no such time

const peerTimeout = 2 * time.Second

// peer is another daemon of the configuration.
type peer struct {
	name   string
	api    string
	role   Role
	client fairleadv1connect.FairleadClient
}

// peerTable is the other daemons and what was last heard of them.
type peerTable struct {
	mu    sync.Mutex
	peers []*peer
	heard map[string]*fairleadv1.Peer
	when  map[string]time.Time // it was asked
	skew  map[string]int32     // ms, by peer
}

// set replaces the peers by those of cfg but for the daemon named me.
func (t *peerTable) set(cfg *config.Config, me string) error {
	var peers []*peer
	add := func(role Role, name, endpoint string) error {
		if name == me || endpoint == "none" {
			return nil
		}
		client, err := api.Dial(endpoint, cfg.TLS)
		if err != nil {
			return fmt.Errorf("peer %s: %w", name, err)
		}
		peers = append(peers, &peer{name, endpoint, role, client})
		return nil
	}
	for _, b := range cfg.Balancers {
		if err := add(RoleBalancer, b.Name, b.API); err != nil {
			return err
		}
	}
	for _, s := range cfg.Servers {
		if err := add(RoleHost, s.Name, s.API); err != nil {
			return err
		}
	}
	for _, s := range cfg.Switches {
		if err := add(RoleSwitch, s.Name, s.API); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers = peers
	before := t.heard
	t.heard = map[string]*fairleadv1.Peer{}
	for _, p := range peers {
		// What it had matters while it does not answer.
		if h := before[p.name]; h != nil {
			t.heard[p.name] = h
		}
	}
	t.when = map[string]time.Time{}
	t.skew = map[string]int32{}
	return nil
}

// heardSince says whether what is known of a peer was asked after a moment.
func (t *peerTable) heardSince(name string, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.when[name].After(since)
}

func (t *peerTable) list() []*peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers
}

// withClock is the peers that have a shared clock: all but switches.
func (t *peerTable) withClock() (peers []*peer) {
	for _, p := range t.list() {
		if p.role != RoleSwitch {
			peers = append(peers, p)
		}
	}
	return peers
}

// report is what was last heard of each peer, in the configuration's order,
// and the largest clock difference.
func (t *peerTable) report() (peers []*fairleadv1.Peer, worst int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.peers {
		if h := t.heard[p.name]; h != nil {
			peers = append(peers, h)
		}
		if s := t.skew[p.name]; max(s, -s) > max(worst, -worst) {
			worst = s
		}
	}
	return peers, worst
}

// watchPeers asks every peer from time to time for its clock and version, and
// catches up when one is ahead of this daemon.
func (d *daemon) watchPeers(ctx context.Context) error {
	// The first round comes at once, later ones spread, so that a whole
	// deployment does not ask together.
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if newest := d.askPeers(ctx); ctx.Err() == nil {
			if newest > d.force.Load().Version {
				d.catchUp(ctx)
			}
		}
		timer.Reset(peerInterval - peerInterval/10 + time.Duration(rand.Int64N(int64(peerInterval/5))))
	}
}

// askPeers is one round; it returns the newest version heard of. Hosts ask no
// hosts: hundreds of them that all asked each other would be busy with it, and
// what one of them has a balancer or a switch has too.
func (d *daemon) askPeers(life context.Context) (newest uint64) {
	ctx, cancel := context.WithTimeout(life, peerTimeout)
	defer cancel()
	var wg sync.WaitGroup
	// A bound on what is under way, for deployments of hundreds.
	slots := make(chan struct{}, 32)
	peers := slices.Clone(d.peers.list())
	if d.me.role == RoleHost {
		peers = slices.DeleteFunc(peers, func(p *peer) bool { return p.role == RoleHost })
	}
	said := make([]*fairleadv1.GetTimeResponse, len(peers))
	force, began := d.force.Load(), time.Now()
	for i, p := range peers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			sent := time.Now()
			offset, answer, err := sampleClock(ctx, p)
			silent := err
			if errors.Is(err, errSlow) {
				silent = nil // it is there, only its time is of no use
			}
			if d.share != nil && life.Err() == nil {
				d.share.heard(p.name, silent)
			}
			heard := &fairleadv1.Peer{Name: p.name, Api: p.api}
			d.peers.mu.Lock()
			defer d.peers.mu.Unlock()
			if silent != nil {
				heard.Error = connectText(err)
				if before := d.peers.heard[p.name]; before != nil {
					heard.AssignmentVersion, heard.AssignmentDigest = before.AssignmentVersion, before.AssignmentDigest
				}
				delete(d.peers.skew, p.name)
			} else {
				heard.Reachable = true
				heard.AssignmentVersion, heard.AssignmentDigest = answer.AssignmentVersion, answer.AssignmentDigest
				said[i] = answer
				if err == nil && d.me.role != RoleSwitch && p.role != RoleSwitch {
					d.peers.skew[p.name] = int32(offset - d.clock.Load().base)
				}
				d.alone.Store(false)
			}
			d.peers.heard[p.name], d.peers.when[p.name] = heard, sent
		})
	}
	wg.Wait()
	same := true
	for i, answer := range said {
		v := answer.GetAssignmentVersion() // 0: it did not answer
		newest = max(newest, v)
		same = same && (peers[i].role != d.me.role || v >= force.Version && !differs(force, v, answer.GetAssignmentDigest()))
	}
	if life.Err() == nil && d.force.Load() == force {
		d.together.heard(same, began)
	}
	return newest
}

// differs says that a peer has another assignment than force under the same
// version. Older builds tell no digest.
func differs(force *inForce, version uint64, digest []byte) bool {
	return version == force.Version && len(digest) > 0 && !bytes.Equal(digest, force.digest)
}

// connectText is a connect error's message without its code's prefix.
func connectText(err error) string {
	var c *connect.Error
	if asError(err, &c) {
		return c.Message()
	}
	return err.Error()
}
