package paths

import (
	"fmt"
	"slices"
	"strings"
)

// maxViaLinks bounds Rules.ViaLinks: each doubles the states of a search.
const maxViaLinks = 16

// restrict keeps those paths that satisfy the rules. Its error says where the
// paths without them lead.
func (r *Routes) restrict(rules Rules) error {
	if len(rules.ViaLinks) > maxViaLinks {
		return fmt.Errorf("%w: %d links to pass: at most %d", ErrNoPath, len(rules.ViaLinks), maxViaLinks)
	}
	var kept []part
	for i := range r.parts {
		s := search{net: r.net, rules: &rules, part: &r.parts[i], number: map[point]int32{}}
		if p := s.run(); p.count > 0 {
			kept = append(kept, p)
		}
	}
	if len(kept) == 0 {
		return r.whyNot(&rules)
	}
	r.parts = kept
	return nil
}

// point is a state of a part's graph together with what of the rules is done.
type point struct {
	state int32
	via   int32  // of Rules.Via, how many were passed
	links uint32 // of Rules.ViaLinks, which
}

// search makes a part's graph into that of the paths that satisfy the rules:
// its states are points. Points from which no path ends well count 0.
type search struct {
	net    *Net
	rules  *Rules
	part   *part
	number map[point]int32
	graph  graph
	out    [][]edge // by point, until the graph is complete
	count  []uint64
}

const endPoint = 0

func (s *search) run() part {
	p := *s.part
	p.count = 0
	at, ok := s.pass(point{via: s.passes(0, p.src.Node), state: p.start}, p.head.Link, p.head.From)
	if !ok {
		return p
	}
	if p.graph == nil {
		if s.done(at) {
			p.count = 1
		}
		return p
	}
	s.out, s.count = [][]edge{nil}, []uint64{1} // the end's point
	p.start = s.explore(at)
	p.count = s.count[p.start]
	for _, edges := range s.out {
		s.graph.first = append(s.graph.first, int32(len(s.graph.edges)))
		s.graph.edges = append(s.graph.edges, edges...)
	}
	s.graph.first = append(s.graph.first, int32(len(s.graph.edges)))
	s.graph.count, s.graph.end = s.count, endPoint
	p.graph = &s.graph
	return p
}

// explore is the number of the point, with all that follows.
func (s *search) explore(at point) int32 {
	if i, ok := s.number[at]; ok {
		return i
	}
	if at.state == s.part.graph.end {
		for _, h := range s.part.tail {
			var ok bool
			if at, ok = s.pass(at, h.Link, h.From); !ok {
				return s.add(at, nil)
			}
		}
		if s.done(at) {
			return endPoint
		}
		return s.add(at, nil)
	}
	var edges []edge
	for _, e := range s.part.graph.out(at.state) {
		next, ok := s.pass(at, int(e.link), int(e.from))
		if !ok {
			continue
		}
		next.state = e.to
		if e.to = s.explore(next); s.count[e.to] > 0 {
			edges = append(edges, e)
		}
	}
	return s.add(at, edges)
}

func (s *search) add(at point, edges []edge) int32 {
	i := int32(len(s.out))
	s.number[at] = i
	s.out = append(s.out, edges)
	var count uint64
	for _, e := range edges {
		count = plus(count, s.count[e.to])
	}
	s.count = append(s.count, count)
	return i
}

// pass is what is done of the rules behind a link; false: they forbid it.
func (s *search) pass(at point, link, from int) (point, bool) {
	node := s.net.fabric.Links[link].Ends[1-from].Node
	if slices.Contains(s.rules.AvoidLinks, link) || slices.Contains(s.rules.Avoid, node) {
		return at, false
	}
	if i := slices.Index(s.rules.ViaLinks, link); i >= 0 {
		at.links |= 1 << i
	}
	at.via = s.passes(at.via, node)
	return at, true
}

// passes counts a node that is the next to be passed.
func (s *search) passes(via int32, node int) int32 {
	if int(via) < len(s.rules.Via) && s.rules.Via[via] == node {
		via++
	}
	return via
}

func (s *search) done(at point) bool {
	return int(at.via) == len(s.rules.Via) && at.links == 1<<len(s.rules.ViaLinks)-1
}

// whyNot is the error where no path satisfies the rules.
func (r *Routes) whyNot(rules *Rules) error {
	n := r.net
	var wants []string
	list := func(word string, nodes, links []int) {
		var names []string
		for _, i := range nodes {
			names = append(names, n.name(i))
		}
		for _, i := range links {
			names = append(names, n.linkName[i])
		}
		if names != nil {
			wants = append(wants, word+" "+strings.Join(names, ", "))
		}
	}
	list("via", rules.Via, rules.ViaLinks)
	list("without", rules.Avoid, rules.AvoidLinks)
	first := &r.parts[0]
	return fmt.Errorf("%w from %s to %s %s; paths of equal cost pass %s", ErrNoPath,
		n.placeName(first.src), n.placeName(first.dst), strings.Join(wants, " "), r.passed())
}

// namesShown bounds a list of names in an error.
const namesShown = 24

// passed lists the routers on the paths, those that all of them pass and those
// that some do, in their order from the source on.
func (r *Routes) passed() string {
	var names []string
	seen := map[int]bool{}
	for i := range r.parts {
		p := &r.parts[i]
		if p.graph == nil {
			continue
		}
		for queue := []int32{p.start}; len(queue) > 0; queue = queue[1:] {
			s := queue[0]
			if int(s) < len(r.net.router) && !seen[int(s)] {
				seen[int(s)] = true
				names = append(names, r.net.name(int(r.net.router[s])))
				for _, e := range p.graph.out(s) {
					queue = append(queue, e.to)
				}
			}
		}
	}
	switch {
	case len(names) == 0:
		return "no router"
	case len(names) > namesShown:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
	}
	return strings.Join(names, ", ")
}
