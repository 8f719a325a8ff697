package fattree

import "container/heap"

// maxMin is the max-min fair rate of every subflow, where every link carries
// 1: progressive filling. All rates grow alike until a link is full; the
// subflows on it stay as they are, the others grow on.
func maxMin(links int, all []subflow) []float64 {
	f := filling{share: make([]float64, links), rest: make([]float64, links), growing: make([]int32, links)}
	on := subflowsOn(links, all)
	for l := range links {
		if f.growing[l] = int32(len(on[l])); f.growing[l] > 0 {
			f.rest[l] = 1
			f.share[l] = 1 / float64(f.growing[l])
			f.links = append(f.links, int32(l))
		}
	}
	heap.Init(&f)
	const growing = -1
	rates := make([]float64, len(all))
	for i := range rates {
		rates[i] = growing
	}
	for len(f.links) > 0 {
		l := f.links[0]
		if f.growing[l] == 0 {
			heap.Pop(&f)
			continue
		}
		// Shares only grow as other links fill up: what is known of one is
		// brought up to date when it is the least.
		if share := max(0, f.rest[l]) / float64(f.growing[l]); share > f.share[l] {
			f.share[l] = share
			heap.Fix(&f, 0)
			if f.links[0] != l {
				continue
			}
		}
		for _, i := range on[l] {
			if rates[i] != growing {
				continue
			}
			rates[i] = f.share[l]
			for _, m := range all[i].links {
				f.rest[m] -= rates[i]
				f.growing[m]--
			}
		}
	}
	return rates
}

// subflowsOn are the subflows of each link.
func subflowsOn(links int, all []subflow) [][]int32 {
	on := make([][]int32, links)
	for i, s := range all {
		for _, l := range s.links {
			on[l] = append(on[l], int32(i))
		}
	}
	return on
}

// filling is the links that are not full yet, the least share first.
type filling struct {
	links   []int32
	share   []float64 // what each growing subflow would get, or less
	rest    []float64 // of the link's capacity
	growing []int32   // subflows on it
}

func (f *filling) Len() int { return len(f.links) }

// Less is in the order of the links where shares are equal, so that the sums
// are the same whatever the heap does.
func (f *filling) Less(i, j int) bool {
	a, b := f.links[i], f.links[j]
	return f.share[a] < f.share[b] || f.share[a] == f.share[b] && a < b
}

func (f *filling) Swap(i, j int) { f.links[i], f.links[j] = f.links[j], f.links[i] }
func (f *filling) Push(any)      { panic("fattree: no link becomes less full") }
func (f *filling) Pop() any {
	last := len(f.links) - 1
	l := f.links[last]
	f.links = f.links[:last]
	return l
}

// throughputs are the rates of connections: the sums of their subflows'.
func throughputs(connections int, all []subflow, rates []float64) []float64 {
	sums := make([]float64, connections)
	for i, s := range all {
		sums[s.connection] += rates[i]
	}
	return sums
}

// optimum is what connections get if nothing but the hosts' links bounds them:
// what a fabric of full bisection bandwidth can carry, if paths are split as
// finely as needed.
func (t tree) optimum(all []connection) []float64 {
	direct := make([]subflow, len(all))
	for i, c := range all {
		direct[i] = subflow{i, []int32{t.hostUp(c.from), t.hostDown(c.to)}}
	}
	return maxMin(t.links(), direct)
}
