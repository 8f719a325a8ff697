package paths

import (
	"fmt"
	"iter"
	"net/netip"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Routes is the set of paths between two places, numbered from 0.
type Routes struct {
	net   *Net
	parts []part
	count uint64
	room  [1]part // of most: parts without memory of their own
}

// part is those paths that begin with the same link and end at the same address.
type part struct {
	src, dst Place
	head     Hop
	graph    *graph // nil: the head is the whole path
	start    int32
	tail     []Hop
	cost     int64
	count    uint64
}

// Rules narrow a search. Nodes are indices into Fabric.Nodes, links into
// Fabric.Links.
type Rules struct {
	Via        []int // nodes passed in this order, others between them
	ViaLinks   []int // links passed, in any order; at most 16
	Avoid      []int // nodes
	AvoidLinks []int
}

func (r *Rules) none() bool {
	return len(r.Via)+len(r.ViaLinks)+len(r.Avoid)+len(r.AvoidLinks) == 0
}

// Routes finds the paths of equal cost from a to b that satisfy the rules. None
// is an error that says why and what would work; it wraps ErrNoPath.
func (n *Net) Routes(a, b Place, r Rules) (*Routes, error) {
	if a.Node == b.Node {
		return nil, fmt.Errorf("%w from %s to itself: name two nodes", ErrNoPath, n.name(a.Node))
	}
	all := &Routes{net: n}
	all.parts = all.room[:0]
	var rooms [2][1]class
	for _, from := range n.classes(a, rooms[0][:0]) {
		for _, to := range n.classes(b, rooms[1][:0]) {
			all.parts = n.between(from, to, all.parts)
		}
	}
	if len(all.parts) == 0 {
		return nil, fmt.Errorf("%w from %s to %s: no links that are up connect them", ErrNoPath, n.placeName(a), n.placeName(b))
	}
	if !r.none() {
		if err := all.restrict(r); err != nil {
			return nil, err
		}
	}
	for i := range all.parts {
		all.count = plus(all.count, all.parts[i].count)
	}
	return all, nil
}

func (n *Net) placeName(p Place) string {
	if p.Addr.IsValid() {
		return fmt.Sprintf("%s (%s)", n.name(p.Node), p.Addr)
	}
	return n.name(p.Node)
}

// class is a place by the links that belong to its address; link -1: by all.
type class struct {
	Place
	link int32
}

func (c class) goal() goal { return goal{int32(c.Node), c.link} }

// classes adds the different ways in which a place is reached to out.
func (n *Net) classes(p Place, out []class) []class {
	whole := class{p, -1}
	if n.state[p.Node] >= 0 {
		return append(out, whole)
	}
	if p.Addr.IsValid() {
		whole.link = n.linkOf(p.Addr)
		return append(out, whole)
	}
	for _, a := range n.fabric.Nodes[p.Node].Addresses {
		if n.linkOf(a) < 0 {
			return append(out, whole) // one that all links lead to
		}
	}
	for _, h := range n.out[p.Node] {
		if a := n.fabric.Links[h.link].Ends[h.from].Address; a.IsValid() {
			out = append(out, class{Place{p.Node, a}, h.link})
		}
	}
	if len(out) == 0 {
		out = append(out, whole)
	}
	return out
}

// linkOf is the link on whose end a host's address stands; -1: on none, or on
// several.
func (n *Net) linkOf(a netip.Addr) int32 {
	if link, ok := n.onLink[a]; ok {
		return link
	}
	return -1
}

// between adds the parts of least cost from one class to another.
func (n *Net) between(from, to class, parts []part) []part {
	before, least := len(parts), int64(unreachable)
	add := func(p part) {
		if p.cost < least {
			least, parts = p.cost, parts[:before]
		}
		if p.cost == least && p.count > 0 {
			p.src, p.dst = from.Place, to.Place
			parts = append(parts, p)
		}
	}
	goal := to.goal()
	var routes *routes
	for _, h := range n.ends(from.goal()) {
		head, cost := Hop{int(h.link), int(h.from)}, int64(n.fabric.Links[h.link].Cost)
		if int(h.to) == to.Node {
			if to.link < 0 || to.link == h.link {
				add(part{head: head, cost: cost, count: 1})
			}
			continue
		}
		s := n.state[h.to]
		if s < 0 {
			continue
		}
		if routes == nil {
			routes = n.to(goal)
		}
		if routes.dist[s] == unreachable {
			continue
		}
		for _, t := range routes.tail {
			cost += int64(n.fabric.Links[t.Link].Cost)
		}
		add(part{head: head, cost: cost + routes.dist[s], graph: &routes.graph, start: s, tail: routes.tail, count: routes.count[s]})
	}
	return parts
}

// Count is how many paths there are; 2^64-1 stands for that and more.
func (r *Routes) Count() uint64 { return r.count }

// At writes path number i (below Count) to p, whose slices are used again.
func (r *Routes) At(i uint64, p *Path) {
	for k := range r.parts {
		if c := r.parts[k].count; i < c {
			r.net.write(&r.parts[k], i, p)
			return
		} else if c != saturated {
			i -= c
		}
	}
	panic(fmt.Sprintf("paths: path %d of %d", i, r.count))
}

// write walks a part's graph.
func (n *Net) write(t *part, i uint64, p *Path) {
	p.Src, p.Dst = t.src, t.dst
	p.Hops, p.Steps = append(p.Hops[:0], t.head), p.Steps[:0]
	if t.graph == nil {
		return
	}
	ttl := n.fabric.Nodes[t.src.Node].TTL
	for s := t.start; s != t.graph.end; ttl-- {
		for _, e := range t.graph.out(s) {
			c := t.graph.count[e.to]
			if i >= c && c != saturated {
				i -= c
				continue
			}
			n.step(p, e, ttl)
			p.Hops = append(p.Hops, Hop{int(e.link), int(e.from)})
			s = e.to
			break
		}
	}
	p.Hops = append(p.Hops, t.tail...)
}

// step adds the choice of an edge, if there is one, by a router that receives ttl.
func (n *Net) step(p *Path, e edge, ttl uint8) {
	if e.choice {
		p.Steps = append(p.Steps, pathsel.Step{TTL: ttl, Port: n.digit(e)})
	}
}

// digit is what selects an edge, or NoPort.
func (n *Net) digit(e edge) uint8 {
	end := &n.fabric.Links[e.link].Ends[e.from]
	if end.Port < 0 || end.Port >= n.fabric.Selector.Radix || n.fabric.Nodes[end.Node].Plain {
		return NoPort
	}
	return uint8(end.Port)
}

// All is every path, by number. Each is the caller's own.
func (r *Routes) All() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for i := uint64(0); i < r.count; i++ {
			var p Path
			r.At(i, &p)
			if !yield(p) {
				return
			}
		}
	}
}

// Nodes are those that the path passes, its ends included.
func (n *Net) Nodes(p *Path) []int {
	out := []int{p.Src.Node}
	for _, h := range p.Hops {
		out = append(out, n.fabric.Links[h.Link].Ends[1-h.From].Node)
	}
	return out
}

// addressFor is an address of a path's end that the path's link belongs to.
func (n *Net) addressFor(end Place, link int, six bool) (netip.Addr, bool) {
	fits := func(a netip.Addr) bool {
		if !a.IsValid() || a.Is6() != six {
			return false
		}
		on := n.linkOf(a)
		return on < 0 || on == int32(link) || n.state[end.Node] >= 0
	}
	if end.Addr.IsValid() {
		return end.Addr, fits(end.Addr)
	}
	for _, a := range n.fabric.Nodes[end.Node].Addresses {
		if fits(a) {
			return a, true
		}
	}
	for _, e := range n.fabric.Links[link].Ends {
		if e.Node == end.Node && fits(e.Address) {
			return e.Address, true
		}
	}
	return netip.Addr{}, false
}
