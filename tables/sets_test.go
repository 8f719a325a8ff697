package tables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

var setsNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const setsWarmUp = 100 * time.Second

// ago is a time before setsNow, in seconds.
func ago(seconds int) time.Time { return setsNow.Add(-time.Duration(seconds) * time.Second) }

// setsSlot is slot 1 of setsVIP, of weight 5.
func setsSlot(state controller.State, change ...func(*controller.Slot)) controller.Slot {
	s := controller.Slot{Number: 1, Server: "b", Address: netip.MustParseAddr("10.0.0.2"), Weight: 5, State: state}
	for _, f := range change {
		f(&s)
	}
	return s
}

func since(t time.Time) func(*controller.Slot) {
	return func(s *controller.Slot) { s.Since = t }
}

func drained(t time.Time) func(*controller.Slot) {
	return func(s *controller.Slot) { s.DrainSince = t }
}

func reweighted(old int, t time.Time) func(*controller.Slot) {
	return func(s *controller.Slot) { s.OldWeight, s.WeightSince = old, t }
}

// setsVIP has an active server of weight 3 in slot 0, and s.
func setsVIP(protocol, hash string, s ...controller.Slot) *controller.VIP {
	v := &controller.VIP{
		ID:       7,
		Settings: vip.Settings{Name: "v", Protocol: protocol, Scheme: "jet", Policy: "hash", Hash: chash.Kind(hash), WarmUp: setsWarmUp},
		HashRows: 1024,
	}
	if hash == "anchor" {
		v.HashRows, v.Capacity, v.Horizon = 0, 10, 2
	}
	if hash == "dx" {
		v.Capacity = 10
	}
	v.Slots = append([]controller.Slot{{Number: 0, Server: "a", Address: netip.MustParseAddr("10.0.0.1"), Weight: 3, State: controller.Active}}, s...)
	return v
}

// What one slot's state, times and health make of it.
func TestSets(t *testing.T) {
	w, d, h := chash.Working, chash.Draining, chash.Horizon
	const none = 0 // seconds until something changes
	for _, c := range []struct {
		name   string
		slot   controller.Slot
		down   bool
		tcp    [3]int // weights: new, held, horizon
		tcpDue int
		udp    [3]int
		udpDue int
		// By Anchor, TCP and UDP.
		tcpBucket, udpBucket chash.BucketState
		tcpADue, udpADue     int
	}{
		{"active", setsSlot(controller.Active), false,
			[3]int{5, 5, 5}, none, [3]int{5, 5, 5}, none, w, w, none, none},
		{"active, down", setsSlot(controller.Active), true,
			[3]int{0, 5, 5}, none, [3]int{0, 0, 5}, none, d, h, none, none},
		{"warming up", setsSlot(controller.Active, since(ago(30))), false,
			[3]int{5, 0, 5}, 70, [3]int{5, 0, 5}, 70, h, h, 70, 70},
		{"warming up, down", setsSlot(controller.Active, since(ago(30))), true,
			[3]int{0, 0, 5}, 70, [3]int{0, 0, 5}, none, h, h, 70, none},
		{"warm since this moment", setsSlot(controller.Active, since(ago(100))), false,
			[3]int{5, 5, 5}, none, [3]int{5, 5, 5}, none, w, w, none, none},
		{"joining", setsSlot(controller.Joining, since(ago(30))), false,
			[3]int{0, 0, 5}, none, [3]int{0, 0, 5}, none, h, h, none, none},
		{"standby", setsSlot(controller.Standby), false,
			[3]int{0, 0, 5}, none, [3]int{0, 0, 5}, none, h, h, none, none},
		{"standby, down", setsSlot(controller.Standby), true,
			[3]int{0, 0, 5}, none, [3]int{0, 0, 5}, none, h, h, none, none},
		{"draining", setsSlot(controller.Draining, drained(ago(10))), false,
			[3]int{0, 5, 5}, none, [3]int{0, 5, 5}, 90, d, d, none, 90},
		{"draining, down", setsSlot(controller.Draining, drained(ago(10))), true,
			[3]int{0, 5, 5}, none, [3]int{0, 0, 5}, none, d, h, none, none},
		{"drained for long", setsSlot(controller.Draining, drained(ago(100))), false,
			[3]int{0, 5, 5}, none, [3]int{0, 0, 5}, none, d, h, none, none},
		{"draining, never had any", setsSlot(controller.Draining), false,
			[3]int{0, 5, 5}, none, [3]int{0, 0, 5}, none, d, h, none, none},
		{"draining while it warmed up", setsSlot(controller.Draining, since(ago(30)), drained(ago(10))), false,
			[3]int{0, 0, 5}, 70, [3]int{0, 0, 5}, 70, h, h, 70, 70},
		{"resting", setsSlot(controller.Resting, drained(ago(10))), false,
			[3]int{0, 5, 5}, none, [3]int{0, 5, 5}, 90, d, d, none, 90},
		{"weight grew from 2", setsSlot(controller.Active, reweighted(2, ago(60))), false,
			[3]int{5, 2, 5}, 40, [3]int{5, 2, 5}, 40, w, w, none, none},
		{"weight grew long ago", setsSlot(controller.Active, reweighted(2, ago(100))), false,
			[3]int{5, 5, 5}, none, [3]int{5, 5, 5}, none, w, w, none, none},
		{"weight sank while it warmed up", setsSlot(controller.Active, since(ago(30)), reweighted(9, ago(20))), false,
			[3]int{5, 0, 9}, 70, [3]int{5, 0, 9}, 70, h, h, 70, 70},
		{"weight sank, then drained", setsSlot(controller.Draining, reweighted(9, ago(20)), drained(ago(10))), false,
			[3]int{0, 9, 9}, 80, [3]int{0, 9, 9}, 80, d, d, none, 90},
		{"weight sank, then down", setsSlot(controller.Active, reweighted(9, ago(20))), true,
			[3]int{0, 9, 9}, 80, [3]int{0, 0, 9}, 80, d, h, none, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			down := func(vip uint32, slot uint16) bool { return c.down && vip == 7 && slot == 1 }
			check := func(what string, v *controller.VIP, weights [3]int, bucket chash.BucketState, due int) {
				t.Helper()
				got := setsOf(v, down, setsNow)
				works := weights[0] > 0
				if v.Hash == "anchor" {
					want := []chash.BucketState{w, bucket, h, h}
					if fmt.Sprint(got.buckets) != fmt.Sprint(want) {
						t.Errorf("%s: buckets %v, want %v", what, got.buckets, want)
					}
					works = bucket == w
				} else {
					a, b := 3, 5
					if v.Hash == "dx" {
						a, b = 1, 1
						for i := range weights {
							weights[i] = min(weights[i], 1)
						}
					}
					_ = b
					want := []chash.Member{{Name: "a 10.0.0.1", New: a, Held: a, Horizon: a},
						{Name: "b 10.0.0.2", Number: 1, New: weights[0], Held: weights[1], Horizon: weights[2]}}
					if fmt.Sprint(got.members) != fmt.Sprint(want) {
						t.Errorf("%s: members\n%+v, want\n%+v", what, got.members, want)
					}
				}
				wantDue := time.Time{}
				if due != none {
					wantDue = setsNow.Add(time.Duration(due) * time.Second)
				}
				if !got.due.Equal(wantDue) {
					t.Errorf("%s: due %v, want %v", what, got.due, wantDue)
				}
				flags := uint8(0)
				if !works {
					flags |= bpf.LineClosed
				}
				if c.down {
					flags |= bpf.LineDown
				}
				if got.lines[0] != 0 || got.lines[1] != flags {
					t.Errorf("%s: flags of lines %v, want %d for slot 1", what, got.lines, flags)
				}
				takes := c.slot.State == controller.Active && !c.down
				if (len(got.takers) == 2) != takes || !got.working {
					t.Errorf("%s: takers %v, working %v", what, got.takers, got.working)
				}
			}
			for _, hash := range []string{"", "table-hrw", "ring", "maglev"} {
				check("tcp "+hash, setsVIP("tcp", hash, c.slot), c.tcp, 0, c.tcpDue)
				check("udp "+hash, setsVIP("udp", hash, c.slot), c.udp, 0, c.udpDue)
			}
			check("tcp anchor", setsVIP("tcp", "anchor", c.slot), [3]int{}, c.tcpBucket, c.tcpADue)
			check("udp anchor", setsVIP("udp", "anchor", c.slot), [3]int{}, c.udpBucket, c.udpADue)
		})
	}
	// Hashes without weights ignore them, and their changes.
	v := setsVIP("tcp", "dx", setsSlot(controller.Active, reweighted(2, ago(60))))
	got := setsOf(v, nil, setsNow)
	if m := got.members[1]; m.New != 1 || m.Held != 1 || m.Horizon != 1 || !got.due.IsZero() {
		t.Errorf("dx: %+v, due %v", m, got.due)
	}
}

// With every server down they all take connections, as if none were; with
// none active nobody does.
func TestSetsAllDown(t *testing.T) {
	down := func(uint32, uint16) bool { return true }
	for _, hash := range []string{"table-hrw", "anchor"} {
		v := setsVIP("udp", hash, setsSlot(controller.Active), controller.Slot{Number: 2, Server: "c", Address: netip.MustParseAddr("10.0.0.3"), Weight: 1, State: controller.Draining, DrainSince: ago(1)})
		got := setsOf(v, down, setsNow)
		if len(got.takers) != 2 || !got.working || got.lines[0] != 0 || got.lines[1] != 0 || got.lines[2] != bpf.LineClosed {
			t.Errorf("%s: %+v", hash, got)
		}
		if got.all {
			t.Errorf("%s: all is tracked", hash)
		}
		// Drained for long, they keep their flows, as there is nobody else;
		// what is tracked stays with them when there is somebody again. Slot 1
		// never had any.
		v.Slots[0].State, v.Slots[0].DrainSince, v.Slots[1].State = controller.Draining, ago(500), controller.Resting
		got = setsOf(v, nil, setsNow)
		var held bool
		if hash != "anchor" {
			held = got.members[0].Held == 3 && got.members[1].Held == 0 && got.members[2].Held == 1
		} else {
			held = fmt.Sprint(got.buckets[:3]) == fmt.Sprint([]chash.BucketState{chash.Draining, chash.Horizon, chash.Draining})
		}
		if len(got.takers) != 0 || got.working || !got.all || !held || !got.due.IsZero() {
			t.Errorf("%s: none active: %+v", hash, got)
		}
		if v.Protocol = "tcp"; setsOf(v, nil, setsNow).all {
			t.Errorf("%s: over TCP all is tracked", hash)
		}
	}
}

// Anchor brings a newcomer in before it is warm if nobody else works. Then all
// is tracked, by tables too.
func TestSetsNewcomerAlone(t *testing.T) {
	w, d, h := chash.Working, chash.Draining, chash.Horizon
	for _, c := range []struct {
		name     string
		protocol string
		down     int // slot, -1: none
		since    time.Time
		want     []chash.BucketState
		held     []int
		all      bool
	}{
		{"not alone", "tcp", -1, time.Time{}, []chash.BucketState{w, h}, []int{3, 0}, false},
		{"alone", "tcp", 0, time.Time{}, []chash.BucketState{d, w}, []int{3, 0}, true},
		{"alone", "udp", 0, time.Time{}, []chash.BucketState{h, w}, []int{0, 0}, true},
		// Of newcomers alone the first works: it will not go back to the horizon.
		{"the first", "tcp", -1, ago(20), []chash.BucketState{h, w}, []int{0, 0}, true},
		// Those that came together work together.
		{"two", "tcp", -1, ago(30), []chash.BucketState{w, w}, []int{0, 0}, true},
	} {
		v := setsVIP(c.protocol, "anchor", setsSlot(controller.Active, since(ago(30))))
		v.Slots[0].Since = c.since
		down := func(_ uint32, slot uint16) bool { return int(slot) == c.down }
		got := setsOf(v, down, setsNow)
		if fmt.Sprint(got.buckets[:2]) != fmt.Sprint(c.want) || !got.working || got.all != c.all {
			t.Errorf("%s, %s: %+v", c.name, c.protocol, got)
		}
		v.Hash = "table-hrw"
		got = setsOf(v, down, setsNow)
		if got.members[0].Held != c.held[0] || got.members[1].Held != c.held[1] || !got.working || got.all != c.all {
			t.Errorf("%s, %s: %+v", c.name, c.protocol, got)
		}
	}
}

// The horizon's spare buckets are the numbers above the highest slot, as far
// as the Capacity goes; numbers that were freed below it are in it, too.
func TestSetsSpare(t *testing.T) {
	v := setsVIP("tcp", "anchor", setsSlot(controller.Active, func(s *controller.Slot) { s.Number = 3 }))
	w, h := chash.Working, chash.Horizon
	for _, c := range []struct {
		horizon, capacity int
		want              []chash.BucketState
	}{
		{0, 10, []chash.BucketState{w, h, h, w}},
		{2, 10, []chash.BucketState{w, h, h, w, h, h}},
		{9, 6, []chash.BucketState{w, h, h, w, h, h}},
	} {
		v.Horizon, v.Capacity = c.horizon, c.capacity
		if got := setsOf(v, nil, setsNow).buckets; fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("horizon %d of Capacity %d: %v, want %v", c.horizon, c.capacity, got, c.want)
		}
	}
}

// Of several times the soonest is due.
func TestSetsDue(t *testing.T) {
	v := setsVIP("udp", "table-hrw", setsSlot(controller.Active, since(ago(30))),
		controller.Slot{Number: 2, Server: "c", Weight: 1, State: controller.Draining, DrainSince: ago(60)},
		controller.Slot{Number: 3, Server: "d", Weight: 2, State: controller.Active, OldWeight: 1, WeightSince: ago(50)})
	for _, want := range []int{40, 50, 70} {
		got := setsOf(v, nil, setsNow)
		if end := setsNow.Add(time.Duration(want) * time.Second); !got.due.Equal(end) {
			t.Fatalf("due %v, want %v", got.due, end)
		}
		for i := range v.Slots {
			if s := &v.Slots[i]; s.DrainSince.Equal(ago(100 - want)) {
				s.DrainSince = time.Time{}
			} else if s.WeightSince.Equal(ago(100 - want)) {
				s.WeightSince = time.Time{}
			} else if s.Since.Equal(ago(100 - want)) {
				s.Since = time.Time{}
			}
		}
	}
	if got := setsOf(v, nil, setsNow); !got.due.IsZero() {
		t.Errorf("due %v with nothing to come", got.due)
	}
}
