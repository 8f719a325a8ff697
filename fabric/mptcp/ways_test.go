package mptcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newNet(t *testing.T, f *topology.Fabric, err error) *paths.Net {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f.Selector.Key = [16]byte{1}
	n, err := paths.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func never(paths.Hop) bool { return false }

func fit(int) bool { return false }

// takeAll takes paths one after another until links are shared.
func takeAll(t *testing.T, w *ways, avoid func(paths.Hop) bool) (taken []paths.Path) {
	t.Helper()
	own := uses{}
	for {
		i, shared, ok := w.next(view{own: own, avoid: avoid, unfit: fit})
		if !ok || shared > 0 {
			return taken
		}
		own.add(w.paths[i].Hops)
		taken = append(taken, w.paths[i])
		for h, n := range own {
			if n > 1 && (!w.common[h] || len(w.paths) == 1) {
				t.Fatalf("link %d is shared", h.Link)
			}
		}
	}
}

func TestDisjointPaths(t *testing.T) {
	leafSpine, err1 := topology.LeafSpine(2, 4, 1)
	fatTree, err2 := topology.FatTree(8)
	for name, c := range map[string]struct {
		net        *paths.Net
		from, to   string
		all, apart int
	}{
		"leaf and spine":               {newNet(t, leafSpine, err1), "host-0", "host-1", 4, 4},
		"fat-tree, another pod":        {newNet(t, fatTree, err2), "host-0", "host-127", 16, 4}, // as many as an edge switch has ports upwards
		"fat-tree, the same pod":       {newNet(t, fatTree, err2), "host-0", "host-5", 4, 4},
		"fat-tree, at the same switch": {newNet(t, fatTree, err2), "host-0", "host-1", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := node(t, c.net, c.from), node(t, c.net, c.to)
			w, err := waysBetween(c.net, from, to)
			if err != nil {
				t.Fatal(err)
			}
			if len(w.paths) != c.all {
				t.Errorf("%d paths, want %d", len(w.paths), c.all)
			}
			taken := takeAll(t, w, never)
			if len(taken) != c.apart {
				t.Errorf("%d disjoint paths, want %d", len(taken), c.apart)
			}
			failed := taken[0].Hops[1]
			left := takeAll(t, w, func(h paths.Hop) bool { return h == failed })
			if len(left) != c.apart-1 {
				t.Errorf("%d disjoint paths without a link, want %d", len(left), c.apart-1)
			}
		})
	}
}

func node(t *testing.T, n *paths.Net, name string) int {
	t.Helper()
	i, err := n.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestOthers: of equal paths, those that other connections use less, and
// before that those that the connection lost no subflow on.
func TestOthers(t *testing.T) {
	f, err := topology.LeafSpine(2, 3, 1)
	n := newNet(t, f, err)
	w, err := waysBetween(n, node(t, n, "host-0"), node(t, n, "host-1"))
	if err != nil {
		t.Fatal(err)
	}
	others := uses{}
	others.add(w.paths[0].Hops)
	others.add(w.paths[2].Hops)
	for range 20 {
		if i, _, ok := w.next(view{others: others, avoid: never, unfit: fit}); !ok || i != 1 {
			t.Fatalf("path %d, %v", i, ok)
		}
	}
	failed := uses{}
	failed.add(w.paths[1].Hops)
	failed.add(w.paths[0].Hops)
	for range 20 {
		if i, _, ok := w.next(view{others: others, failed: failed, avoid: never, unfit: fit}); !ok || i != 2 {
			t.Fatalf("path %d, %v", i, ok)
		}
	}
	if _, _, ok := w.next(view{avoid: never, unfit: func(int) bool { return true }}); ok {
		t.Error("a path although none is fit")
	}
}

func TestAvoided(t *testing.T) {
	a, now, link := avoided{}, time.Unix(1000, 0), paths.Hop{Link: 3}
	if a.has(link, now) || !a.blame(link, now) || !a.has(link, now) || a.count(now) != 1 {
		t.Fatal("first failure")
	}
	if a.blame(link, now) {
		t.Error("blamed twice for one failure")
	}
	now = now.Add(firstHold)
	if a.has(link, now) || !a.blame(link, now) {
		t.Error("not tried again")
	}
	if now = now.Add(firstHold); !a.has(link, now) {
		t.Error("the second hold is not longer")
	}
	for range 20 {
		now = now.Add(longestHold)
		a.blame(link, now)
	}
	if now = now.Add(longestHold); a.has(link, now) {
		t.Error("held for longer than the longest")
	}
	a.works([]paths.Hop{link})
	if a.blame(link, now); a[link].last != firstHold {
		t.Error("a link that worked is not forgiven")
	}
}

func TestFails(t *testing.T) {
	for _, c := range []struct {
		s    Subflow
		want bool
	}{
		{Subflow{State: stateSynSent, Info: Info{Retransmits: failedSYNs - 1}}, false},
		{Subflow{State: stateSynSent, Info: Info{Retransmits: failedSYNs}}, true},
		{Subflow{State: stateEstablished, Info: Info{Backoff: failedBackoff, Unacked: 1}}, true},
		{Subflow{State: stateEstablished, Info: Info{Backoff: failedBackoff - 1, Unacked: 1}}, false},
		{Subflow{State: stateEstablished, Info: Info{Backoff: failedBackoff}}, false},
		{Subflow{State: stateEstablished, Info: Info{Backoff: failedBackoff, Unacked: 1, Probes: 1}}, false},
		{Subflow{State: 4, Info: Info{Backoff: 9, Unacked: 1}}, false},
	} {
		if c.s.fails() != c.want {
			t.Errorf("%+v: %v", c.s, !c.want)
		}
	}
}

// TestPlace: connections that no ports lead anywhere are left alone.
func TestPlace(t *testing.T) {
	f, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	six := netip.MustParseAddr("fd00::1")
	f.Nodes[1].Addresses = append(f.Nodes[1].Addresses, six)
	f.Nodes[0].Addresses = append(f.Nodes[0].Addresses, six.Next())
	subflow := func(from, to netip.Addr) []Subflow {
		return []Subflow{{Local: netip.AddrPortFrom(from, 40000), Remote: netip.AddrPortFrom(to, 80)}}
	}
	four := subflow(f.Nodes[0].Addresses[0], f.Nodes[1].Addresses[0])
	for _, field := range []pathsel.Field{pathsel.Ports, pathsel.FlowLabel} {
		f.Selector.IPv6 = field
		n := newNet(t, f, nil)
		if c := newConnection(1); !c.place(n, four) || c.from != 0 || c.to != 1 {
			t.Errorf("%s: IPv4: %+v", field, c)
		}
		if placed := newConnection(1).place(n, subflow(six.Next(), six)); placed != (field == pathsel.Ports) {
			t.Errorf("%s: IPv6: %v", field, placed)
		}
		for what, list := range map[string][]Subflow{
			"to a stranger": subflow(f.Nodes[0].Addresses[0], netip.MustParseAddr("192.0.2.1")),
			"from one":      subflow(netip.MustParseAddr("192.0.2.1"), f.Nodes[1].Addresses[0]),
			"to itself":     subflow(six.Next(), f.Nodes[0].Addresses[0]),
		} {
			if newConnection(1).place(n, list) {
				t.Errorf("%s: placed", what)
			}
		}
	}
}
