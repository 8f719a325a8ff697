package router

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
)

func gateway(device, gateway string) namedHop { return namedHop{device, addr(gateway)} }

func several(hops ...namedHop) map[namedHop]bool {
	m := map[namedHop]bool{}
	for _, h := range hops {
		m[h] = true
	}
	return m
}

// fabric.yaml's numbers hold, by device or by the neighbour's address.
func TestNumbersOfTheFile(t *testing.T) {
	f := fabricOf(8, topology.End{Port: 5, Device: "eth1"}, topology.End{Port: 2, Device: "eth2"}, topology.End{Port: 3, Device: "eth2"}, topology.End{Port: 6}, topology.End{Port: -1, Device: "eth3"})
	f.Links[1].Ends[1].Address, f.Links[2].Ends[1].Address, f.Links[3].Ends[1].Address = addr("10.9.0.2"), addr("10.9.0.3"), addr("10.9.0.4")
	n := newNumbering(f, 0, nil)
	want := map[namedHop]int{
		gateway("eth1", "fe80::1"): 5, gateway("eth1", "10.9.9.9"): 5, // one link there
		gateway("eth2", "10.9.0.2"): 2, gateway("eth2", "10.9.0.3"): 3, // two: by the neighbour
		gateway("eth7", "10.9.0.4"):  6,  // the file names no device
		gateway("eth3", "10.9.0.5"):  -1, // it gives this one none
		gateway("eth8", "10.9.0.6"):  1,  // not in the file: the lowest free number
		gateway("eth1", "10.9.9.10"): 0,  // a second neighbour behind one link: likewise
	}
	hops := map[namedHop]bool{}
	for h := range want {
		hops[h] = true
	}
	got, changed := n.assign(hops)
	for h, port := range want {
		if got[h] != port {
			t.Errorf("%v: port %d, want %d", h, got[h], port)
		}
	}
	if !changed || len(n.warnings) != 2 || !strings.Contains(n.warnings[0], "over no link of fabric.yaml") {
		t.Errorf("changed %v, warnings %q", changed, n.warnings)
	}
	if !slices.Equal(n.ports(), []int{0, 1, 2, 3, 5, 6}) {
		t.Errorf("ports %v", n.ports())
	}
}

// Without numbers in the file the router gives them: sorted, remembered, both
// families of a link the same, and none to hops that are alone.
func TestNumbersGiven(t *testing.T) {
	n := newNumbering(fabricOf(3), 0, nil)
	got, changed := n.assign(several(gateway("eth2", "10.9.0.2"), gateway("eth1", "10.9.0.1"), gateway("eth1", "fe80::1")))
	if got[gateway("eth1", "10.9.0.1")] != 0 || got[gateway("eth1", "fe80::1")] != 0 || got[gateway("eth2", "10.9.0.2")] != 1 || !changed {
		t.Errorf("first: %v, changed %v", got, changed)
	}
	n = newNumbering(fabricOf(3), 0, n.given) // after a restart
	hops := several(gateway("eth0", "10.9.0.9"), gateway("eth2", "10.9.0.2"))
	hops[gateway("eth5", "10.9.0.5")], hops[gateway("eth1", "10.9.0.1")] = false, false
	got, _ = n.assign(hops)
	if got[gateway("eth0", "10.9.0.9")] != 2 || got[gateway("eth2", "10.9.0.2")] != 1 || got[gateway("eth5", "10.9.0.5")] != -1 || got[gateway("eth1", "10.9.0.1")] != 0 {
		t.Errorf("after a restart: %v", got)
	}
	if _, changed := n.assign(hops); changed {
		t.Error("numbers change without a change")
	}
	// All three are taken; eth1's is free once it is in no route.
	got, _ = n.assign(several(gateway("eth0", "10.9.0.9"), gateway("eth2", "10.9.0.2"), gateway("eth7", "10.9.0.7")))
	if got[gateway("eth7", "10.9.0.7")] != 0 || got[gateway("eth0", "10.9.0.9")] != 2 {
		t.Errorf("a number of a hop that is gone: %v", got)
	}
	got, _ = n.assign(several(gateway("eth0", "10.9.0.9"), gateway("eth2", "10.9.0.2"), gateway("eth7", "10.9.0.7"), gateway("eth8", "10.9.0.8")))
	if got[gateway("eth8", "10.9.0.8")] != -1 || len(n.warnings) != 1 || !strings.Contains(n.warnings[0], "raise selector.radix") {
		t.Errorf("more hops than the radix: %v, %q", got, n.warnings)
	}
	// What the file gives goes before what was given.
	n = newNumbering(fabricOf(3, topology.End{Port: 1, Device: "eth9"}), 0, n.given)
	if got, _ := n.assign(several(gateway("eth9", "10.9.0.1"), gateway("eth2", "10.9.0.2"))); got[gateway("eth9", "10.9.0.1")] != 1 || got[gateway("eth2", "10.9.0.2")] == 1 {
		t.Errorf("the file's number: %v", got)
	}
}

// Numbers that could not be written are written with the next look, though
// nothing is numbered then, and it is said for as long.
func TestNumbersAreKept(t *testing.T) {
	p := ports()
	p.routes4 = []route{unicast("10.1.0.0/24", over(2, "10.9.0.2"), over(3, "10.9.0.6"))}
	full, kept, asked := errors.New("no space left on device"), []Number(nil), 0
	f := &Follower{log: slog.New(slog.DiscardHandler), picture: *p, numbers: newNumbering(fabricOf(4), 0, nil), keep: func(n []Number) error {
		asked++
		if full == nil {
			kept = n
		}
		return full
	}}
	look := func(warned bool, keeps int) {
		t.Helper()
		if err := f.enforce(func(Tables) error { return nil }); err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(strings.Join(f.View().Warnings, "\n"), "not remembered over a restart: no space")
		if said != warned || asked != keeps {
			t.Errorf("warnings %q; asked to keep %d times, want %d", f.View().Warnings, asked, keeps)
		}
	}
	look(true, 1)
	look(true, 2)
	full = nil
	look(false, 3)
	look(false, 3)
	if len(kept) != 2 {
		t.Errorf("kept %+v", kept)
	}
}
