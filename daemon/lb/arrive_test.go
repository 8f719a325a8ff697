package lb

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

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
	own := g.arrive(t.Context(), a, has)
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
	for i, v := range g.arrive(t.Context(), a, has).VIPs {
		if v.Migration != nil {
			t.Errorf("VIP %d (%d): it is not over: %+v", v.ID, i, g.came[v.ID])
		}
	}
	a.VIPs = a.VIPs[2:]
	g.arrive(t.Context(), a, has)
	if len(g.came) != 1 || time.Since(g.came[4].since) < arriving {
		t.Errorf("VIPs that are gone are remembered: %v", g.came)
	}
}
