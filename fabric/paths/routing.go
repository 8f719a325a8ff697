package paths

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
)

// goal is a destination of routes: a node by all its links (link -1), or by one.
type goal struct{ node, link int32 }

// graph is the next hops to one destination: states, mostly routers, and from
// each the edges to states nearer to it. end has no edges.
type graph struct {
	end   int32
	first []int32 // edges[first[s]:first[s+1]] are those of state s
	edges []edge
	count []uint64 // paths from a state to the end; saturates
}

// edge is a link that leads from a state to one nearer to the destination.
type edge struct {
	link int32
	to   int32 // state
	from uint8 // which end of the link the packet enters
	// choice: the router has several equal next hops, so that somebody chooses.
	choice bool
}

func (g *graph) out(state int32) []edge { return g.edges[g.first[state]:g.first[state+1]] }

// routes are the next hops to a goal. Hosts behind one link share those to
// their router: the rest of the way is tail.
type routes struct {
	graph
	dist []int64 // from a state to the goal; unreachable: no way
	tail []Hop
}

const unreachable = math.MaxInt64

// to finds the routes to a goal, or has them.
func (n *Net) to(g goal) *routes {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.routes[g]; r != nil {
		return r
	}
	r := n.route(g)
	n.routes[g] = r
	return r
}

// ends are the links by which a goal is reached, as the goal sees them.
func (n *Net) ends(g goal) []half {
	if g.link < 0 {
		return n.out[g.node]
	}
	for i, h := range n.out[g.node] {
		if h.link == g.link {
			return n.out[g.node][i : i+1]
		}
	}
	return nil
}

// route computes routes to a goal; n.mu is held.
func (n *Net) route(g goal) *routes {
	if s := n.state[g.node]; s >= 0 {
		return n.shortest(s, nil)
	}
	ends := n.ends(g)
	if len(ends) == 1 && n.state[ends[0].to] >= 0 {
		// The router's own routes, and one link more.
		router := goal{ends[0].to, -1}
		shared := n.routes[router]
		if shared == nil {
			shared = n.route(router)
			n.routes[router] = shared
		}
		r := *shared
		r.tail = []Hop{{int(ends[0].link), 1 - int(ends[0].from)}}
		return &r
	}
	return n.shortest(int32(len(n.router)), ends)
}

// shortest is Dijkstra's algorithm from the end on. An end that is no router
// is the state after all routers, and hangs on ends.
func (n *Net) shortest(end int32, ends []half) *routes {
	states := max(len(n.router), int(end)+1)
	r := &routes{graph: graph{end: end, first: make([]int32, states+1), count: make([]uint64, states)}, dist: make([]int64, states)}
	for i := range r.dist {
		r.dist[i] = unreachable
	}
	r.dist[end] = 0
	order := make([]int32, 0, states)
	queue := &byDistance{{end, 0}}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(reached)
		if at.dist > r.dist[at.state] {
			continue // a shorter way was found meanwhile
		}
		order = append(order, at.state)
		neighbours := ends
		if int(at.state) < len(n.router) {
			neighbours = n.out[n.router[at.state]]
		}
		for _, h := range neighbours {
			s := n.state[h.to]
			if s < 0 {
				continue
			}
			if d := at.dist + int64(n.fabric.Links[h.link].Cost); d < r.dist[s] {
				r.dist[s] = d
				heap.Push(queue, reached{s, d})
			}
		}
	}
	n.connect(r, ends)
	r.countFrom(order)
	return r
}

// connect fills in the edges: the links that lie on a shortest way.
func (n *Net) connect(r *routes, ends []half) {
	final := map[int32]bool{}
	for _, h := range ends {
		final[h.link] = true
	}
	for s := range n.router {
		r.first[s] = int32(len(r.edges))
		if r.dist[s] == unreachable || int32(s) == r.end {
			continue
		}
		for _, h := range n.out[n.router[s]] {
			to := n.state[h.to]
			if final[h.link] {
				to = r.end
			}
			if to >= 0 && r.dist[to] != unreachable && r.dist[to]+int64(n.fabric.Links[h.link].Cost) == r.dist[s] {
				r.edges = append(r.edges, edge{link: h.link, to: to, from: h.from})
			}
		}
		group := r.edges[r.first[s]:]
		for i := range group {
			group[i].choice = len(group) > 1
		}
	}
	for s := len(n.router); s < len(r.first); s++ {
		r.first[s] = int32(len(r.edges))
	}
}

// countFrom counts paths; order has nearer states first.
func (g *graph) countFrom(order []int32) {
	for _, s := range order {
		if s == g.end {
			g.count[s] = 1
		}
		for _, e := range g.out(s) {
			g.count[s] = plus(g.count[s], g.count[e.to])
		}
	}
}

// plus adds and saturates.
func plus(a, b uint64) uint64 {
	if a+b < a {
		return saturated
	}
	return a + b
}

// sortGroup puts a node's links into the order in which routers have the hops
// of a group.
func (n *Net) sortGroup(group []half) {
	slices.SortStableFunc(group, func(a, b half) int {
		// -1, no number, becomes the largest.
		return cmp.Compare(uint(n.fabric.Links[a.link].Ends[a.from].Port), uint(n.fabric.Links[b.link].Ends[b.from].Port))
	})
}

// reached is a state in Dijkstra's queue.
type reached struct {
	state int32
	dist  int64
}

type byDistance []reached

func (q byDistance) Len() int           { return len(q) }
func (q byDistance) Less(i, j int) bool { return q[i].dist < q[j].dist }
func (q byDistance) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *byDistance) Push(x any)        { *q = append(*q, x.(reached)) }
func (q *byDistance) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// joined lists names in order.
func joined(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// saturated stands for this many paths and more.
const saturated = math.MaxUint64
