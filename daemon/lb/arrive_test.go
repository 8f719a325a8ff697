package lb

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// TestArrive: of a VIP that is new what servers have is entered before packets go by it, and
// with cookies entries go first until none of it is left; of one that was there, nothing is.
func TestArrive(t *testing.T) {
	agent := &hadClient{clients: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:1"), netip.MustParseAddrPort("203.0.113.7:2")}}
	table := &fakeEntries{room: 10, has: map[uint64]int{}, new: map[uint64]bool{}}
	g := newMigrator(slog.New(slog.DiscardHandler), config.TLS{}, table)
	g.dial = func(string, config.TLS) (fairleadv1connect.FairleadClient, error) { return agent, nil }
	of := func(id uint32, scheme vip.Scheme, version uint64) controller.VIP {
		v := controller.VIP{ID: id, Settings: vip.Settings{Name: "web", Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(id)}), Port: 443, Protocol: vip.TCP, Scheme: scheme},
			Slots: []controller.Slot{{Number: 1, Server: "s", API: "a", State: controller.Joining, Version: version}}}
		if scheme == vip.Cheetah {
			v.CookieBits = 12
		}
		return v
	}
	a := &controller.Assignment{Version: 7, VIPs: []controller.VIP{of(1, vip.Cheetah, 7), of(2, vip.JET, 7), of(3, vip.Cheetah, 6), of(4, vip.Cheetah, 3)}}
	here, first := map[uint32]bool{4: true}, map[uint32]bool{4: true} // as a process before left it
	has := func(id uint32) (bool, bool) { return here[id], first[id] }
	own := g.arrive(t.Context(), a, false, has)
	if len(table.has) != 4 {
		t.Errorf("%d entries, must be two of VIP 1 and two of VIP 2", len(table.has))
	}
	for i, want := range []bool{true, false, false, true} {
		v := own.VIPs[i].AtBalancers()
		if v.EntriesFirst() != want || v.Scheme != a.VIPs[i].Scheme || a.VIPs[i].Migration != nil {
			t.Errorf("VIP %d: entries go first: %v, must be %v", v.ID, v.EntriesFirst(), want)
		}
	}
	out := &fairleadv1.VIP{Id: 1}
	if g.describe(out); out.Migration.GetEntered() != 2 || out.Migration.GetStage() != stageCame {
		t.Errorf("status says %v", out.Migration)
	}
	// What is opened beside the balancers is heard of, for a minute.
	agent.clients = append(agent.clients, netip.MustParseAddrPort("203.0.113.7:3"))
	if g.round(t.Context(), a) || len(table.has) != 9 {
		t.Errorf("%d entries a moment later, must be 9", len(table.has))
	}
	agent.clients = nil
	for _, at := range g.came {
		if !at.left {
			t.Error("it is over at once")
		}
		at.since, at.looked = at.since.Add(-2*arriving), time.Time{}
	}
	if !g.round(t.Context(), a) || g.came[1].left || !g.came[2].left {
		t.Error("entries go first still, or one without cookies is asked for ever")
	}
	here[1], first[1], first[4] = true, true, false
	for i, v := range g.arrive(t.Context(), a, true, has).VIPs {
		if v.Migration != nil {
			t.Errorf("VIP %d (%d): it is not over: %+v", v.ID, i, g.came[v.ID])
		}
	}
	// One whose migration is over now had entries first, and did not come.
	here[3], first[3] = true, true
	if own := g.arrive(t.Context(), a, true, has); own.VIPs[2].Migration != nil || g.came[3] != nil {
		t.Error("a migration that is over goes on")
	}
	a.VIPs = a.VIPs[2:]
	g.arrive(t.Context(), a, true, has)
	if len(g.came) != 1 || time.Since(g.came[4].since) < arriving {
		t.Errorf("VIPs that are gone are remembered: %v", g.came)
	}
}

// TestArriveWithSilent: agents that hang hold new VIPs up once, not one after the other, and
// what the others name is entered all the same.
func TestArriveWithSilent(t *testing.T) {
	const vips = 3
	var asked sync.WaitGroup
	asked.Add(vips)
	agents := map[string]fairleadv1connect.FairleadClient{
		"a": &hadClient{clients: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:1")}},
		"b": hangs{asked: &asked},
	}
	table := &fakeEntries{room: 10, has: map[uint64]int{}, new: map[uint64]bool{}}
	g := newMigrator(slog.New(slog.DiscardHandler), config.TLS{}, table)
	g.dial = func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
		return agents[endpoint], nil
	}
	a := &controller.Assignment{Version: 2}
	for id := range uint32(vips) {
		a.VIPs = append(a.VIPs, controller.VIP{ID: id + 1, Settings: vip.Settings{Port: 443, Protocol: vip.TCP, Scheme: vip.JET},
			Slots: []controller.Slot{{Number: 0, Server: "s0", API: "a", Version: 2}, {Number: 1, Server: "s1", API: "b", Version: 2}}})
	}
	g.arrive(t.Context(), a, true, func(uint32) (bool, bool) { return false, false })
	if len(table.has) != vips {
		t.Errorf("%d entries, must be %d", len(table.has), vips)
	}
	for id, at := range g.came {
		if !at.left || at.entered != 1 {
			t.Errorf("VIP %d: %+v", id, at)
		}
	}
}

// hangs is an agent that answers, with an error, when all have asked it.
type hangs struct {
	fairleadv1connect.FairleadClient
	asked *sync.WaitGroup
}

func (h hangs) GetHad(ctx context.Context, _ *connect.Request[fairleadv1.GetHadRequest]) (*connect.Response[fairleadv1.GetHadResponse], error) {
	all := make(chan struct{})
	h.asked.Done()
	go func() { h.asked.Wait(); close(all) }()
	select {
	case <-all:
		return nil, errors.New("it hung")
	case <-ctx.Done():
		panic("VIPs wait for each other")
	}
}
