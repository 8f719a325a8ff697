package lb

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/soak"
)

// fakeFlows is a flow table in memory. Its pages have the records of one
// set, which is the key modulo the number of sets.
type fakeFlows struct {
	ring chan []lb.FlowRecord // what its data plane says

	mu      sync.Mutex
	sets    uint32
	entries map[uint64]lb.FlowRecord
}

func newFakeFlows() *fakeFlows {
	return &fakeFlows{ring: make(chan []lb.FlowRecord), sets: 16, entries: map[uint64]lb.FlowRecord{}}
}

func (f *fakeFlows) Shared(ctx context.Context, take func([]lb.FlowRecord)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-f.ring:
			take(r)
		}
	}
}

func (f *fakeFlows) FlowWrite(records []lb.FlowRecord) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range records {
		f.entries[r.Key] = r
	}
	return len(records), nil
}

func (f *fakeFlows) Flows(first uint32) (records []lb.FlowRecord, next, sets uint32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, r := range f.entries {
		if k%uint64(f.sets) == uint64(first) {
			records = append(records, r)
		}
	}
	return records, (first + 1) % f.sets, f.sets, nil
}

// track is what a packet does: an entry of its own, and a record of it.
func (f *fakeFlows) track(records ...lb.FlowRecord) {
	f.mu.Lock()
	for _, r := range records {
		f.entries[r.Key] = r
	}
	f.mu.Unlock()
	f.ring <- records
}

func (f *fakeFlows) has(records ...lb.FlowRecord) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range records {
		if e, ok := f.entries[r.Key]; !ok || e.Slot != r.Slot || e.State != r.State {
			return false
		}
	}
	return true
}

// randomFlows are records of n connections.
func randomFlows(t *testing.T, n int) []lb.FlowRecord {
	t.Helper()
	r := soak.Rand(t)
	out := make([]lb.FlowRecord, n)
	for i := range out {
		out[i] = lb.FlowRecord{Key: r.Uint64(), Slot: uint16(r.IntN(1 << 14)), State: uint8(r.IntN(4))}
	}
	return out
}

// withFlows is a deployment whose balancers have flow tables, and start by it.
type withFlows struct {
	*membertest.Deployment
	tables map[string]*fakeFlows
}

func newWithFlows(t *testing.T) (d withFlows, one, two *fakeFlows) {
	t.Helper()
	one, two = newFakeFlows(), newFakeFlows()
	return withFlows{membertest.New(t), map[string]*fakeFlows{"lb1": one, "lb2": two}}, one, two
}

// sharingPlane is a balancer's that has a flow table alone.
type sharingPlane struct {
	*membertest.Plane
	share *sharer
}

func (p sharingPlane) Run(ctx context.Context) error { return p.share.run(ctx) }

func (p sharingPlane) Describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	err := p.Plane.Describe(a, s)
	p.share.describe(s)
	return err
}

func (d withFlows) start(name string) {
	d.T.Helper()
	b := new(balancer)
	d.StartRole(role(b, func(m *member.Member) (member.Opened, error) {
		b.m = m
		b.checks = health.NewChecker(health.Network{}, func(health.Target, health.Report) {})
		b.share = newSharer(m.Log, m.Name, d.tables[name], func() bool { return shares(m.Assignment()) })
		o := d.Plane(name).Opened()
		o.Plane, o.Peers, o.Starting = sharingPlane{d.Plane(name), b.share}, b.share, b.starting
		return o, nil
	}), name)
}

func sharing(s *fairleadv1.GetStatusResponse, peer string) *fairleadv1.SharingPeer {
	i := slices.IndexFunc(s.Sharing.GetPeers(), func(p *fairleadv1.SharingPeer) bool { return p.Name == peer })
	if i < 0 {
		return &fairleadv1.SharingPeer{}
	}
	return s.Sharing.Peers[i]
}

// Two balancers tell each other what they track, over real sockets; one that
// was away gets what it missed, and is warned of meanwhile.
func TestShareBetweenBalancers(t *testing.T) {
	d, one, two := newWithFlows(t)
	d.start("lb1")
	d.start("lb2")

	flows := randomFlows(t, 3500) // four calls
	one.track(flows[:3000]...)
	d.Eventually("lb2 has what lb1 tracks", func() bool { return two.has(flows[:3000]...) })
	two.track(flows[3000:]...)
	d.Eventually("lb1 has what lb2 tracks", func() bool { return one.has(flows...) })
	// What came from a peer is not told again.
	for name, sent := range map[string]uint64{"lb1": 3000, "lb2": 500} {
		other := map[string]string{"lb1": "lb2", "lb2": "lb1"}[name]
		if s := d.Status(name); s.Sharing.Sent != sent || sharing(s, other).Sent != sent || sharing(s, other).Dropped != 0 {
			t.Errorf("%s: %v, want %d sent", name, s.Sharing, sent)
		}
	}

	// lb2 is away; what happens meanwhile reaches it when it is back.
	d.Stops["lb2"]()
	missed := randomFlows(t, 10)
	one.track(missed...)
	warned := func() bool {
		return strings.Contains(strings.Join(d.Status("lb1").Warnings, "\n"), "tracked entries are not shared with lb2")
	}
	d.Eventually("lb1 warns", warned)
	if two.has(missed[0]) {
		t.Error("lb2 has an entry while it is down")
	}
	// Its data plane went on without it.
	alone := randomFlows(t, 10)
	for _, r := range alone {
		two.FlowWrite([]lb.FlowRecord{r})
	}
	d.start("lb2")
	d.Eventually("lb2 has what it missed", func() bool { return two.has(missed...) })
	d.Eventually("lb1 has what lb2 tracked alone", func() bool { return one.has(alone...) })
	d.Eventually("lb1 warns no more", func() bool { return !warned() })
	if s := d.Status("lb1"); sharing(s, "lb2").Pulled == 0 || sharing(s, "lb2").Error != "" {
		t.Errorf("lb1 after the outage: %v", s.Sharing)
	}
}

// A flood while a peer is away takes a bounded queue; what does not fit is
// counted, and the newest are told when it is back.
func TestShareFlood(t *testing.T) {
	d, one, two := newWithFlows(t)
	d.start("lb1")
	flood := randomFlows(t, 2*shareQueueLimit)
	for part := range slices.Chunk(flood, 5000) {
		one.ring <- part // not in lb1's table: only the queue can tell it
	}
	d.Eventually("lb1 counts what it drops", func() bool {
		p := sharing(d.Status("lb1"), "lb2")
		// One batch is in hand.
		return p.Dropped+p.Queued <= uint64(len(flood)) && p.Dropped+p.Queued+shareBatch >= uint64(len(flood)) && p.Queued <= shareQueueLimit
	})
	d.start("lb2")
	d.Eventually("the newest arrive", func() bool { return two.has(flood[len(flood)-shareQueueLimit:]...) })
	d.Eventually("every record is accounted for", func() bool {
		p := sharing(d.Status("lb1"), "lb2")
		return p.Sent+p.Dropped == uint64(len(flood)) && p.Queued == 0
	})
	if two.has(flood[shareBatch]) {
		t.Error("a record arrived that was dropped")
	}
}

// A new balancer takes over what its peers track before any of them says
// something.
func TestShareAtStart(t *testing.T) {
	d, one, two := newWithFlows(t)
	flows := randomFlows(t, 200)
	one.FlowWrite(flows)
	d.start("lb1")
	d.start("lb2")
	d.Eventually("lb2 has lb1's entries", func() bool { return two.has(flows...) })
	d.Eventually("lb2 says so", func() bool {
		p := sharing(d.Status("lb2"), "lb1")
		return p.Pulled == 200 && !p.Pending
	})
	// The one without a living peer waits for nobody.
	d.Eventually("both are ready", func() bool { return len(d.Status("lb1").NotReady)+len(d.Status("lb2").NotReady) == 0 })
}

// refusing is a peer of which every call fails while err is set.
type refusing struct {
	fairleadv1connect.FairleadClient
	err error
}

func (r *refusing) ShareFlows(context.Context, *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	return connect.NewResponse(new(fairleadv1.ShareFlowsResponse)), r.err
}

func (r *refusing) GetFlows(context.Context, *connect.Request[fairleadv1.GetFlowsRequest]) (*connect.Response[fairleadv1.GetFlowsResponse], error) {
	return connect.NewResponse(&fairleadv1.GetFlowsResponse{Buckets: 16}), r.err
}

// A peer that reads the table is told at once what waits for it, however long
// the pause of the one that tells has become.
func TestShareBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &member.Peer{Name: "lb2", Role: config.RoleBalancer, Client: &refusing{err: errors.New("connection refused")}}
		s := newSharer(slog.New(slog.DiscardHandler), "lb1", newFakeFlows(), func() bool { return true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.Follow([]*member.Peer{p})
		go s.run(ctx)
		synctest.Wait()
		s.tell(randomFlows(t, 1))
		time.Sleep(time.Minute) // the pause is at its longest
		synctest.Wait()
		p.Client.(*refusing).err = nil
		began := time.Now()
		s.isBack("lb2")
		synctest.Wait()
		if to := s.named("lb2"); to.down != "" || to.sent != 1 || time.Since(began) != 0 {
			t.Errorf("%d sent, %q, after %v", to.sent, to.down, time.Since(began))
		}
	})
}

// reloading is a peer of which calls hang until it is let go, and that keeps
// what it was told.
type reloading struct {
	fairleadv1connect.FairleadClient
	free  chan struct{}
	calls atomic.Int32 // under way
	most  *atomic.Int32

	mu   sync.Mutex
	told []uint64
}

func (r *reloading) ShareFlows(ctx context.Context, q *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	r.most.Store(max(r.most.Load(), r.calls.Add(1)))
	defer r.calls.Add(-1)
	select {
	case <-r.free:
	case <-ctx.Done():
		time.Sleep(shareDelay) // hanging up takes a while
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, q.Msg.Key...)
	return connect.NewResponse(new(fairleadv1.ShareFlowsResponse)), nil
}

// A reload while a peer is being told changes nothing of it: of two records
// about a connection the later one arrives last, none is lost and none told
// twice.
func TestShareReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int32
		free := make(chan struct{})
		client := &reloading{free: free, most: &most}
		s := newSharer(slog.New(slog.DiscardHandler), "lb1", newFakeFlows(), func() bool { return true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		follow := func() { s.Follow([]*member.Peer{{Name: "lb2", Role: config.RoleBalancer, Client: client}}) }
		follow()
		go s.run(ctx)
		synctest.Wait()
		flows := randomFlows(t, 2*shareBatch)
		s.tell(flows[:10])
		time.Sleep(2 * shareDelay)
		synctest.Wait() // the call hangs
		was := s.named("lb2")
		follow()
		s.tell(flows[10:])
		time.Sleep(2 * shareDelay)
		follow()
		synctest.Wait()
		if most.Load() != 1 || s.named("lb2") != was {
			t.Errorf("%d calls at the same time, the peer itself the same: %t", most.Load(), s.named("lb2") == was)
		}
		close(free)
		time.Sleep(time.Second)
		synctest.Wait()
		for i, r := range flows {
			if i >= len(client.told) || client.told[i] != r.Key {
				t.Fatalf("record %d of %d was not told in its turn", i, len(client.told))
			}
		}
		if was.sent != uint64(len(flows)) || was.down != "" || len(client.told) != len(flows) {
			t.Errorf("%d told, %d counted, of %d; %q", len(client.told), was.sent, len(flows), was.down)
		}
		// Who leaves the file is told no more.
		s.Follow(nil)
		s.tell(flows[:1])
		time.Sleep(time.Second)
		if synctest.Wait(); len(client.told) != len(flows) {
			t.Error("a peer that left was told")
		}
	})
}

// Tables of different size cannot be read page by page: it is said, with the
// remedy, and records go on.
func TestShareOtherSize(t *testing.T) {
	d, one, two := newWithFlows(t)
	two.sets = 32
	flows := randomFlows(t, 100)
	one.FlowWrite(flows[:50])
	d.start("lb1")
	d.start("lb2")
	d.Eventually("lb2 says what is wrong", func() bool {
		return strings.Contains(strings.Join(d.Status("lb2").Warnings, "\n"), "16 sets, this one 32: give both balancers the same limits.flows")
	})
	one.track(flows[50:]...)
	d.Eventually("lb2 has the records", func() bool { return two.has(flows[50:]...) })
	if two.has(flows[0]) {
		t.Error("a page of another size was written")
	}
}

// A host tracks nothing, and nobody may send what is no record.
func TestShareRefused(t *testing.T) {
	d, one, _ := newWithFlows(t)
	d.start("lb1")
	d.Start(config.RoleHost, "s1")
	share := func(name string, keys []uint64, meta []uint32) error {
		c, err := api.Dial(d.Endpoint(name), d.Config.TLS)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ShareFlows(t.Context(), connect.NewRequest(&fairleadv1.ShareFlowsRequest{Key: keys, Meta: meta}))
		return err
	}
	for _, c := range []struct {
		what string
		at   string
		keys []uint64
		meta []uint32
		want connect.Code
		text string
	}{
		{"to a host", "s1", []uint64{1}, []uint32{1}, connect.CodeUnimplemented, "s1 is a host's agent"},
		{"a key without meta", "lb1", []uint64{1, 2}, []uint32{1}, connect.CodeInvalidArgument, "2 keys and 1 meta"},
		{"meta of more than 16 bits", "lb1", []uint64{1}, []uint32{1 << 16}, connect.CodeInvalidArgument, "meta[0] is 0x10000"},
		{"too many", "lb1", make([]uint64, 1001), make([]uint32, 1001), connect.CodeInvalidArgument, "1001 records: at most 1000"},
	} {
		err := share(c.at, c.keys, c.meta)
		if connect.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.what, err, c.want, c.text)
		}
	}
	if len(one.entries) != 0 {
		t.Errorf("%d entries written", len(one.entries))
	}
	c, err := api.Dial(d.Endpoint("lb1"), d.Config.TLS)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetFlows(t.Context(), connect.NewRequest(&fairleadv1.GetFlowsRequest{FirstBucket: 16}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a page behind the table: %v", err)
	}
}

// A flood of records stays within its bound: the oldest make way, counted,
// and the rest arrives in order.
func TestShareQueueBounded(t *testing.T) {
	const limit = 1000
	q := newShareQueue(limit)
	flood := randomFlows(t, 10*limit+7)
	for part := range slices.Chunk(flood, 333) {
		q.put(part)
	}
	if n, dropped := q.count(); n != limit || dropped != uint64(len(flood)-limit) {
		t.Fatalf("%d queued, %d dropped of %d", n, dropped, len(flood))
	}
	batch := q.take(t.Context(), make([]lb.FlowRecord, 0, 300))
	if want := flood[len(flood)-limit:][:300]; !slices.Equal(batch, want) {
		t.Error("the oldest that are left do not come first")
	}
	got := slices.Clone(batch)
	for n, _ := q.count(); n > 0; n, _ = q.count() {
		got = append(got, q.take(t.Context(), make([]lb.FlowRecord, 0, 300))...)
	}
	if !slices.Equal(got, flood[len(flood)-limit:]) {
		t.Error("what was left did not come out in order")
	}
	if len(q.ring) > limit {
		t.Errorf("the ring grew to %d", len(q.ring))
	}
}

// A few records wait for others, but not for long.
func TestShareQueueGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShareQueue(100)
		start := time.Now()
		q.put([]lb.FlowRecord{{Key: 0}})
		if batch := q.take(t.Context(), make([]lb.FlowRecord, 0, 10)); len(batch) != 1 || time.Since(start) != 0 {
			t.Errorf("after silence: %d records after %v", len(batch), time.Since(start))
		}
		go func() {
			q.put([]lb.FlowRecord{{Key: 1}})
			time.Sleep(shareDelay / 2)
			q.put([]lb.FlowRecord{{Key: 2}})
		}()
		if batch := q.take(t.Context(), make([]lb.FlowRecord, 0, 10)); len(batch) != 2 || time.Since(start) != shareDelay {
			t.Errorf("%d records after %v", len(batch), time.Since(start))
		}
		q.put(make([]lb.FlowRecord, 10))
		start = time.Now()
		if batch := q.take(t.Context(), make([]lb.FlowRecord, 0, 10)); len(batch) != 10 || time.Since(start) != 0 {
			t.Errorf("a full batch: %d records after %v", len(batch), time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		if batch := q.take(ctx, make([]lb.FlowRecord, 0, 10)); len(batch) != 0 {
			t.Errorf("%d records out of an empty queue", len(batch))
		}
	})
}
