package router

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// tryApply is apply that may fail.
func (r *rig) tryApply(t Tables) error {
	return newChange(r.Plane, &t).run(func() error { return nil })
}

// used counts the entries of groups and hops that are not free.
func (r *rig) used() (groups, hops int) {
	return maxGroups - len(r.state.freeGroups), maxHops - len(r.state.freeHops)
}

// TestSameTables: entries keep their places, and nothing piles up.
func TestSameTables(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	r.apply(tables)
	before := maps.Clone(r.state.routes)
	hops := maps.Clone(r.state.hops)
	for range 3 {
		r.apply(standard())
	}
	if !maps.Equal(before, r.state.routes) || !maps.Equal(hops, r.state.hops) {
		t.Errorf("routes %v, then %v", before, r.state.routes)
	}
	if g, h := r.used(); g != 1 || h != 4 { // groups of one are none
		t.Errorf("%d groups and %d hops are in use", g, h)
	}
	r.apply(Tables{})
	if g, h := r.used(); g != 0 || h != 0 || len(r.state.routes)+len(r.state.inputs) != 0 {
		t.Errorf("without tables: %d groups and %d hops, %+v", g, h, r.state)
	}
}

// TestReadState: what is read back from the maps is what was written.
func TestReadState(t *testing.T) {
	r := newRig(t, Options{})
	tables := standard()
	tables.Hops[2].Usable = false
	r.apply(standard())
	r.apply(tables)
	got, err := readState(r.set)
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{"inputs": {got.inputs, r.state.inputs}, "routes": {got.routes, r.state.routes},
		"groups": {got.groups, r.state.groups}, "hops": {got.hops, r.state.hops}, "images": {got.images, r.state.images}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: read %v, written %v", what, pair[0], pair[1])
		}
	}
	if len(got.freeGroups) != len(r.state.freeGroups) || len(got.freeHops) != len(r.state.freeHops) {
		t.Error("free entries differ")
	}
}

// TestCountersCarried: what went out by a hop that is gone stays in the sum.
func TestCountersCarried(t *testing.T) {
	r := newRig(t, Options{})
	r.apply(standard())
	frame := to("203.0.113.129", wireIP).Frame()
	for range 5 {
		r.run(frame)
	}
	tables := standard()
	tables.Hops[0].ID.Gateway = netip.MustParseAddr("10.9.0.77") // another, in its place
	for _, g := range tables.Groups {
		for i := range g {
			if g[i].Hop == standard().Hops[0].ID {
				g[i].Hop = tables.Hops[0].ID
			}
		}
	}
	r.apply(tables)
	c, err := r.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c.Ways != (Ways{Single: 5}) {
		t.Errorf("sum %+v, want 5", c.Ways)
	}
	for _, h := range c.Hops {
		if h.Ways.Total() != 0 || h.Bytes != 0 {
			t.Errorf("hop %v counts %+v", h.ID, h)
		}
	}
}

// TestRefused: tables that contradict themselves, or that there is no room for.
func TestRefused(t *testing.T) {
	r := newRig(t, Options{})
	r.apply(standard())
	for want, spoil := range map[string]func(*Tables){
		"is no next hop of the tables":        func(t *Tables) { t.Hops = t.Hops[:3] },
		"names group 7 of 3":                  func(t *Tables) { t.Routes[0].Group = 7 },
		"no device, gateway or MTU":           func(t *Tables) { t.Hops[0].ID = HopID{} },
		"weight 0 is not one of":              func(t *Tables) { t.Groups[0][1].Weight = 0 },
		"both have port number 3":             func(t *Tables) { t.Hops[0].Port = 3 },
		"8192; summarize them, or let the ke": func(t *Tables) { t.Hops = make([]Hop, mostHops+1) },
	} {
		tables := standard()
		spoil(&tables)
		p := &Plane{set: r.set, o: r.o, state: r.state}
		err := checkSizes(&tables)
		if err == nil {
			err = (&rig{p, t}).tryApply(tables)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		// What was in force is whole.
		good := standard()
		w := newTwin(t, r.o, &good)
		r.check(w, to("203.0.113.9", wireIP).Frame())
		r.apply(good)
	}
}

// TestRoomRunsOut: a change that finds no idle entry says so, packets go on,
// and it succeeds once there is room.
func TestRoomRunsOut(t *testing.T) {
	r := newRig(t, Options{})
	r.apply(standard())
	free := r.state.freeGroups
	r.state.freeGroups = nil
	tables := standard()
	tables.Hops[1].Usable = false
	if err := r.tryApply(tables); err == nil || !strings.Contains(err.Error(), "entries for groups") {
		t.Errorf("error %v", err)
	}
	good := standard()
	good.Hops[1].Usable = true
	r.check(newTwin(t, r.o, &good), to("203.0.113.9", wireIP).Frame())
	r.state.freeGroups = free
	r.apply(tables)
	r.check(newTwin(t, r.o, &tables), to("203.0.113.9", wireIP).Frame())
}

// TestEverythingElse: as many neighbours, or groups, as there may be, and then
// as many others in their place.
func TestEverythingElse(t *testing.T) {
	r := newRig(t, Options{})
	for second := range 2 {
		neighbours := Tables{Devices: standard().Devices}
		for n := range mostHops {
			id := HopID{2, netip.AddrFrom4([4]byte{10, byte(second), byte(n >> 8), byte(n)})}
			neighbours.Hops = append(neighbours.Hops, Hop{ID: id, Ifindex: 2, MTU: 1500, Port: -1, Usable: true, Redirect: true})
			neighbours.Groups = append(neighbours.Groups, Group{{id, 1}})
			neighbours.Routes = append(neighbours.Routes, Route{netip.PrefixFrom(id.Gateway, 32), Forward, n})
		}
		if err := errors.Join(checkSizes(&neighbours), r.tryApply(neighbours)); err != nil {
			t.Fatal(err)
		}
	}
	for second := range 2 {
		groups := standard()
		groups.Groups, groups.Routes = nil, nil
		for i := range groups.Hops {
			groups.Hops[i].Port = -1 // digits leave less to weights
		}
		for n := range mostGroups {
			groups.Groups = append(groups.Groups, Group{{groups.Hops[0].ID, 1 + n}, {groups.Hops[1].ID, 1 + second*(mostGroups+1)}, {groups.Hops[2].ID, 2}})
			groups.Routes = append(groups.Routes, Route{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n >> 8), byte(n), 0}), 24), Forward, n})
		}
		if err := errors.Join(checkSizes(&groups), r.tryApply(groups)); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.used(); got != mostGroups {
			t.Fatalf("%d groups are in use, not %d", got, mostGroups)
		}
	}
}

// BenchmarkLostHop: what it takes until all routes of a group go by the hops
// that are left.
func BenchmarkLostHop(b *testing.B) {
	for _, routes := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(routes), func(b *testing.B) {
			r := newRig(b, Options{})
			var both [2]Tables
			for i := range both {
				both[i] = standard()
				both[i].Routes = nil
				for n := range routes {
					a := netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)})
					both[i].Routes = append(both[i].Routes, Route{netip.PrefixFrom(a, 32), Forward, 0})
				}
			}
			both[1].Hops[0].Usable = false
			r.apply(both[0])
			for i := 1; b.Loop(); i++ {
				r.apply(both[i%2])
			}
		})
	}
}
