package probe

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// What is learned from both hosts is the fabric that is there, with the numbers
// of all ports that selectors can name.
func TestLearn(t *testing.T) {
	of, err := topology.LeafSpine(2, 3, 1)
	f := buildFabric(t, "learn", of, err, fabrics.Options{Program: built.Fairlead(t)})
	real := f.Topology()
	learned := &topology.Fabric{Selector: real.Selector}
	for i, n := range real.Nodes {
		if n.Host {
			continue
		}
		// The names alone, so that answers from any of a router's addresses are
		// its own; and no limit to answers, which would take a minute.
		known := topology.Node{Name: n.Name, TTL: 64}
		for a, node := range namesOf(real) {
			if node == i {
				known.Addresses = append(known.Addresses, a)
			}
		}
		learned.Nodes = append(learned.Nodes, known)
		if err := f.In(n.Name, func() error { return netspace.Sysctl("net.ipv4.icmp_ratelimit", "0") }); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range [][2]string{{"host-0", "host-1"}, {"host-1", "host-0"}} {
		from, to := f.Node(way[0]), f.Node(way[1])
		began := time.Now()
		err := f.In(way[0], func() error {
			return Learn(t.Context(), learned, LearnConfig{
				Host: real.Nodes[from].Name, Source: real.Nodes[from].Addresses[0],
				Target: real.Nodes[to].Name, Address: real.Nodes[to].Addresses[0],
				Progress: func(s string) { t.Log(s) },
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("learned in %v", time.Since(began))
	}
	if got, want := linkSet(learned), linkSet(real); !slices.Equal(got, want) {
		t.Errorf("learned links %v, want %v", got, want)
	}
}

// Every digit is asked for: the low ports may all lead to one neighbour.
func TestLearnAllDigits(t *testing.T) {
	f := &topology.Fabric{Nodes: []topology.Node{{Name: "here", Host: true}, {Name: "leaf"}, {Name: "low"}, {Name: "high"}, {Name: "there", Host: true}}}
	f.Selector.Radix = 16
	l := &learner{ctx: t.Context(), c: LearnConfig{Progress: func(s string) { t.Log(s) }}, f: f, target: 4, explored: map[int]bool{}}
	l.ask = func(turns []turn, ttl int) (int, error) {
		switch {
		case ttl == 1:
			return 1, nil
		case ttl > 2:
			return 4, nil
		case turns[0].port < 12:
			return 2, nil
		}
		return 3, nil
	}
	if err := l.explore(0, nil, 0); err != nil {
		t.Fatal(err)
	}
	// here-leaf, 12 to low, 4 to high, one from each to there.
	if len(f.Links) != 1+12+4+2 {
		t.Errorf("%d links: %v", len(f.Links), linkSet(f))
	}
}

// linkSet names the links with their numbers, whatever their order.
func linkSet(f *topology.Fabric) []string {
	var names []string
	for _, l := range f.Links {
		turned := l
		turned.Ends[0], turned.Ends[1] = l.Ends[1], l.Ends[0]
		g := topology.Fabric{Nodes: f.Nodes, Links: []topology.Link{l, turned}}
		names = append(names, min(g.LinkName(0), g.LinkName(1)))
	}
	slices.Sort(names)
	return names
}
