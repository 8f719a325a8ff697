package lb

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/wire"
)

// A table full of connections that must be tracked refuses more of them, and
// says so; what one packet made gives way.
func TestFlowTableFull(t *testing.T) {
	t.Parallel()
	r := trackingOf(t, "tcp", "table-hrw", 2, 2048)
	r.add(2, controller.Standby)
	r.add(3, controller.Standby)
	r.apply()
	c := r.opens(300) // half of them tracked
	limit := r.sweep().Limit
	if want := uint64((2048 + 6) / 7 * 7); limit != want {
		t.Errorf("limit %d, want %d", limit, want)
	}
	if s := r.l.Status().Limits[3]; s.Name != "flows" || s.Limit != limit || s.Used < 100 || s.Used > 200 {
		t.Errorf("status %+v", s)
	}
	// A flood of made-up SYNs gives way to itself.
	for range 10000 {
		r.send(r.packet(r.client(), wire.SYN))
	}
	after := r.counted()
	if after.FlowReplaced < 2000 || after.FlowFull != 0 {
		t.Errorf("%d replaced, %d refused after a flood", after.FlowReplaced, after.FlowFull)
	}
	if s := r.sweep(); s.Used < limit*95/100 || s.Used > limit || s.Confirmed > uint64(len(c)) {
		t.Errorf("after a flood %+v", s)
	}
	r.goOn("after a flood", c)
	// More that go on than there is room for: the earlier ones keep theirs.
	more := r.opens(8000)
	full := r.counted()
	if full.FlowFull < 1000 {
		t.Errorf("4000 connections more were tracked in a table of %d entries, and %d counted as refused", limit, full.FlowFull)
	}
	if s := r.sweep(); s.Confirmed < limit*95/100 {
		t.Errorf("%+v, want nearly all confirmed", s)
	}
	r.activate(2)
	r.activate(3)
	r.goOn("after all of the horizon became active", c)
	moved := 0
	for client, to := range more {
		if r.send(r.packet(client, wire.ACK)) != to {
			moved++
		}
	}
	if moved < 1000 {
		t.Errorf("%d connections moved: the table was not full", moved)
	}
}

// Forged RSTs and a flood of SYNs take no living connection's entry, whether
// somebody knows the ports or tries them all. Connections say nothing until the
// change for which they were tracked.
func TestForgedResetsAndFlood(t *testing.T) {
	t.Parallel()
	const connections, firstPort, lastPort = 400, 1024, 1<<16 - 1
	for name, attack := range map[string]func(r *tracking, clients []netip.AddrPort){
		"known": func(r *tracking, clients []netip.AddrPort) {
			for range 2 {
				for _, client := range clients {
					r.send(r.packet(client, wire.RST))
				}
			}
			for i := range 10000 {
				r.send(r.packet(r.client(), wire.SYN))
				if i%16 == 0 { // with a SYN, as a port used again has one
					client := clients[r.rand.IntN(len(clients))]
					r.send(r.packet(client, wire.RST))
					r.send(r.packet(client, wire.SYN))
				}
			}
		},
		"sprayed": func(r *tracking, clients []netip.AddrPort) {
			address := clients[0].Addr()
			for port := firstPort; port <= lastPort; port++ {
				r.send(r.packet(netip.AddrPortFrom(address, uint16(port)), wire.RST))
				if port%4 == 0 {
					r.send(r.packet(r.client(), wire.SYN))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := trackingOf(t, "tcp", "table-hrw", 2, 2048)
			r.add(2, controller.Standby)
			r.add(3, controller.Standby)
			r.apply()
			address, c := r.client().Addr(), talks{}
			for len(c) < connections {
				client := netip.AddrPortFrom(address, uint16(firstPort+r.rand.IntN(lastPort+1-firstPort)))
				c[client] = r.send(r.packet(client, wire.SYN))
				r.send(r.packet(client, wire.ACK))
			}
			confirmed := r.sweep().Confirmed
			attack(r, slices.SortedFunc(maps.Keys(c), netip.AddrPort.Compare))
			s, n := r.sweep(), r.counted()
			if confirmed < connections/3 || s.Confirmed != 0 || s.Used < s.Limit*95/100 || n.FlowReplaced < 2000 || n.FlowFull != 0 {
				t.Errorf("%d were confirmed, %d are, %d of %d places used, %d replaced, %d refused: no attack", confirmed, s.Confirmed, s.Used, s.Limit, n.FlowReplaced, n.FlowFull)
			}
			r.activate(2)
			r.activate(3)
			r.goOn("after forged RSTs and a flood", c)
			r.pass(5 * time.Second)
			r.goOn("5 s later", c)
			if s := r.sweep(); s.Confirmed < confirmed {
				t.Errorf("%d were confirmed, %d are again", confirmed, s.Confirmed)
			}
		})
	}
}

// A sweep clears what is over and counts the rest.
func TestFlowSweep(t *testing.T) {
	t.Parallel()
	r := trackingOf(t, "tcp", "table-hrw", 2, 8192)
	r.add(2, controller.Standby)
	r.apply()
	c := r.opens(300)
	for range 300 {
		r.send(r.packet(r.client(), wire.SYN))
	}
	before := r.sweep()
	tracked := r.counted().Tracked
	if before.Used != tracked || before.Expired != 0 || before.Confirmed == 0 || before.Confirmed >= before.Used {
		t.Errorf("%+v, %d tracked", before, tracked)
	}
	for client := range c {
		r.send(r.packet(client, wire.FIN|wire.ACK))
	}
	if s := r.sweep(); s.Used != before.Used || s.Confirmed != 0 || s.Expired != 0 {
		t.Errorf("after all closed %+v, %+v before", s, before)
	}
	r.goOn("after all closed", c)
	r.pass(130 * time.Second)
	once := before.Used - before.Confirmed
	// Those that closed are still known, but do not count.
	if s := r.sweep(); s.Used != once || s.Expired != 0 {
		t.Errorf("after two minutes %+v, %+v before", s, before)
	}
	r.pass(7440 * time.Second)
	if s := r.sweep(); s.Used != 0 || s.Expired != before.Used {
		t.Errorf("after two hours %+v", s)
	}
	err := eachFlow(r.l.set.Maps[mapFlows], 0, r.l.set.Maps[mapFlows].MaxEntries(), func(bucket uint32, _ uint8, e jet.Entry) {
		t.Errorf("bucket %d has %#x", bucket, e)
	})
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.l.FlowSweep(ctx); err == nil {
		t.Error("a sweep that was cancelled ended without an error")
	}
}

// A connection that one balancer tracked is known to another, whether it told
// it or was asked for all.
func TestFlowsShared(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			one := trackingOf(t, protocol, "table-hrw", 4, 4096)
			var mu sync.Mutex
			var told []FlowRecord
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- one.l.Shared(ctx, func(batch []FlowRecord) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, batch...)
				})
			}()
			one.add(4, controller.Standby)
			one.apply()
			c := one.opens(400)
			one.goOn("again", c)
			confirmed := int(one.sweep().Confirmed)
			eventually(t, "all that are confirmed were told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(told) >= confirmed
			})
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if len(told) != confirmed || confirmed < 40 {
				t.Errorf("%d flows told, %d confirmed", len(told), confirmed)
			}
			var pulled []FlowRecord
			for next, pages := uint32(0), 0; ; pages++ {
				page, after, buckets, err := one.l.Flows(next)
				if err != nil || buckets != uint32(flowSets(4096)) {
					t.Fatal(buckets, err)
				}
				pulled = append(pulled, page...)
				if next = after; next == 0 {
					break
				}
			}
			if len(pulled) != confirmed {
				t.Errorf("%d flows pulled, %d confirmed", len(pulled), confirmed)
			}
			for _, records := range [][]FlowRecord{told, pulled, nil} {
				name := map[int]string{0: "untold"}[len(records)]
				t.Run("peer "+name, func(t *testing.T) {
					two := trackingOf(t, protocol, "table-hrw", 5, 4096)
					taken, err := two.l.FlowWrite(append(records, FlowRecord{Slot: 1 << 14}, FlowRecord{State: 4}))
					if err != nil || taken != len(records) {
						t.Fatalf("%d of %d taken, %v", taken, len(records), err)
					}
					if records != nil {
						two.goOn("at a peer that was told", c)
						if n := two.counted(); n.FlowHits != uint64(confirmed) || n.Tracked != 0 {
							t.Errorf("%+v, want %d hits", n, confirmed)
						}
						return
					}
					moved := 0
					for client, to := range c {
						if two.send(two.packet(client, wire.ACK)) != to {
							moved++
						}
					}
					if moved != confirmed {
						t.Errorf("at a peer that was told nothing %d connections moved, %d were tracked", moved, confirmed)
					}
				})
			}
		})
	}
}

// VIPs that do not share tell nobody.
func TestFlowsNotShared(t *testing.T) {
	t.Parallel()
	r := trackingOf(t, "tcp", "table-hrw", 4, 4096)
	r.v.Share = false
	r.add(4, controller.Standby)
	r.apply()
	r.opens(200)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := r.l.Shared(ctx, func(batch []FlowRecord) { t.Errorf("told %v", batch) })
	if err != nil || ctx.Err() == nil {
		t.Errorf("ended early, or with %v", err)
	}
}

// The flow table's size changes, and no tracked connection breaks.
func TestFlowTableResized(t *testing.T) {
	for _, flows := range []int{30000, 1200} {
		t.Run(fmt.Sprint(flows), func(t *testing.T) { resizeFlows(t, flows) })
	}
}

func resizeFlows(t *testing.T, flows int) {
	r := trackingOf(t, "tcp", "table-hrw", 4, 4096)
	r.add(4, controller.Standby)
	r.apply()
	c := r.opens(600)
	before := r.sweep()
	r.reopen(r.flowLimits(flows))
	if !r.l.Status().Pending {
		t.Error("another size of the flow table, and no new set")
	}
	r.goOn("before the next assignment", c)
	late := r.opens(100)
	r.activate(4)
	if r.l.Status().Pending {
		t.Error("still pending")
	}
	r.goOn("in the new table", c, late)
	s := r.sweep()
	t.Logf("%+v before, %+v after", before, s)
	if s.Limit != uint64(flowSets(flows)*jet.Ways) || s.Confirmed < before.Confirmed {
		t.Errorf("%+v before, %+v after", before, s)
	}
	// What goOn's packets found is confirmed; the copies beside it are not.
	if most := before.Confirmed + uint64(len(late)); s.Confirmed > most {
		t.Errorf("%d confirmed after, at most %d are anybody's", s.Confirmed, most)
	}
}

// A killed daemon's successor finds the flows.
func TestFlowsAdopted(t *testing.T) {
	t.Parallel()
	r := trackingOf(t, "tcp", "anchor", 4, 4096)
	r.v.Horizon = 1
	r.apply()
	c := r.opens(400)
	before := r.sweep()
	r.reopen(r.l.o)
	if s := r.sweep(); s != before || !r.l.Status().Adopted {
		t.Errorf("%+v, was %+v", s, before)
	}
	r.add(4, controller.Active)
	r.apply()
	r.goOn("after a restart and a change", c)
	state, err := OpenReadOnly(r.pinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	r.drain(1)
	vips, err := state.VIPs()
	if err != nil {
		t.Fatal(err)
	}
	v := vips[0]
	if v.HashForm != uint8(bpf.HashAnchor) || v.HashSize != uint32(r.v.Capacity) || v.Scheme != uint8(bpf.SchemeJet) {
		t.Errorf("%+v", v)
	}
	if s := v.Servers[1]; !s.Closed || s.Down || s.Address != netip.MustParseAddr("10.79.0.1") {
		t.Errorf("%+v", s)
	}
}

// A key is rebuilt so that it leads to its bucket, under its tag.
func TestFlowKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.OneOf(rapid.Uint32Range(1, 100), rapid.Uint32Range(1, (1<<26+6)/7)).Draw(t, "buckets")
		key := rapid.Uint64().Draw(t, "key")
		bucket := func(key uint64, buckets uint32) uint32 { return uint32(key & 0xffffffff * uint64(buckets) >> 32) }
		e, tag := jet.Entry(key>>32<<32|0x5555<<16|2<<14|77), uint8(0x80|key&0x7f)
		lo, hi := setRange(bucket(key, buckets), buckets)
		if low := key & 0xffffffff; low < lo || low >= hi {
			t.Fatalf("key %#x is not of [%#x, %#x)", key, lo, hi)
		}
		got, ok := flowKey(e, tag, lo, hi)
		if !ok || bucket(got, buckets) != bucket(key, buckets) || got&0x7f != key&0x7f || got>>32 != key>>32 {
			t.Fatalf("key %#x of %d buckets became %#x", key, buckets, got)
		}
		// And in a table of another size one of its places is the flow's own.
		is := rapid.Uint32Range(max(buckets/40, 1), min(buckets, 1<<20)*40).Draw(t, "is")
		found := false
		for _, r := range appendMoved(nil, e, tag, bucket(key, buckets), buckets, is) {
			found = found || bucket(r.Key, is) == bucket(key, is)
			if r.Key&0x7f != key&0x7f || r.Key>>32 != key>>32 || r.Slot != 77 || r.State != FlowFading {
				t.Fatalf("%+v", r)
			}
		}
		if is < 1<<24 && !found {
			t.Fatalf("of %d buckets to %d: the flow is not found", buckets, is)
		}
	})
}
