package tables

import (
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
)

// A VIP that outgrows its lines reaches on where it stands, as far as nobody is in its
// way and there are lines; else it moves to where there is room.
func TestRangesReachOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		total uint32
		held  map[uint32]Range
		top   uint16 // the highest slot of VIP 1
		want  Range  // of VIP 1; none: it does not fit
	}{
		{"alone", 64, map[uint32]Range{1: {0, 16}}, 20, Range{0, 32}},
		{"to the end", 64, map[uint32]Range{1: {0, 16}}, 63, Range{0, 64}},
		{"further than the end", 64, map[uint32]Range{1: {16, 16}}, 60, Range{}},
		{"another behind it", 128, map[uint32]Range{1: {0, 16}, 2: {16, 16}}, 20, Range{32, 32}},
		{"another further on", 128, map[uint32]Range{1: {0, 16}, 2: {32, 16}}, 20, Range{0, 32}},
		{"another in the middle", 128, map[uint32]Range{1: {0, 16}, 2: {32, 16}}, 40, Range{48, 64}},
		{"another before it", 128, map[uint32]Range{1: {16, 16}, 2: {0, 16}}, 40, Range{16, 64}},
		{"it fits", 64, map[uint32]Range{1: {0, 32}}, 20, Range{0, 32}},
	} {
		v := &controller.VIP{ID: 1, Slots: []controller.Slot{{Number: 0}, {Number: c.top}}}
		v.Scheme = "stateless"
		al := newAllocator(c.held, c.total)
		got, err := al.take(v)
		if got != c.want || (err != nil) != (c.want == Range{}) {
			t.Errorf("%s: %v %v, want %v", c.name, got, err, c.want)
		}
		for _, r := range al.taken {
			if err == nil && r != got && r != c.held[1] && r.First < got.End() && got.First < r.End() {
				t.Errorf("%s: %v is over %v", c.name, got, r)
			}
		}
	}
}

// Lines of scheme beamer say the same of a server whether it joins, takes new connections
// or drains, so that nothing has to be written while packets use them; only health shows.
func TestBucketLinesStay(t *testing.T) {
	table := buckets.New(64, weights(3))
	plan := func(state controller.State, down bool) Line {
		a := beamerAssignment(table, 11, 12, 13)
		a.VIPs[0].Slots[2].State = state
		isDown := func(_ uint32, slot uint16) bool { return down && slot == 2 }
		c := Capacity{Lines: 64, TableEntries: 1 << 10, VIPIDs: 64}
		p, err := Balancer(a, View{Moment: Moment{Now: setsNow}, Down: isDown, Capacity: c, Hashes: Hashes{}, Random: rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		return p.VIPs[0].Slots[2]
	}
	is := plan(controller.Active, false)
	for _, state := range []controller.State{controller.Joining, controller.Standby, controller.Draining, controller.Resting} {
		if got := plan(state, false); got != is {
			t.Errorf("%s: %+v, %+v while it takes new connections", state, got, is)
		}
	}
	if got := plan(controller.Active, true); got.Flags != bpf.LineDown|bpf.LineClosed {
		t.Errorf("down: %+v", got)
	}
}
