package mptcp

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/fabric/paths"
)

// mostWays bounds how many paths between two nodes are looked at: of more, a
// random choice.
const mostWays = 512

// ways are the paths between two nodes.
type ways struct {
	paths []paths.Path
	// common are links that all paths have: nothing gets around them.
	common map[paths.Hop]bool
}

// waysBetween are the paths that the fabric has between two nodes, under any of
// their addresses.
func waysBetween(net *paths.Net, from, to int) (*ways, error) {
	routes, err := net.Routes(paths.Place{Node: from}, paths.Place{Node: to}, paths.Rules{})
	if err != nil {
		return nil, err
	}
	w := &ways{common: map[paths.Hop]bool{}}
	if routes.Count() <= mostWays {
		w.paths = slices.Collect(routes.All())
	} else {
		for range mostWays {
			var p paths.Path
			routes.At(rand.Uint64N(routes.Count()), &p)
			w.paths = append(w.paths, p)
		}
	}
	passes := map[paths.Hop]int{}
	for _, p := range w.paths {
		for _, h := range p.Hops {
			passes[h]++
		}
	}
	for h, n := range passes {
		if n == len(w.paths) {
			w.common[h] = true
		}
	}
	return w, nil
}

// uses counts subflows on links, by the direction in which they pass them.
type uses map[paths.Hop]int

func (u uses) add(hops []paths.Hop) {
	for _, h := range hops {
		u[h]++
	}
}

// view is what a connection goes by when it looks for a path.
type view struct {
	own    uses // of its own subflows
	others uses // of this host's other connections
	failed uses // how often it lost a subflow over these links
	avoid  func(paths.Hop) bool
	unfit  func(path int) bool // cannot be taken
}

// worth orders paths: the less the better, field by field.
type worth struct {
	most   int // subflows of the connection on the link that has most of them
	failed int // of the link that lost most
	sum    int // subflows of the connection on all links
	others int // subflows of other connections on the link that has most
	random uint64
}

func (a worth) compare(b worth) int {
	return cmp.Or(cmp.Compare(a.most, b.most), cmp.Compare(a.failed, b.failed), cmp.Compare(a.sum, b.sum),
		cmp.Compare(a.others, b.others), cmp.Compare(a.random, b.random))
}

// next is the path that a connection should use beside those that it uses, and
// how many of its subflows share a link with it; links that all paths share do
// not count unless there is one path, and paths over links to avoid are left
// out. False: none is left.
func (w *ways) next(v view) (index, shared int, ok bool) {
	var best worth
	for i := range w.paths {
		n, usable := w.worth(i, v)
		if !usable || v.unfit(i) {
			continue
		}
		if !ok || n.compare(best) < 0 {
			best, index, ok = n, i, true
		}
	}
	return index, best.most, ok
}

func (w *ways) worth(i int, v view) (n worth, usable bool) {
	n.random = rand.Uint64()
	for _, h := range w.paths[i].Hops {
		if w.common[h] && len(w.paths) > 1 {
			continue // the only path's links are all common
		}
		if v.avoid(h) {
			return n, false
		}
		n.most = max(n.most, v.own[h])
		n.failed = max(n.failed, v.failed[h])
		n.sum += v.own[h]
		n.others = max(n.others, v.others[h])
	}
	return n, true
}
