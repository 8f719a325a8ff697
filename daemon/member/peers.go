package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

var peerInterval = 5 * time.Second // tests have less

const peerTimeout = 2 * time.Second

// Peer is another daemon of the configuration.
type Peer struct {
	Name   string
	Role   config.Role
	Client fairleadv1connect.FairleadClient
	api    string
}

// peerTable is the other daemons and what was last heard of them.
type peerTable struct {
	mu    sync.Mutex
	peers []*Peer
	heard map[string]*fairleadv1.Peer
	when  map[string]time.Time // it was asked
	skew  map[string]int32     // ms, by peer
}

// set replaces the peers by those of cfg but for the daemon named me.
func (t *peerTable) set(cfg *config.Config, me string) error {
	var peers []*Peer
	for _, self := range cfg.Daemons(me) {
		client, err := api.Dial(self.API, cfg.TLS)
		if err != nil {
			return fmt.Errorf("peer %s: %w", self.Name, err)
		}
		peers = append(peers, &Peer{self.Name, self.Role, client, self.API})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers = peers
	before := t.heard
	t.heard = map[string]*fairleadv1.Peer{}
	for _, p := range peers {
		// What it had matters while it does not answer.
		if h := before[p.Name]; h != nil {
			t.heard[p.Name] = h
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

func (t *peerTable) list() []*Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers
}

// withClock is the peers that have a shared clock: all but switches.
func (t *peerTable) withClock() (peers []*Peer) {
	for _, p := range t.list() {
		if p.Role != config.RoleSwitch {
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
		if h := t.heard[p.Name]; h != nil {
			peers = append(peers, h)
		}
		if s := t.skew[p.Name]; max(s, -s) > max(worst, -worst) {
			worst = s
		}
	}
	return peers, worst
}

// watchPeers asks every peer from time to time for its clock and version.
func (m *Member) watchPeers(ctx context.Context) error {
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
		m.askPeers(ctx)
		timer.Reset(peerInterval - peerInterval/10 + time.Duration(rand.Int64N(int64(peerInterval/5))))
	}
}

// askPeers is one round. Hosts ask no hosts: hundreds of them that all asked each other would be busy with it, and
// what one of them has a balancer or a switch has too.
func (m *Member) askPeers(life context.Context) {
	ctx, cancel := context.WithTimeout(life, peerTimeout)
	defer cancel()
	var wg sync.WaitGroup
	// A bound on what is under way, for deployments of hundreds.
	slots := make(chan struct{}, 32)
	peers := slices.Clone(m.peers.list())
	if m.role.Is == config.RoleHost {
		peers = slices.DeleteFunc(peers, func(p *Peer) bool { return p.Role == config.RoleHost })
	}
	said := make([]*fairleadv1.GetTimeResponse, len(peers))
	force, began := m.force.Load(), time.Now()
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
			if m.opened.Peers != nil && life.Err() == nil {
				m.opened.Peers.Heard(p.Name, silent)
			}
			heard := &fairleadv1.Peer{Name: p.Name, Api: p.api}
			m.peers.mu.Lock()
			defer m.peers.mu.Unlock()
			if !slices.Contains(m.peers.peers, p) {
				return // it has left meanwhile
			}
			if silent != nil {
				heard.Error = api.ErrorText(err)
				if before := m.peers.heard[p.Name]; before != nil {
					heard.AssignmentVersion, heard.AssignmentDigest = before.AssignmentVersion, before.AssignmentDigest
				}
				delete(m.peers.skew, p.Name)
			} else {
				heard.Reachable = true
				heard.AssignmentVersion, heard.AssignmentDigest = answer.AssignmentVersion, answer.AssignmentDigest
				said[i] = answer
				if err == nil && m.opened.Clock != nil && p.Role != config.RoleSwitch {
					m.peers.skew[p.Name] = int32(offset - m.clock.Load().base)
				}
			}
			m.peers.heard[p.Name], m.peers.when[p.Name] = heard, sent
		})
	}
	wg.Wait()
	same := true
	for i, answer := range said {
		v := answer.GetAssignmentVersion() // 0: it did not answer
		same = same && (peers[i].Role != m.role.Is || v >= force.Version && !differs(force, v, answer.GetAssignmentDigest()))
	}
	if life.Err() == nil && m.force.Load() == force {
		m.together.heard(same, began)
	}
}

// differs says that a peer has another assignment than force under the same
// version. Older builds tell no digest.
func differs(force *inForce, version uint64, digest []byte) bool {
	return version == force.Version && len(digest) > 0 && !bytes.Equal(digest, force.digest)
}
