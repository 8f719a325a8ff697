package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

// fakeTables is the data plane as ownerWatch sees it.
type fakeTables struct {
	mu    sync.Mutex
	chain map[uint32][]uint16
	heard []ownedReport
}

type ownedReport struct {
	vip  uint32
	slot uint16
	bits string
	at   time.Time
}

func (f *fakeTables) chained() map[uint32][]uint16 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chain
}

func (f *fakeTables) SetOwned(vip uint32, slot uint16, owned []byte, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, ownedReport{vip, slot, string(owned), at})
}

func (f *fakeTables) take() []ownedReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	heard := f.heard
	f.heard = nil
	return heard
}

// ownerClient is an agent's API.
type ownerClient struct {
	fairleadv1connect.FairleadClient
	mu    sync.Mutex
	asked int
	vips  []*fairleadv1.ServingVIP
	err   error
	// version is of its assignment.
	version uint64
}

func (c *ownerClient) GetServing(_ context.Context, r *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked++; !r.Msg.Owned {
		return nil, errors.New("not asked what it owns")
	}
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: c.vips, AssignmentVersion: c.version}), c.err
}

// Those that the tables name are asked what they own, and only these.
func TestOwnersAreAsked(t *testing.T) {
	clients := map[string]*ownerClient{}
	tables := &fakeTables{}
	wakes := 0
	w := newOwnerWatch(slog.New(slog.DiscardHandler), config.TLS{}, tables, func() { wakes++ })
	w.dial = func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
		if endpoint == "bad" {
			return nil, errors.New("no such scheme")
		}
		clients[endpoint] = &ownerClient{}
		return clients[endpoint], nil
	}
	w.round(t.Context())
	if w.asked() || len(clients) != 0 {
		t.Fatal("asked before there was an assignment")
	}

	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 1}, {Number: 3, Weight: 1}}
	table := buckets.New(20, servers)
	a := &controller.Assignment{Version: 1, VIPs: []controller.VIP{
		{
			ID:       1,
			Settings: vip.Settings{Scheme: vip.Beamer},
			Buckets:  table,
			Slots: []controller.Slot{
				{Number: 0, Server: "s0", API: "s0"}, {Number: 1, Server: "s1", API: "s1"}, {Number: 2, Server: "s2", API: "s2"}, {Number: 3, Server: "s3", API: "bad"},
				{Number: 4, Server: "s1", API: "s1"}},
		}, // it left, and came again
		{
			ID:       2,
			Settings: vip.Settings{Scheme: vip.Faild},
			Buckets:  table,
			Slots:    []controller.Slot{{Number: 0, Server: "s9", API: "s9"}},
		},
	}}
	tables.chain = map[uint32][]uint16{1: {1, 3}}
	w.follow(a, time.Millisecond)
	if clients["s9"] != nil {
		t.Error("a server of scheme faild is a balancer's business")
	}
	clients["s1"].vips = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 4, Buckets: 20, Owned: []byte{8, 0, 0}, AgeMs: 60_000}, {VipId: 2, Buckets: 20, Owned: []byte{1, 1, 1}}}
	before := time.Now()
	w.round(t.Context())
	heard := tables.take()
	if !w.asked() || wakes != 1 || clients["s0"].asked+clients["s2"].asked != 0 || clients["s1"].asked != 1 {
		t.Errorf("first round: asked %t, %d wakes, s0 %d, s1 %d, s2 %d times", w.asked(), wakes, clients["s0"].asked, clients["s1"].asked, clients["s2"].asked)
	}
	if len(heard) != 2 || heard[0].slot != 1 || heard[1].slot != 4 || heard[0].bits != "\x08\x00\x00" || heard[0].vip != 1 {
		t.Fatalf("heard %v", heard)
	}
	if age := before.Sub(heard[0].at); age < 59*time.Second || age > 61*time.Second {
		t.Errorf("a count of a minute ago is said to be of %v ago", age)
	}

	tables.chain = nil
	w.round(t.Context())
	if clients["s1"].asked != 1 {
		t.Error("asked although no chain names it")
	}
	tables.chain = map[uint32][]uint16{1: {0, 2}}
	clients["s0"].err = errors.New("gone")
	clients["s2"].vips = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 2, Buckets: 20, Owned: []byte{0}}} // it lies
	w.next = time.Time{}
	w.round(t.Context())
	if heard := tables.take(); len(heard) != 0 || wakes != 1 || clients["s0"].asked != 1 || clients["s2"].asked != 1 {
		t.Errorf("of a silent and a lying agent: %v, %d wakes", heard, wakes)
	}
	clients["s2"].vips[0].Buckets, clients["s2"].vips[0].Owned = 8, []byte{0xff} // another table
	w.round(t.Context())
	if heard := tables.take(); len(heard) != 0 {
		t.Errorf("of an agent with another table: %v", heard)
	}
	clients["s2"].vips[0].Buckets, clients["s2"].vips[0].Owned = 20, []byte{0, 0, 0}
	w.round(t.Context())
	if heard := tables.take(); len(heard) != 1 || wakes != 2 {
		t.Errorf("heard %v, %d wakes", heard, wakes)
	}

	// A table that takes a second to be taken in is not taken in all the time.
	w.follow(a, time.Second)
	w.round(t.Context())
	w.round(t.Context())
	if wakes > 3 {
		t.Errorf("%d wakes, each of which takes a second", wakes)
	}

	// Another assignment: clients stay, and what chains name is not lost.
	old := clients["s2"]
	b := *a
	b.Version = 2
	w.follow(&b, time.Millisecond)
	if clients["s2"] != old {
		t.Error("dialled again")
	}
}

// The daemon's loop asks at once when there is something new.
func TestOwnersRun(t *testing.T) {
	client := &ownerClient{vips: []*fairleadv1.ServingVIP{{VipId: 1, Buckets: 4, Owned: []byte{0xf}}}}
	tables := &fakeTables{chain: map[uint32][]uint16{1: {0}}}
	woken := make(chan struct{}, 8)
	w := newOwnerWatch(slog.New(slog.DiscardHandler), config.TLS{}, tables, func() { woken <- struct{}{} })
	w.dial = func(string, config.TLS) (fairleadv1connect.FairleadClient, error) { return client, nil }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx) }()
	w.follow(&controller.Assignment{Version: 1, VIPs: []controller.VIP{{
		ID:       1,
		Settings: vip.Settings{Scheme: vip.Beamer},
		Buckets:  buckets.New(4, []buckets.Server{{Number: 0, Weight: 1}}),
		Slots:    []controller.Slot{{Number: 0, Server: "s0", API: "s0"}},
	}}}, 0)
	<-woken
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if heard := tables.take(); len(heard) == 0 || heard[0].bits != "\x0f" {
		t.Errorf("heard %v", heard)
	}
}

// hungClient is the API of an agent whose machine has no power: nothing comes
// back, ever.
type hungClient struct {
	fairleadv1connect.FairleadClient
}

func (hungClient) GetServing(ctx context.Context, _ *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Previous servers that hang take nobody else's time.
func TestHungOwners(t *testing.T) {
	tables := &fakeTables{chain: map[uint32][]uint16{}}
	w := newOwnerWatch(slog.New(slog.DiscardHandler), config.TLS{}, tables, func() {})
	well := &ownerClient{vips: []*fairleadv1.ServingVIP{{VipId: 1, Buckets: 4, Owned: []byte{1}}}}
	w.dial = func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
		if endpoint == "z" {
			return well, nil
		}
		return hungClient{}, nil
	}
	v := controller.VIP{
		ID:       1,
		Settings: vip.Settings{Scheme: vip.Beamer},
		Buckets:  buckets.New(4, []buckets.Server{{Number: 0, Weight: 1}}),
	}
	for i := range ownersAtOnce {
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: fmt.Sprintf("s%03d", i), API: "hung"})
		tables.chain[1] = append(tables.chain[1], uint16(i))
	}
	v.Slots = append(v.Slots, controller.Slot{Number: ownersAtOnce, Server: "z", API: "z"})
	tables.chain[1] = append(tables.chain[1], ownersAtOnce)
	w.follow(&controller.Assignment{Version: 1, VIPs: []controller.VIP{v}}, 0)
	for round := range 2 {
		w.round(t.Context())
		if heard := tables.take(); len(heard) != 1 || heard[0].slot != ownersAtOnce {
			t.Fatalf("round %d: heard %v", round, heard)
		}
	}
	// Whoever answered is asked first from then on.
	w.mu.Lock()
	agents := w.agents
	w.mu.Unlock()
	if first := w.order(agents)[0]; first != "z" {
		t.Errorf("%s is asked first", first)
	}
}
