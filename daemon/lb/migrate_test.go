package lb

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/vip"
)

// hadClient is an agent that names connections.
type hadClient struct {
	fairleadv1connect.FairleadClient
	clients []netip.AddrPort
	half    []netip.AddrPort // half-open
	cut     int
	version uint64
	err     error
}

func (c *hadClient) GetHad(context.Context, *connect.Request[fairleadv1.GetHadRequest]) (*connect.Response[fairleadv1.GetHadResponse], error) {
	octets := func(clients []netip.AddrPort) (out []byte) {
		for _, p := range clients {
			addr := p.Addr().As16()
			out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(out, addr[:]...), p.Port()), 443)
		}
		return out
	}
	out := octets(c.clients)
	return connect.NewResponse(&fairleadv1.GetHadResponse{Connections: out[:len(out)-c.cut], HalfOpen: octets(c.half), AssignmentVersion: c.version}), c.err
}

// fakeEntries is a flow table with room for so many.
type fakeEntries struct {
	mu   sync.Mutex
	room int
	has  map[uint64]int
	new  map[uint64]bool // gives way
}

func (f *fakeEntries) FlowWrite(records []lb.FlowRecord) (taken int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range records {
		was, there := f.has[r.Key]
		if there && was != int(r.Slot) && !f.new[r.Key] || !there && len(f.has) == f.room {
			continue
		}
		f.has[r.Key], f.new[r.Key] = int(r.Slot), r.State == lb.FlowNew
		taken++
	}
	return taken, nil
}

func (f *fakeEntries) FlowSlot(key uint64) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot, ok := f.has[key]
	return slot, ok, nil
}

func (f *fakeEntries) FlowSweep(context.Context) (lb.FlowStats, error) {
	return lb.FlowStats{Used: uint64(len(f.has)), Limit: uint64(f.room)}, nil
}

// TestCollect: what all servers name is entered under the key by which packets look it up,
// and what is missing is said, with the remedy, until it is there.
func TestCollect(t *testing.T) {
	four, six := netip.MustParseAddrPort("203.0.113.7:4711"), netip.MustParseAddrPort("[2001:db8::7]:4712")
	agents := map[string]*hadClient{"a": {clients: []netip.AddrPort{four, six}, version: 5}, "b": {clients: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.8:1")}, version: 5}}
	table := &fakeEntries{room: 10, has: map[uint64]int{}, new: map[uint64]bool{}}
	g := newMigrator(slog.New(slog.DiscardHandler), config.TLS{}, table)
	g.dial = func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
		return agents[endpoint], nil
	}
	a := &controller.Assignment{Version: 5, HashKey: hash.Key{1, 2}, VIPs: []controller.VIP{{ID: 3,
		Settings:  vip.Settings{Name: "web", Address: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: vip.TCP, Scheme: vip.Cheetah, CookieBits: 12, Affinity: vip.Connection},
		Migration: &controller.Migration{From: vip.Settings{Scheme: vip.JET, Protocol: vip.TCP}, Stage: controller.StageCollect, Version: 5},
		Slots: []controller.Slot{{Number: 0, Server: "s0", API: "a", State: controller.Active}, {Number: 4, Server: "s1", API: "b", State: controller.Draining},
			{Number: 5, Server: "s0", API: "a", State: controller.Resting}}}}}
	v := &a.VIPs[0]
	fails := func(want string) {
		t.Helper()
		g.follow(a)
		err := g.collect(t.Context(), a, g.owes)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, must say %q", err, want)
		}
		if why := g.lacks(a); len(why) != 1 || !strings.Contains(why[0], want) {
			t.Errorf("status says %q, must say %q", why, want)
		}
	}
	agents["b"].err = connect.NewError(connect.CodeUnavailable, errors.New("gone"))
	fails("s1: gone")
	agents["b"].err, agents["b"].version = nil, 4
	fails("s1: it has version 4 still")
	agents["b"].version, agents["b"].cut = 5, 1
	fails("no multiple of 20")
	// A version waits for what is lacking at collect alone; later run asks.
	if !g.waits(v) {
		t.Error("packets may go by a version that relies on what is not known")
	}
	v.Migration.Stage = controller.StageBoth
	if g.waits(v) || !g.owes(v) {
		t.Error("each change waits for an agent that is gone, or it is not asked again")
	}
	v.Migration.Stage = controller.StageCollect
	agents["b"].cut, table.room = 0, 2
	fails("limits.flows: 2: 1 of 3 connections find no room beside 2")
	table.room = 10
	if err := g.collect(t.Context(), a, g.owes); err != nil || len(g.lacks(a)) > 0 {
		t.Fatal(err, g.lacks(a))
	}
	// Who was less patient takes away nothing.
	agents["b"].err = connect.NewError(connect.CodeDeadlineExceeded, errors.New("slow"))
	if err := g.collect(t.Context(), a, func(*controller.VIP) bool { return true }); err == nil || len(g.lacks(a)) > 0 {
		t.Error(err, g.lacks(a))
	}
	agents["b"].err = nil
	for _, want := range []struct {
		client netip.AddrPort
		slot   int
	}{{four, 0}, {six, 0}, {agents["b"].clients[0], 4}} {
		key := jet.Key(3, hash.Flow(a.HashKey, want.client, 443, true), want.client.Port(), 443)
		if slot, ok := table.has[key]; !ok || slot != want.slot {
			t.Errorf("%v: slot %d, %v; must be %d", want.client, slot, ok, want.slot)
		}
	}
	// A SYN and its repetition came to two servers: the one that the client did not answer
	// has it half-open still.
	agents["a"].half, agents["b"].half = agents["b"].clients, []netip.AddrPort{four, netip.MustParseAddrPort("203.0.113.9:9")}
	clear(g.done)
	clear(table.has)
	if err := g.collect(t.Context(), a, g.owes); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		client netip.AddrPort
		slot   int
	}{{four, 0}, {six, 0}, {agents["b"].clients[0], 4}, {agents["b"].half[1], 4}} {
		key := jet.Key(3, hash.Flow(a.HashKey, want.client, 443, true), want.client.Port(), 443)
		if slot, ok := table.has[key]; !ok || slot != want.slot {
			t.Errorf("half-open elsewhere: %v: slot %d, %v; must be %d", want.client, slot, ok, want.slot)
		}
	}
	agents["a"].half, agents["b"].half = nil, nil
	clear(g.done)
	if err := g.collect(t.Context(), a, g.owes); err != nil {
		t.Fatal(err)
	}
	out := &fairleadv1.VIP{Id: 3, Migration: &fairleadv1.Migration{}}
	if g.describe(out); out.Migration.Entered != 3 || out.Migration.Lacking != "" {
		t.Errorf("%+v", out.Migration)
	}
	// Nobody is asked again soon, but for another migration; where it was opened under
	// another scheme at another server, that is no reason to wait.
	agents["a"].clients = nil
	if g.owes(v) {
		t.Error("it is owed once more")
	}
	v.Migration = &controller.Migration{From: v.Migration.From, Stage: controller.StageBoth, Version: 9}
	if !g.owes(v) || !g.waits(v) {
		t.Error("another migration is not asked for")
	}
	agents["b"].clients, agents["b"].version, agents["a"].version = []netip.AddrPort{four}, 9, 9
	if err := g.collect(t.Context(), a, g.owes); err != nil {
		t.Error(err)
	}
}
