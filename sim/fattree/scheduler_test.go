package fattree

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/soak"
)

// The path service's scheduler, given the same elephants in the same order,
// chooses only among the paths that this one takes for equally good, in the
// order in which they come and in the rounds after.
func TestAgreesWithPathService(t *testing.T) {
	const k, subflows, rounds = 4, 2, 3
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	fabric, err := topology.FatTree(k)
	if err != nil {
		t.Fatal(err)
	}
	fabric.Selector.Key[0] = 1
	net, err := paths.New(fabric)
	if err != nil {
		t.Fatal(err)
	}
	tr := newTree(k)
	theirs, ours := paths.NewScheduler(net), newScheduler(tr, random)
	// follow has ours count what theirs has chosen, if it is one of the best.
	follow := func(c connection, p *paths.Path) []int32 {
		t.Helper()
		links := directed(p)
		ours.best(c)
		good := tr.edgeOf(c.from) == tr.edgeOf(c.to)
		for _, n := range ours.equal {
			good = good || slices.Equal(tr.path(c.from, c.to, n, nil), links)
		}
		if !good {
			t.Fatalf("seed %d: %v: the path service chose %v, which is not one of the best, %v", seed, c, links, ours.equal)
		}
		ours.count(links, 1)
		return links
	}
	type placed struct {
		connection
		id    uint64
		links []int32
	}
	var all []placed
	for _, c := range permutation(tr.hosts, random) {
		for range subflows {
			p, err := theirs.Place(paths.Order{From: paths.Place{Node: c.from}, To: paths.Place{Node: c.to}, Random: random.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, placed{c, p.ID, follow(c, &p.Path)})
		}
	}
	for range rounds {
		for i := range all {
			p, _, err := theirs.Again(all[i].id, random.Uint64())
			if err != nil {
				t.Fatal(err)
			}
			ours.count(all[i].links, -1)
			all[i].links = follow(all[i].connection, &p.Path)
		}
	}
}

func (t tree) edgeOf(host int) int { return host / t.half }

// directed are the numbers of a path's links in their directions.
func directed(p *paths.Path) (links []int32) {
	for _, h := range p.Hops {
		links = append(links, int32(2*h.Link+h.From))
	}
	return links
}
