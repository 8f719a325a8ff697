package member

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/tables/effective"
)

// fakeRows is bucket tables in memory: rows by VIP, ascending.
type fakeRows struct {
	rows    map[uint32][]effective.BucketRow
	learned map[uint32][]effective.BucketRow
}

func (f *fakeRows) VIPs() (ids []uint32) {
	for id := range f.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (f *fakeRows) Rows(vip uint32, first, max int) (page []effective.BucketRow, generation uint32, size, next int) {
	if _, ok := f.rows[vip]; !ok {
		return nil, 0, 0, 0
	}
	for _, r := range f.rows[vip] {
		if int(r.Bucket) < first {
			continue
		}
		if len(page) == max {
			return page, 7, 1000, int(r.Bucket)
		}
		page = append(page, r)
	}
	return page, 7, 1000, 0
}

func (f *fakeRows) Learn(vip uint32, rows []effective.BucketRow) {
	if f.learned == nil {
		f.learned = map[uint32][]effective.BucketRow{}
	}
	f.learned[vip] = append(f.learned[vip], rows...)
}

func (f *fakeRows) EndAfter(time.Time) {}

// rowsClient is a peer's API over its tables, with small pages.
type rowsClient struct {
	fairleadv1connect.FairleadClient
	tables Chains
	page   int
	spoil  func(*fairleadv1.GetChainsResponse)
	asked  atomic.Int32
}

func (c *rowsClient) GetChains(_ context.Context, r *connect.Request[fairleadv1.GetChainsRequest]) (*connect.Response[fairleadv1.GetChainsResponse], error) {
	if c.asked.Add(1) > 10_000 {
		return nil, errors.New("asked without end")
	}
	resp := chainsPage(c.tables, r.Msg, c.page)
	if c.spoil != nil {
		c.spoil(resp)
	}
	return connect.NewResponse(resp), nil
}

func newLearner(tables Chains, peers ...*Peer) *learner {
	m := &Member{Daemon: &daemon.Daemon{Log: slog.New(slog.DiscardHandler), Name: "lb1"}, role: Role{Is: config.RoleBalancer}}
	m.peers.peers = peers
	return &learner{m: m, chains: tables}
}

// Whatever a peer has arrives, in pages of any size, and nothing else.
func TestChainsPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := &fakeRows{rows: map[uint32][]effective.BucketRow{}}
		for _, id := range rapid.SliceOfDistinct(rapid.Uint32Range(1, 2000), rapid.ID).Draw(t, "vips") {
			numbers := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 999), 0, 12, rapid.ID).Draw(t, "buckets")
			slices.Sort(numbers)
			from.rows[id] = []effective.BucketRow{}
			for _, b := range numbers {
				slot := rapid.Uint16()
				from.rows[id] = append(from.rows[id], effective.BucketRow{Bucket: b, Row: buckets.Row{Current: slot.Draw(t, "current"),
					Previous: [buckets.Chain]uint16{slot.Draw(t, "first"), slot.Draw(t, "second"), slot.Draw(t, "third")}, Since: rapid.Uint32().Draw(t, "since")}})
			}
		}
		to := &fakeRows{rows: map[uint32][]effective.BucketRow{1: nil}}
		for id := range from.rows {
			if rapid.Bool().Draw(t, "known") {
				to.rows[id] = nil
			}
		}
		client := &rowsClient{tables: from, page: rapid.IntRange(1, 20).Draw(t, "page")}
		l := newLearner(to, &Peer{Name: "lb2", Role: config.RoleBalancer, Client: client}, &Peer{Name: "s1", Role: config.RoleHost, Client: &rowsClient{}})
		l.round(context.Background())
		for id, rows := range from.rows {
			if _, known := to.rows[id]; !known {
				rows = nil
			}
			if !slices.Equal(to.learned[id], rows) {
				t.Fatalf("of VIP %d: %v, the peer has %v", id, to.learned[id], rows)
			}
		}
		if !l.asked() || l.errors["lb2"] != "" {
			t.Fatalf("asked %t, %q", l.asked(), l.errors["lb2"])
		}
	})
}

// A peer may answer anything: what cannot be is not learned, and ends.
func TestChainsOfBadPeer(t *testing.T) {
	rows := func() *fakeRows {
		return &fakeRows{rows: map[uint32][]effective.BucketRow{3: {{Bucket: 1}, {Bucket: 5}, {Bucket: 9}}, 4: {{Bucket: 2}}}}
	}
	for want, spoil := range map[string]func(*fairleadv1.GetChainsResponse){
		"not in order":       func(r *fairleadv1.GetChainsResponse) { slices.Reverse(r.Bucket) },
		"beyond the 9 that":  func(r *fairleadv1.GetChainsResponse) { r.Buckets = 9 },
		"2 rows of servers":  func(r *fairleadv1.GetChainsResponse) { r.Servers = r.Servers[:2] },
		"2 times":            func(r *fairleadv1.GetChainsResponse) { r.Since = r.Since[:2] },
		"its pages go round": func(r *fairleadv1.GetChainsResponse) { r.NextVipId, r.NextBucket = 3, 1 },
	} {
		to := &fakeRows{rows: map[uint32][]effective.BucketRow{3: nil}}
		l := newLearner(to, &Peer{Name: "lb2", Role: config.RoleBalancer, Client: &rowsClient{tables: rows(), page: 3, spoil: spoil}})
		l.round(t.Context())
		if got := l.errors["lb2"]; !strings.Contains(got, want) {
			t.Errorf("%q instead of %q", got, want)
		}
	}
	// An older program does not know the call: it is asked, and that is all.
	l := newLearner(rows(), &Peer{Name: "lb2", Role: config.RoleBalancer, Client: failing{}})
	l.round(t.Context())
	if !l.asked() || l.errors["lb2"] != "unknown call" {
		t.Errorf("asked %t, %q", l.asked(), l.errors["lb2"])
	}
}

type failing struct {
	fairleadv1connect.FairleadClient
}

func (failing) GetChains(context.Context, *connect.Request[fairleadv1.GetChainsRequest]) (*connect.Response[fairleadv1.GetChainsResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("unknown call"))
}

// pagesClient answers what next says.
type pagesClient struct {
	fairleadv1connect.FairleadClient
	next func(ctx context.Context, r *fairleadv1.GetChainsRequest) *fairleadv1.GetChainsResponse
}

func (c pagesClient) GetChains(ctx context.Context, r *connect.Request[fairleadv1.GetChainsRequest]) (*connect.Response[fairleadv1.GetChainsResponse], error) {
	return connect.NewResponse(c.next(ctx, r.Msg)), ctx.Err()
}

// A peer whose pages never end, of VIPs or of buckets, keeps nobody from being
// ready for longer than a peer has, nor others from being asked.
func TestChainsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vips := pagesClient{next: func(_ context.Context, r *fairleadv1.GetChainsRequest) *fairleadv1.GetChainsResponse {
			return &fairleadv1.GetChainsResponse{VipId: r.VipId, NextVipId: r.VipId + 1}
		}}
		slow := pagesClient{next: func(ctx context.Context, r *fairleadv1.GetChainsRequest) *fairleadv1.GetChainsResponse {
			time.Sleep(chainsTimeout - time.Millisecond)
			return &fairleadv1.GetChainsResponse{VipId: 3, Buckets: 1000, NextVipId: 3, NextBucket: r.FirstBucket + 1}
		}}
		good := &rowsClient{tables: &fakeRows{rows: map[uint32][]effective.BucketRow{3: nil}}, page: 3}
		l := newLearner(&fakeRows{rows: map[uint32][]effective.BucketRow{3: nil}},
			&Peer{Name: "lb2", Role: config.RoleBalancer, Client: vips}, &Peer{Name: "lb3", Role: config.RoleBalancer, Client: slow}, &Peer{Name: "lb4", Role: config.RoleBalancer, Client: good})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.run(ctx) }()
		time.Sleep(chainsLimit - time.Second)
		if l.asked() {
			t.Error("ready before a slow peer's time was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		l.mu.Lock()
		errors := maps.Clone(l.errors)
		l.mu.Unlock()
		if !l.asked() || errors["lb2"] != "" || !strings.Contains(errors["lb3"], "still not all") {
			t.Errorf("asked %t, errors %v", l.asked(), errors)
		}
		before := good.asked.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := good.asked.Load() - before; n < 14 {
			t.Errorf("beside a slow peer another one was asked %d times in a minute", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Rows of a table of another size are of another table.
func TestChainsOfOtherTable(t *testing.T) {
	to := &fakeRows{rows: map[uint32][]effective.BucketRow{3: nil}}
	from := &fakeRows{rows: map[uint32][]effective.BucketRow{3: {{Bucket: 1}, {Bucket: 5}}}}
	l := newLearner(to, &Peer{Name: "lb2", Role: config.RoleBalancer, Client: &rowsClient{tables: from, page: 3, spoil: func(r *fairleadv1.GetChainsResponse) { r.Buckets = 2000 }}})
	l.round(t.Context())
	if len(to.learned) != 0 || l.errors["lb2"] != "" {
		t.Errorf("learned %v, error %q", to.learned, l.errors["lb2"])
	}
}
