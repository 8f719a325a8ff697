package member

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/tables/effective"
)

// Balancers, and switches, tell each other what their bucket tables have
// beside the assignment: deputies for servers that are down, and chains that
// go on since a server owns something. Each follows health by itself, so that
// these differ; a packet that the network moves from one to the other must
// find the same servers asked. One that starts learns all of it before it is
// ready.

// Chains are what a daemon with bucket tables has in them.
type Chains interface {
	// VIPs is the ids of VIPs with a table, ascending; a switch has one.
	VIPs() []uint32
	// Rows is a page of at most max rows with a chain, or not as the assignment's
	// table has them, from bucket first on; next is where the next begins, 0: there
	// is none. size is how many buckets there are.
	Rows(vip uint32, first, max int) (rows []effective.BucketRow, generation uint32, size, next int)
	// Learn has the next table ask whom rows of a peer ask, too.
	Learn(vip uint32, rows []effective.BucketRow)
	// EndAfter says from when on a count of connections must have begun to end a
	// chain, as a previous server says that it owns nothing.
	EndAfter(time.Time)
}

const (
	chainsInterval = 2 * time.Second
	chainsTimeout  = 2 * time.Second // of a page
	// chainPage is rows of one answer: 18 bytes each, some more as JSON.
	chainPage = 50_000
	// chainsLimit is a peer's time for all of its pages: 6.4 million rows take
	// some seconds.
	chainsLimit = 30 * time.Second
	// chainPagesPause lets a large table's pages not take all of the time.
	chainPagesPause = 10 * time.Millisecond
)

// learner asks the peers for their chains.
type learner struct {
	m      *Member
	chains Chains

	mu     sync.Mutex
	begun  bool // every peer was asked once
	errors map[string]string
	asking map[string]bool // peers that are telling

	all sync.WaitGroup // of them
}

// asked says that every peer was asked at least once.
func (l *learner) asked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

func (l *learner) run(ctx context.Context) error {
	defer l.all.Wait()
	for {
		l.round(ctx)
		if ctx.Err() != nil || !daemon.Sleep(ctx, chainsInterval) {
			return nil
		}
	}
}

// round asks each peer of this daemon's kind that is not telling still. The
// first waits for all, as long as they have; the others are not asked less
// often for one that is slow.
func (l *learner) round(ctx context.Context) {
	if len(l.chains.VIPs()) > 0 {
		var patience <-chan time.Time
		if l.asked() {
			patience = time.After(chainsInterval)
		}
		peers := l.free()
		done := make(chan struct{}, len(peers))
		for _, p := range peers {
			l.all.Go(func() {
				err := l.ask(ctx, p)
				if ctx.Err() == nil {
					l.note(p, err)
				}
				l.mu.Lock()
				delete(l.asking, p.Name)
				l.mu.Unlock()
				done <- struct{}{}
			})
		}
	wait:
		for range peers {
			select {
			case <-done:
			case <-patience:
				break wait
			}
		}
	}
	if ctx.Err() == nil {
		l.mu.Lock()
		l.begun = true
		l.mu.Unlock()
	}
}

// free is the peers to be asked; they are noted as telling.
func (l *learner) free() (peers []*Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking == nil {
		l.asking = map[string]bool{}
	}
	all := l.m.peers.list()
	maps.DeleteFunc(l.errors, func(name string, _ string) bool { // who has left is forgotten
		return !slices.ContainsFunc(all, func(p *Peer) bool { return p.Name == name })
	})
	for _, p := range all {
		if p.Role == l.m.role.Is && !l.asking[p.Name] {
			l.asking[p.Name] = true
			peers = append(peers, p)
		}
	}
	return peers
}

// note logs what goes wrong with a peer, once.
func (l *learner) note(p *Peer, err error) {
	text := ""
	if err != nil {
		text = api.ErrorText(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errors == nil {
		l.errors = map[string]string{}
	}
	if text != "" && text != l.errors[p.Name] {
		l.m.Log.Warn("a peer does not say which chains it has: packets that the network moves from it may not find their server", "peer", p.Name, "error", text)
	}
	l.errors[p.Name] = text
}

// ask reads a peer's rows, page by page, of the VIPs that are here, too.
func (l *learner) ask(ctx context.Context, p *Peer) error {
	ids := l.chains.VIPs()
	limited, cancel := context.WithTimeout(ctx, chainsLimit)
	defer cancel()
	next := &fairleadv1.GetChainsRequest{}
	for pages := 1; ; pages++ {
		asked, cancel := context.WithTimeout(limited, chainsTimeout)
		resp, err := p.Client.GetChains(asked, connect.NewRequest(next))
		cancel()
		if err == nil {
			next, err = l.take(next, resp.Msg, ids)
		}
		if err == nil && next != nil && !daemon.Sleep(limited, chainPagesPause) {
			err = limited.Err()
		}
		switch {
		case err != nil && limited.Err() != nil:
			return fmt.Errorf("%d pages in %v, and still not all", pages, chainsLimit)
		case err != nil || next == nil:
			return err
		}
	}
}

// take learns a page, the answer to asked; next asks for the next one of a VIP
// that is here, too, nil: there is none.
//
// Rows over another generation of the table are learned like all others: a peer
// that has not got the newer one yet, or has it already, gives its packets to
// the servers that its rows name, and slots keep their numbers.
func (l *learner) take(asked *fairleadv1.GetChainsRequest, r *fairleadv1.GetChainsResponse, ids []uint32) (next *fairleadv1.GetChainsRequest, err error) {
	rows, err := pageRows(r)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		// A VIP that is not here, or was made anew with another table, has nothing
		// to learn.
		if _, _, size, _ := l.chains.Rows(r.VipId, 0, 0); size == int(r.Buckets) {
			l.chains.Learn(r.VipId, rows)
		}
	}
	if r.NextVipId == 0 {
		return nil, nil
	}
	if r.NextVipId < asked.VipId || r.NextVipId == asked.VipId && r.NextBucket <= asked.FirstBucket {
		return nil, fmt.Errorf("its pages go round: bucket %d of VIP %d comes after %d of %d", r.NextBucket, r.NextVipId, asked.FirstBucket, asked.VipId)
	}
	i, here := slices.BinarySearch(ids, r.NextVipId)
	switch {
	case here:
		return &fairleadv1.GetChainsRequest{VipId: r.NextVipId, FirstBucket: r.NextBucket}, nil
	case i < len(ids):
		return &fairleadv1.GetChainsRequest{VipId: ids[i]}, nil
	}
	return nil, nil
}

// pageRows is the rows of an answer, which may hold anything.
func pageRows(r *fairleadv1.GetChainsResponse) ([]effective.BucketRow, error) {
	if len(r.Servers) != len(r.Bucket) || len(r.Since) != len(r.Bucket) {
		return nil, fmt.Errorf("%d buckets, %d rows of servers and %d times", len(r.Bucket), len(r.Servers), len(r.Since))
	}
	rows := make([]effective.BucketRow, len(r.Bucket))
	for i, b := range r.Bucket {
		if b >= r.Buckets || i > 0 && b <= r.Bucket[i-1] {
			return nil, fmt.Errorf("bucket %d: not in order, or beyond the %d that there are", b, r.Buckets)
		}
		s := r.Servers[i]
		rows[i] = effective.BucketRow{Bucket: b, Row: buckets.Row{
			Current: uint16(s), Previous: [buckets.Chain]uint16{uint16(s >> 16), uint16(s >> 32), uint16(s >> 48)}, Since: r.Since[i]}}
	}
	return rows, nil
}

// rowServers is a row's servers for the API.
func rowServers(r buckets.Row) uint64 {
	return uint64(r.Current) | uint64(r.Previous[0])<<16 | uint64(r.Previous[1])<<32 | uint64(r.Previous[2])<<48
}

// chainsPage answers GetChains.
func chainsPage(t Chains, req *fairleadv1.GetChainsRequest, max int) *fairleadv1.GetChainsResponse {
	r := &fairleadv1.GetChainsResponse{}
	vips := t.VIPs()
	for i, id := range vips {
		if id < req.VipId {
			continue
		}
		first := 0
		if id == req.VipId {
			first = int(req.FirstBucket)
		}
		rows, generation, size, next := t.Rows(id, first, max)
		r.VipId, r.Generation, r.Buckets = id, generation, uint32(size)
		for _, row := range rows {
			r.Bucket, r.Servers, r.Since = append(r.Bucket, row.Bucket), append(r.Servers, rowServers(row.Row)), append(r.Since, row.Since)
		}
		switch {
		case next > 0:
			r.NextVipId, r.NextBucket = id, uint32(next)
		case i+1 < len(vips):
			r.NextVipId = vips[i+1]
		}
		return r
	}
	return r
}

// GetChains is for balancers and switches.
func (s Service) GetChains(_ context.Context, req *connect.Request[fairleadv1.GetChainsRequest]) (*connect.Response[fairleadv1.GetChainsResponse], error) {
	if s.opened.Chains == nil {
		return nil, s.notA("a balancer or a switch, which have bucket tables")
	}
	return connect.NewResponse(chainsPage(s.opened.Chains, req.Msg, chainPage)), nil
}
