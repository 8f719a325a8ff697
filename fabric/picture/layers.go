package picture

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/fabric/topology"
)

// Distances in the picture, in its own units.
const (
	stepY      = 130 // between layers
	border     = 60
	leastWidth = 420 // room for the legend
	// Between nodes of a layer: room for the longest name, within bounds.
	letter                = 7
	narrowest, widestStep = 40, 160
	// crowded layers have their names aslant.
	crowded = 12
)

// sweeps over the layers put nodes near their neighbours; more change little.
const sweeps = 6

// point is where a node stands.
type point struct{ x, y int }

// layout is where all nodes stand.
type layout struct {
	at            []point
	layer         []int
	width, height int
	slant         bool // names do not fit side by side
}

// placed puts hosts into the lowest layer and each router above its nearest
// host, then orders each layer so that links cross little.
func placed(f *topology.Fabric) layout {
	l := layout{at: make([]point, len(f.Nodes)), layer: distances(f)}
	rows := make([][]int, slices.Max(append(l.layer, 0))+1)
	for i, d := range l.layer {
		rows[d] = append(rows[d], i)
	}
	widest := 1
	for _, r := range rows {
		widest = max(widest, len(r))
	}
	if l.slant = widest > crowded; l.slant {
		l.width = 2*border + narrowest*widest
	} else {
		l.width = 2*border + stepFor(f)*widest
	}
	l.width = max(l.width, leastWidth)
	l.height = 2*border + stepY*(len(rows)-1)
	near := neighbours(f)
	for _, r := range rows {
		l.spread(r)
	}
	for s := range sweeps {
		for i := range rows {
			if s%2 == 1 {
				i = len(rows) - 1 - i
			}
			l.order(rows[i], near)
			l.spread(rows[i])
		}
	}
	for i, d := range l.layer {
		l.at[i].y = l.height - border - stepY*d
	}
	return l
}

// stepFor is the room that a node's name takes.
func stepFor(f *topology.Fabric) int {
	longest := 0
	for _, n := range f.Nodes {
		longest = max(longest, len(n.Name))
	}
	return min(max(letter*longest+letter, narrowest), widestStep)
}

// distances from the nearest host, in links; what no host reaches is with the
// nearest routers.
func distances(f *topology.Fabric) []int {
	near := neighbours(f)
	far := make([]int, len(f.Nodes))
	var queue []int
	for i, n := range f.Nodes {
		if far[i] = 1; n.Host {
			far[i] = 0
			queue = append(queue, i)
		}
	}
	seen := make([]bool, len(f.Nodes))
	for _, i := range queue {
		seen[i] = true
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, n := range near[at] {
			if !seen[n] {
				seen[n], far[n] = true, far[at]+1
				queue = append(queue, n)
			}
		}
	}
	return far
}

func neighbours(f *topology.Fabric) [][]int {
	near := make([][]int, len(f.Nodes))
	for _, l := range f.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		near[a], near[b] = append(near[a], b), append(near[b], a)
	}
	return near
}

// spread puts a row's nodes evenly over the width, in their order.
func (l *layout) spread(row []int) {
	for i, n := range row {
		l.at[n].x = (2*i + 1) * l.width / (2 * len(row))
	}
}

// order sorts a row by the middle of each node's neighbours in other rows.
func (l *layout) order(row []int, near [][]int) {
	middle := map[int]int{}
	for _, n := range row {
		sum, count := 0, 0
		for _, m := range near[n] {
			if l.layer[m] != l.layer[n] {
				sum, count = sum+l.at[m].x, count+1
			}
		}
		if middle[n] = l.at[n].x; count > 0 {
			middle[n] = sum / count
		}
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
}
