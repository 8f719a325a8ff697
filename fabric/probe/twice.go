package probe

import "github.com/fairlead/fairlead/fabric/topology"

// A router answers each side from the address of another interface, unless its
// file entry names them all: learned from both ends of the same ways, it is
// there twice. Nobody can tell from outside; but ways that were known before
// should not pass routers that were not.

// Twice is a router that may be another one under a second name.
type Twice struct {
	New string
	// Old are the routers in its place on the ways that were known.
	Old []string
}

// LearnedTwice are routers that were added between before and after on ways from
// one host to another that before had already. Nodes of before come first in
// after.
func LearnedTwice(before, after *topology.Fabric, from, to string) (found []Twice) {
	there, back, now := distances(before, from), distances(before, to), distances(after, from)
	end, err := before.Find(to)
	if err != nil || there == nil || there[end] < 0 {
		return nil
	}
	for i := len(before.Nodes); i < len(after.Nodes); i++ {
		if after.Nodes[i].Host {
			continue
		}
		t := Twice{New: after.Nodes[i].Name}
		for j, n := range before.Nodes {
			if !n.Host && there[j] >= 0 && there[j]+back[j] == there[end] && there[j] == now[i] {
				t.Old = append(t.Old, n.Name)
			}
		}
		found = append(found, t)
	}
	return found
}

// distances are the links from a node to each other one; -1: there is no way.
// Nil: there is no such node.
func distances(f *topology.Fabric, from string) []int {
	start, err := f.Find(from)
	if err != nil {
		return nil
	}
	far := make([]int, len(f.Nodes))
	for i := range far {
		far[i] = -1
	}
	far[start] = 0
	for reached := []int{start}; len(reached) > 0; reached = reached[1:] {
		for _, l := range f.Links {
			for side, e := range l.Ends {
				if other := l.Ends[1-side].Node; e.Node == reached[0] && far[other] < 0 {
					far[other] = far[e.Node] + 1
					reached = append(reached, other)
				}
			}
		}
	}
	return far
}
