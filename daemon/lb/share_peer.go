package lb

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel/lb"
)

// sharePeer is what one peer balancer is told and asked. It is the same one
// for as long as the configuration names the peer, whatever else a reload
// changes: one goroutine tells it, so that what was said last arrives last.
type sharePeer struct {
	name  string
	queue *shareQueue
	stop  context.CancelFunc // nil: not running
	pull  chan struct{}      // it answers, and has entries that are not here
	back  chan struct{}      // it is there again: no use in waiting longer

	mu           sync.Mutex
	client       fairleadv1connect.FairleadClient
	sent, pulled uint64
	down         string             // why it cannot be told; empty: it can
	hangUp       context.CancelFunc // of the call under way; nil: there is none
	table        tableState
	unread       string // why its table could not be read; "" unless tableOwed
}

// tableState is how it stands with a peer's entries from the time when it, or
// this daemon, was away.
//
//	owed ──it answers──▶ reading ──all read──▶ here ──it does not answer──▶ owed
//	  ▲──────────────failed, or away again──────│
type tableState uint8

const (
	tableOwed    tableState = iota // its table is to be read
	tableReading                   // it is being read
	tableHere                      // nothing is missing
)

// reach replaces the client. If the old one could not reach the peer, the new
// one tries at once.
func (p *sharePeer) reach(client fairleadv1connect.FairleadClient) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = client
	if p.down == "" {
		return
	}
	p.retry()
	if p.hangUp != nil {
		p.hangUp()
	}
}

// retry ends the pause before the next call.
func (p *sharePeer) retry() {
	daemon.Poke(p.back)
}

func (p *sharePeer) dialled() fairleadv1connect.FairleadClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

// share is one call.
func (p *sharePeer) share(ctx context.Context, batch []lb.FlowRecord) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	p.mu.Lock()
	p.hangUp = cancel
	client := p.client
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.hangUp = nil
		p.mu.Unlock()
	}()
	req := &fairleadv1.ShareFlowsRequest{Key: make([]uint64, len(batch)), Meta: make([]uint32, len(batch))}
	for i, r := range batch {
		req.Key[i], req.Meta[i] = r.Key, flowMeta(r)
	}
	if _, err := client.ShareFlows(ctx, connect.NewRequest(req)); err != nil {
		return err
	}
	p.mu.Lock()
	p.sent += uint64(len(batch))
	p.mu.Unlock()
	return nil
}

func (p *sharePeer) wantPull() {
	daemon.Poke(p.pull)
}
