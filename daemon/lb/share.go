package lb

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/lb"
)

// Balancers tell each other which connections they track, so that one that
// ECMP moves to another balancer is found there too. They are few: that is
// the point of JET. What flows where:
//
//	a packet confirms, ends or renews an entry of a VIP that shares
//	   │ record in the ring buffer `shared`
//	   ▼
//	sharer.tell ─▶ one bounded queue a peer balancer ─▶ sharer.feed: ShareFlows
//	                                                        │
//	          the peer's sharer.receive ─▶ its flow table ◀─┘
//
// What was said while a peer could not be reached is made good by pulling:
// once a peer answers that was away, or when this daemon has just started, it
// reads the peer's table page by page (GetFlows). Entries that arrive are
// written by the data plane's own code and never told further, so nothing
// goes in circles.

// flowTable is the flow table of a balancer's data plane (*lb.LB).
type flowTable interface {
	// Shared hands over what the data plane says about the entries of VIPs
	// that share, until ctx ends. take must not keep the slice.
	Shared(ctx context.Context, take func([]lb.FlowRecord)) error
	// FlowWrite inserts records of a peer; taken is how many found room.
	FlowWrite(records []lb.FlowRecord) (taken int, err error)
	// Flows is one page of the table, from set first on; next is where the
	// following one begins, 0 after the last. sets is the table's size.
	Flows(first uint32) (records []lb.FlowRecord, next, sets uint32, err error)
}

const (
	shareTimeout    = 5 * time.Second
	shareFirstPause = 100 * time.Millisecond
	shareLastPause  = 5 * time.Second
)

// sharer is a balancer's end of the exchange.
type sharer struct {
	log   *slog.Logger
	me    string // this balancer's name
	table flowTable
	// wanted says whether a VIP in force shares: only then is anybody pulled
	// from, or missed.
	wanted   func() bool
	received atomic.Uint64 // records written for peers, or pulled from them
	writing  sync.Mutex    // one peer's records at a time

	mu   sync.Mutex
	to   []*sharePeer // in the configuration's order
	ctx  context.Context
	work *errgroup.Group // nil: not running, or stopping
}

func newSharer(log *slog.Logger, me string, table flowTable, wanted func() bool) *sharer {
	return &sharer{log: log, me: me, table: table, wanted: wanted}
}

// run works until ctx ends or the data plane's records cannot be read.
func (s *sharer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.ctx, s.work = ctx, g
	for _, p := range s.to {
		s.start(p)
	}
	s.mu.Unlock()
	g.Go(func() error { return s.table.Shared(ctx, s.tell) })
	g.Go(func() error {
		<-ctx.Done()
		// Under the lock, so that nothing starts once the group is waited out.
		s.mu.Lock()
		defer s.mu.Unlock()
		s.work = nil
		return nil
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("share tracked entries: %w", err)
	}
	return nil
}

// Follow makes peers the balancers that are told. One that stays is told and
// asked by its new client from the next call on.
func (s *sharer) Follow(peers []*member.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[string]*sharePeer{}
	for _, p := range s.to {
		before[p.name] = p
	}
	s.to = nil
	for _, p := range peers {
		if p.Role != config.RoleBalancer {
			continue
		}
		if was := before[p.Name]; was != nil {
			delete(before, p.Name)
			was.reach(p.Client)
			s.to = append(s.to, was)
			continue
		}
		next := &sharePeer{name: p.Name, client: p.Client, queue: newShareQueue(shareQueueLimit), pull: make(chan struct{}, 1), back: make(chan struct{}, 1)}
		s.to = append(s.to, next)
		s.start(next)
	}
	for _, gone := range before {
		if gone.stop != nil {
			gone.stop()
		}
	}
}

// start sets a peer's work going if the sharer runs. The caller holds mu.
func (s *sharer) start(p *sharePeer) {
	if s.work == nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p.stop = cancel
	s.work.Go(func() error { s.feed(ctx, p); return nil })
	s.work.Go(func() error { s.fetch(ctx, p); return nil })
}

// tell queues records for every peer.
func (s *sharer) tell(records []lb.FlowRecord) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	for _, p := range to {
		p.queue.put(records)
	}
}

// feed sends a peer what is queued for it. A call that fails is repeated,
// less and less often, and meanwhile the queue fills.
func (s *sharer) feed(ctx context.Context, p *sharePeer) {
	batch := make([]lb.FlowRecord, 0, shareBatch)
	pause := shareFirstPause
	for {
		if batch = p.queue.take(ctx, batch); len(batch) == 0 {
			return
		}
		for {
			err := p.share(ctx, batch)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				pause = shareFirstPause
				s.answers(p)
				break
			}
			s.silent(p, err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				pause = min(2*pause, shareLastPause)
			case <-p.back:
				pause = shareFirstPause
			}
			if connect.CodeOf(err) == connect.CodeInvalidArgument {
				// Saying it again would not make it right.
				p.queue.drop(len(batch))
				break
			}
		}
	}
}

// named is a peer balancer; nil: there is none of that name.
func (s *sharer) named(name string) *sharePeer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.to, func(p *sharePeer) bool { return p.name == name }); i >= 0 {
		return s.to[i]
	}
	return nil
}

// isBack notes that a peer is there, so that what waits for it is sent at
// once: a router may be about to use it, or may have to if this balancer dies.
func (s *sharer) isBack(name string) {
	p := s.named(name)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down == "" {
		return
	}
	p.retry()
	if p.table == tableOwed && s.wanted() {
		p.wantPull()
	}
	if p.hangUp != nil { // the call may hang at what the peer was before
		p.hangUp()
	} else if waiting, _ := p.queue.count(); waiting == 0 {
		p.down = "" // there is nothing to try it with
	}
}

// Heard is what a round of asking peers found out about one of them.
func (s *sharer) Heard(name string, err error) {
	p := s.named(name)
	if err == nil {
		s.isBack(name)
	}
	switch {
	case p == nil: // a host
	case err != nil && connect.IsWireError(err): // its own words: it is starting
		p.mu.Lock()
		p.table = tableOwed
		p.mu.Unlock()
	case err != nil:
		s.silent(p, err)
	default:
		p.mu.Lock()
		owed := p.table == tableOwed
		p.mu.Unlock()
		if owed && s.wanted() {
			p.wantPull()
		}
	}
}

// silent notes that a peer does not take or give entries; the first time of
// an outage is said.
func (s *sharer) silent(p *sharePeer, err error) {
	if !s.wanted() {
		return
	}
	p.mu.Lock()
	first := p.down == ""
	p.down, p.table = api.ErrorText(err), tableOwed
	p.mu.Unlock()
	if first {
		s.log.Warn("tracked entries are not shared with a peer; it is tried again", "peer", p.name, "error", err)
	}
}

// answers notes that a peer takes entries. If it was away, it has some that
// are not here.
func (s *sharer) answers(p *sharePeer) {
	p.mu.Lock()
	was := p.down
	p.down = ""
	p.mu.Unlock()
	if was != "" {
		waiting, dropped := p.queue.count()
		s.log.Info("tracked entries are shared with the peer again", "peer", p.name, "queued", waiting, "dropped", dropped)
		p.wantPull()
	}
}

// fetch pulls a peer's table whenever that is owed.
func (s *sharer) fetch(ctx context.Context, p *sharePeer) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pull:
		}
		// What happens from here on is owed anew.
		p.mu.Lock()
		owed := p.table == tableOwed
		if owed {
			p.table = tableReading
		}
		p.mu.Unlock()
		if !owed {
			continue
		}
		n, err := s.readTable(ctx, p)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		first := err != nil && p.unread == "" && p.down == ""
		p.unread = ""
		switch {
		case err != nil:
			// The next round of asking peers tries again.
			p.table, p.unread = tableOwed, api.ErrorText(err)
		case p.table == tableReading: // else it was away meanwhile
			p.table = tableHere
		}
		p.mu.Unlock()
		switch {
		case err == nil:
			s.log.Info("took over a peer's tracked entries", "peer", p.name, "entries", n)
		case first && connect.CodeOf(err) != connect.CodeUnavailable: // else it is starting, or away
			s.log.Warn("a peer's tracked entries could not be read; it is tried again", "peer", p.name, "error", err)
		}
	}
}

// readTable writes a peer's whole table into this balancer's; n is how many
// entries found room.
func (s *sharer) readTable(ctx context.Context, p *sharePeer) (n int, err error) {
	_, _, own, err := s.table.Flows(0)
	if err != nil {
		return 0, fmt.Errorf("read the own flow table: %w", err)
	}
	for first := uint32(0); ; {
		call, cancel := context.WithTimeout(ctx, shareTimeout)
		resp, err := p.dialled().GetFlows(call, connect.NewRequest(&fairleadv1.GetFlowsRequest{FirstBucket: first, From: s.me}))
		cancel()
		if err != nil {
			return n, err
		}
		// A page's keys are rebuilt from where its entries lie.
		if resp.Msg.Buckets != own {
			return n, fmt.Errorf("its flow table has %d sets, this one %d: give both balancers the same limits.flows and restart them", resp.Msg.Buckets, own)
		}
		records, err := flowRecords(resp.Msg.Key, resp.Msg.Meta)
		if err != nil {
			return n, err
		}
		taken, err := s.receive(records)
		n += taken
		if err != nil {
			return n, err
		}
		p.mu.Lock()
		p.pulled += uint64(taken)
		p.mu.Unlock()
		if resp.Msg.NextBucket == 0 {
			return n, nil
		}
		if resp.Msg.NextBucket <= first {
			return n, fmt.Errorf("its page after set %d begins at %d", first, resp.Msg.NextBucket)
		}
		first = resp.Msg.NextBucket
	}
}

// receive writes records of a peer into the flow table; taken is how many
// found room.
func (s *sharer) receive(records []lb.FlowRecord) (taken int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	taken, err = s.table.FlowWrite(records)
	s.received.Add(uint64(taken))
	return taken, err
}

// describe fills in what `fairlead status` shows of it.
func (s *sharer) describe(out *fairleadv1.GetStatusResponse) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	out.Sharing = &fairleadv1.Sharing{Received: s.received.Load()}
	wanted := s.wanted()
	for _, p := range to {
		waiting, dropped := p.queue.count()
		p.mu.Lock()
		peer := &fairleadv1.SharingPeer{Name: p.name, Sent: p.sent, Dropped: dropped, Queued: uint64(waiting), Pulled: p.pulled, Error: p.down, Pending: wanted && p.table != tableHere}
		if p.down == "" && p.unread != "" {
			peer.Error = "its entries could not be read: " + p.unread
		}
		p.mu.Unlock()
		out.Sharing.Peers = append(out.Sharing.Peers, peer)
		if peer.Pending && peer.Error == "" {
			out.NotReady = append(out.NotReady, "the tracked entries of "+p.name+" are being read")
		}
		out.Sharing.Sent += peer.Sent
		if wanted && peer.Error != "" {
			out.Warnings = append(out.Warnings, fmt.Sprintf("tracked entries are not shared with %s (%s): connections that ECMP moves between the two may break while servers change; "+
				"bring it back, or correct what it says", p.name, peer.Error))
		}
	}
}

// shares says whether a VIP of a tells peers what it tracks.
func shares(a *controller.Assignment) bool {
	return slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool { return v.Share })
}

// flowMeta is a record but for its key, as ShareFlows and GetFlows carry it:
// 14 bits of slot, 2 of state.
func flowMeta(r lb.FlowRecord) uint32 {
	return uint32(r.Slot)&0x3fff | uint32(r.State)&3<<14
}

// flowRecords is the reverse for a whole message.
func flowRecords(keys []uint64, meta []uint32) ([]lb.FlowRecord, error) {
	if len(keys) != len(meta) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d keys and %d meta: there must be one of each for every entry", len(keys), len(meta)))
	}
	records := make([]lb.FlowRecord, len(keys))
	for i, m := range meta {
		if m >= 1<<16 {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("meta[%d] is %#x: must be slot | state << 14, below 0x10000", i, m))
		}
		records[i] = lb.FlowRecord{Key: keys[i], Slot: uint16(m & 0x3fff), State: uint8(m >> 14)}
	}
	return records, nil
}
