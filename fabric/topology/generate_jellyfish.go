package topology

import (
	"cmp"
	"fmt"
	"math/rand/v2"
)

// Jellyfish joins switches at random (Singla et al., NSDI 2012): each has
// degree links to others, no two between the same, and hosts of its own.
// switches·degree must be even, degree 3 or more, less than switches and at most
// 64. The fabric is whole: there is a path between any two hosts.
// Switches' ports to each other are 0 to degree-1, in the order of the
// neighbours. Which fabric it is depends on what random draws.
func Jellyfish(switches, degree, hosts int, random *rand.Rand) (*Fabric, error) {
	if err := cmp.Or(
		within("jellyfish", "switches", switches, 4, 1<<14),
		within("jellyfish", "degree", degree, 3, min(maxRadix, switches-1)),
		within("jellyfish", "hosts of a switch", hosts, 1, 512),
	); err != nil {
		return nil, err
	}
	if switches*degree%2 != 0 {
		return nil, fmt.Errorf("jellyfish: %d switches with %d links to others: one of both must be even", switches, degree)
	}
	d := newDrawing(switches*(hosts+1), switches*(hosts+degree/2))
	for h := range switches * hosts {
		d.node(fmt.Sprintf("host-%d", h), true)
	}
	first := len(d.fabric.Nodes)
	for s := range switches {
		d.node(fmt.Sprintf("switch-%d", s), false)
	}
	for h := range switches * hosts {
		d.link(h, unnumbered, first+h/hosts, unnumbered)
	}
	joined := regular(switches, degree, random)
	for joined == nil || !whole(joined) { // rare, but for few switches
		joined = regular(switches, degree, random)
	}
	next := make([]int, switches)
	for a := range switches {
		for b := a + 1; b < switches; b++ {
			if joined[a][b] {
				d.link(first+a, next[a], first+b, next[b])
				next[a]++
				next[b]++
			}
		}
	}
	return d.done(), nil
}

// regular draws a graph in which all nodes have the same degree, as Jellyfish
// does (§3): two nodes with free ports that are not joined yet are joined, any
// two at a time; where there are no more, a link is taken out to make room
// for a node that has ports left, or for two that are neighbours. Nil: it came
// to where no link makes room.
func regular(nodes, degree int, random *rand.Rand) []map[int]bool {
	g := make([]map[int]bool, nodes)
	free := make([]int, nodes)
	for i := range g {
		g[i], free[i] = map[int]bool{}, degree
	}
	join := func(a, b int) {
		g[a][b], g[b][a] = true, true
		free[a]--
		free[b]--
	}
	for {
		a, b, ok := joinable(g, free, random)
		if !ok {
			break
		}
		join(a, b)
	}
	for range 100 * nodes {
		a, b, left := unfinished(free)
		if !left {
			return g
		}
		// Replace a link x-y by a-x and b-y.
		x := random.IntN(nodes)
		y, ok := neighbour(g, x, random)
		if !ok || x == a || x == b || y == a || y == b || g[a][x] || g[b][y] {
			continue
		}
		delete(g[x], y)
		delete(g[y], x)
		free[x]++
		free[y]++
		join(a, x)
		join(b, y)
	}
	return nil
}

// whole tells whether all nodes can be reached from the first.
func whole(g []map[int]bool) bool {
	reached := map[int]bool{0: true}
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		for n := range g[queue[0]] {
			if !reached[n] {
				reached[n] = true
				queue = append(queue, n)
			}
		}
	}
	return len(reached) == len(g)
}

// joinable draws two nodes with free ports that are not joined; false: there
// are none.
func joinable(g []map[int]bool, free []int, random *rand.Rand) (a, b int, ok bool) {
	var open []int
	for i, n := range free {
		if n > 0 {
			open = append(open, i)
		}
	}
	random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for i, a := range open {
		for _, b := range open[i+1:] {
			if !g[a][b] {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// unfinished is a node with two free ports, twice, or two with one each.
func unfinished(free []int) (a, b int, left bool) {
	a = -1
	for i, n := range free {
		switch {
		case n >= 2:
			return i, i, true
		case n == 1 && a >= 0:
			return a, i, true
		case n == 1:
			a = i
		}
	}
	return 0, 0, false
}

// neighbour draws one of a node's; false: it has none.
func neighbour(g []map[int]bool, x int, random *rand.Rand) (int, bool) {
	if len(g[x]) == 0 {
		return 0, false
	}
	nth := random.IntN(len(g[x]))
	for y := range len(g) { // a map's own order is not the same twice
		if g[x][y] {
			if nth == 0 {
				return y, true
			}
			nth--
		}
	}
	return 0, false
}
