package diversity

import (
	"context"
	"math"

	"github.com/fairlead/fairlead/fabric/topology"
)

// graph is who is joined to whom; a link that is there twice counts twice. All
// links cost the same in what topology generates.
//
// fabric/paths counts the paths of one pair, by a search each: for all pairs of
// 600 hosts one search a destination, without names and rules, takes seconds
// instead of minutes. A test holds both against each other.
type graph struct {
	near  [][]int32
	host  []bool
	hosts []int32
}

func newGraph(f *topology.Fabric) *graph {
	g := &graph{near: make([][]int32, len(f.Nodes)), host: make([]bool, len(f.Nodes))}
	for i, n := range f.Nodes {
		if g.host[i] = n.Host; n.Host {
			g.hosts = append(g.hosts, int32(i))
		}
	}
	for _, l := range f.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		g.near[a] = append(g.near[a], int32(b))
		g.near[b] = append(g.near[b], int32(a))
	}
	return g
}

// counts of a fabric.
type counts struct {
	// paths is, by number of shortest paths, how many ordered pairs of hosts have
	// so many; hops, by number of next hops, how many pairs of a router and a
	// destination have.
	paths map[uint64]int64
	hops  map[int]int64
	// several is the share of destinations for which a router has two next hops
	// or more, the mean over routers.
	several float64
}

// count goes from every host backwards.
func (g *graph) count(ctx context.Context) (counts, error) {
	c := counts{paths: map[uint64]int64{}, hops: map[int]int64{}}
	w := newWalk(len(g.near))
	routers, several := len(g.near)-len(g.hosts), int64(0)
	for _, to := range g.hosts {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		w.from(g, to)
		for _, from := range g.hosts {
			if from != to {
				c.paths[w.paths[from]]++
			}
		}
		for i := range g.near {
			if g.host[i] || w.paths[i] == 0 {
				continue
			}
			n := g.nextHops(w, int32(i))
			c.hops[n]++
			if n >= 2 {
				several++
			}
		}
	}
	c.several = float64(several) / float64(routers*len(g.hosts))
	return c, nil
}

// nextHops of a router are its links to nodes that are nearer.
func (g *graph) nextHops(w *walk, router int32) (n int) {
	for _, other := range g.near[router] {
		if w.reached[other] && w.far[other] < w.far[router] {
			n++
		}
	}
	return n
}

// walk is a search from one host over routers.
type walk struct {
	reached []bool
	far     []int32  // hops
	paths   []uint64 // shortest ones; math.MaxUint64: so many or more
	queue   []int32
}

func newWalk(nodes int) *walk {
	return &walk{make([]bool, nodes), make([]int32, nodes), make([]uint64, nodes), make([]int32, 0, nodes)}
}

// from counts the shortest paths of every node to a host. Hosts pass nothing on.
func (w *walk) from(g *graph, host int32) {
	clear(w.reached)
	clear(w.paths)
	w.reached[host], w.far[host], w.paths[host] = true, 0, 1
	w.queue = append(w.queue[:0], host)
	for i := 0; i < len(w.queue); i++ {
		at := w.queue[i]
		if g.host[at] && at != host {
			continue
		}
		for _, n := range g.near[at] {
			if !w.reached[n] {
				w.reached[n], w.far[n] = true, w.far[at]+1
				w.queue = append(w.queue, n)
			}
			if w.far[n] == w.far[at]+1 {
				w.paths[n] = add(w.paths[n], w.paths[at])
			}
		}
	}
}

// add does not run over.
func add(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

// atLeast is the share of pairs that have so many paths or more.
func (c counts) atLeast(paths uint64) float64 { return atLeast(c.paths, paths) }

// hopsAtLeast is the share of routers and destinations with so many next hops
// or more.
func (c counts) hopsAtLeast(hops int) float64 { return atLeast(c.hops, hops) }

// mostPaths of any pair, mostHops of any router to any destination.
func (c counts) mostPaths() uint64 { return most(c.paths) }
func (c counts) mostHops() int     { return most(c.hops) }

func atLeast[K int | uint64](counted map[K]int64, least K) float64 {
	some := int64(0)
	for n, count := range counted {
		if n >= least {
			some += count
		}
	}
	return float64(some) / float64(total(counted))
}

func most[K int | uint64](counted map[K]int64) (most K) {
	for n := range counted {
		most = max(most, n)
	}
	return most
}
