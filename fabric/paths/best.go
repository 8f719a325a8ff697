package paths

import (
	"math"
	"math/rand/v2"
)

// best writes the least loaded path to p (see Scheduler); steered: only of
// those that a selector can choose. False: there is none. s.mu is held.
//
// It looks at each link once, not at each path: from the end on, the least
// maximum that is possible from each state, then the least sum among the ways
// that have it.
func (s *Scheduler) best(r *Routes, steered bool, random uint64, p *Path) bool {
	s.countThrough(r)
	all := make([]ways, len(r.parts))
	least := math.Inf(1)
	for i := range all {
		all[i] = newWays(s, &r.parts[i], steered)
		least = min(least, all[i].maximum())
	}
	if math.IsInf(least, 1) {
		return false
	}
	sum := math.Inf(1)
	for i := range all {
		sum = min(sum, all[i].sums(least))
	}
	// Any of the equally good ones, each with the same chance.
	source := rand.New(rand.NewPCG(random, 0))
	var chosen *part
	total := 0.0
	for i := range all {
		if all[i].sum == sum {
			total += all[i].number[all[i].start()]
			if source.Float64()*total < all[i].number[all[i].start()] {
				chosen = &r.parts[i]
				p.Hops = all[i].walk(source, p.Hops[:0])
			}
		}
	}
	s.net.fill(chosen, p)
	return true
}

// countThrough counts, for each link and direction, the paths of r over it.
func (s *Scheduler) countThrough(r *Routes) {
	for _, i := range s.counted {
		s.through[i] = 0
	}
	s.counted, s.all = s.counted[:0], r.count
	for i := range r.parts {
		t := &r.parts[i]
		s.pass(t.head, t.count)
		for _, h := range t.tail {
			s.pass(h, t.count)
		}
		if t.graph == nil {
			continue
		}
		order := t.graph.after(t.start)
		to := make([]uint64, len(t.graph.count)) // paths from the start to a state
		to[t.start] = 1
		for k := len(order) - 1; k >= 0; k-- {
			for _, e := range t.graph.out(order[k]) {
				to[e.to] = plus(to[e.to], to[order[k]])
				s.pass(Hop{int(e.link), int(e.from)}, times(to[order[k]], t.graph.count[e.to]))
			}
		}
	}
}

func (s *Scheduler) pass(h Hop, count uint64) {
	i := 2*h.Link + h.From
	if s.through[i] == 0 {
		s.counted = append(s.counted, i)
	}
	s.through[i] = plus(s.through[i], count)
}

// shared tells whether all paths that were counted pass the link.
func (s *Scheduler) shared(h Hop) bool {
	n := s.through[2*h.Link+h.From]
	return n >= s.all && n != saturated
}

// times multiplies and saturates.
func times(a, b uint64) uint64 {
	if a != 0 && b > saturated/a {
		return saturated
	}
	return a * b
}

// after are the states from one on, each behind all that follow it.
func (g *graph) after(start int32) (order []int32) {
	seen := make([]bool, len(g.count))
	var visit func(int32)
	visit = func(s int32) {
		if seen[s] {
			return
		}
		seen[s] = true
		for _, e := range g.out(s) {
			visit(e.to)
		}
		order = append(order, s)
	}
	visit(start)
	return order
}

// ways are the loads of one part's paths.
type ways struct {
	*Scheduler
	part    *part
	steered bool
	order   []int32
	ends    float64   // the largest load of head and tail
	least   []float64 // by state: from it to the end, the least maximum
	rest    []float64 // and the least sum among those that hold the bound
	number  []float64 // and how many have that
	bound   float64
	sum     float64
}

func newWays(s *Scheduler, t *part, steered bool) ways {
	w := ways{Scheduler: s, part: t, steered: steered}
	states := 1 // a link alone: one state, which nothing leads to
	if t.graph != nil {
		w.order = t.graph.after(t.start)
		states = len(t.graph.count)
	}
	w.least, w.rest, w.number = make([]float64, states), make([]float64, states), make([]float64, states)
	return w
}

// start is the state at which the part's graph begins; 0 where it has none.
func (w *ways) start() int32 { return w.part.start }

// weight is a link's load; nothing if all paths pass it.
func (w *ways) weight(h Hop) float64 {
	if w.shared(h) {
		return 0
	}
	return w.load(h)
}

// edge is an edge's load; infinite if it cannot be selected, but has to be.
func (w *ways) edge(e edge) float64 {
	if w.steered && e.choice && w.net.digit(e) == NoPort {
		return math.Inf(1)
	}
	return w.weight(Hop{int(e.link), int(e.from)})
}

// maximum is the least that the most loaded link of a path can have.
func (w *ways) maximum() float64 {
	w.ends = w.weight(w.part.head)
	for _, h := range w.part.tail {
		w.ends = max(w.ends, w.weight(h))
	}
	for _, state := range w.order {
		least := math.Inf(1)
		if state == w.part.graph.end {
			least = 0
		}
		for _, e := range w.part.graph.out(state) {
			least = min(least, max(w.edge(e), w.least[e.to]))
		}
		w.least[state] = least
	}
	return max(w.ends, w.least[w.start()])
}

// sums is the least sum of loads of paths none of whose links has more than bound.
func (w *ways) sums(bound float64) float64 {
	w.bound, w.sum = bound, math.Inf(1)
	if w.ends > bound {
		return w.sum
	}
	if w.part.graph == nil {
		w.number[w.start()] = 1
	}
	for _, state := range w.order {
		w.rest[state] = math.Inf(1)
		if state == w.part.graph.end {
			w.rest[state], w.number[state] = 0, 1
		}
		for _, e := range w.part.graph.out(state) {
			load := w.edge(e)
			sum := load + w.rest[e.to]
			switch {
			case load > bound || sum > w.rest[state] || math.IsInf(sum, 1):
			case sum < w.rest[state]:
				w.rest[state], w.number[state] = sum, w.number[e.to]
			default:
				w.number[state] += w.number[e.to]
			}
		}
	}
	w.sum = w.weight(w.part.head) + w.rest[w.start()]
	for _, h := range w.part.tail {
		w.sum += w.weight(h)
	}
	return w.sum
}

// walk takes one of the best paths.
func (w *ways) walk(source *rand.Rand, hops []Hop) []Hop {
	hops = append(hops, w.part.head)
	if w.part.graph == nil {
		return hops
	}
	for state := w.start(); state != w.part.graph.end; {
		var taken edge
		total := 0.0
		for _, e := range w.part.graph.out(state) {
			if load := w.edge(e); load <= w.bound && load+w.rest[e.to] == w.rest[state] {
				total += w.number[e.to]
				if source.Float64()*total < w.number[e.to] {
					taken = e
				}
			}
		}
		hops = append(hops, Hop{int(taken.link), int(taken.from)})
		state = taken.to
	}
	return append(hops, w.part.tail...)
}

// fill completes a path whose hops are known to be the part's.
func (n *Net) fill(t *part, p *Path) {
	p.Src, p.Dst, p.Steps = t.src, t.dst, p.Steps[:0]
	if t.graph == nil {
		return
	}
	state, ttl := t.start, n.fabric.Nodes[t.src.Node].TTL
	for _, h := range p.Hops[1:] {
		for _, e := range t.graph.out(state) {
			if int(e.link) == h.Link {
				n.step(p, e, ttl)
				state = e.to
				break
			}
		}
		ttl--
	}
}
