package paths

import (
	"fmt"
	"net/netip"
	"slices"
)

// Number is the number of the path over these links among all, as At counts;
// false: it is none of them.
func (r *Routes) Number(hops []Hop) (number uint64, ok bool) {
	for k := range r.parts {
		t := &r.parts[k]
		if i, ok := t.number(hops); ok {
			return plus(number, i), true
		}
		number = plus(number, t.count)
	}
	return 0, false
}

func (t *part) number(hops []Hop) (number uint64, ok bool) {
	if len(hops) == 0 || hops[0] != t.head {
		return 0, false
	}
	hops = hops[1:]
	if t.graph == nil {
		return 0, len(hops) == 0
	}
	for state := t.start; state != t.graph.end; hops = hops[1:] {
		if len(hops) == 0 {
			return 0, false
		}
		out := t.graph.out(state)
		taken := slices.IndexFunc(out, func(e edge) bool { return Hop{int(e.link), int(e.from)} == hops[0] })
		if taken < 0 || t.graph.count[out[taken].to] == 0 {
			return 0, false
		}
		for _, e := range out[:taken] {
			number = plus(number, t.graph.count[e.to])
		}
		state = out[taken].to
	}
	return number, slices.Equal(hops, t.tail)
}

// At narrows a place to the address that packets have there, the zero one
// being any. It fails for an address that the file gives to another node, and
// for one that it does not have if it has others of that node and family.
func (n *Net) At(p Place, a netip.Addr) (Place, error) {
	if a = a.Unmap(); !a.IsValid() || a == p.Addr {
		return p, nil
	}
	q, known := n.places[a]
	switch {
	case known && q.Node == p.Node && !p.Addr.IsValid():
		return q, nil
	case known && q.Node == p.Node:
		return p, nil
	case known:
		return p, fmt.Errorf("%s is an address of %s, not of %s", a, n.name(q.Node), n.name(p.Node))
	}
	if has := n.first(p.Node, a.Is6()); has.IsValid() {
		return p, fmt.Errorf("%s is no address of %s, by the file; write one that is, such as %s, or add it there", a, n.name(p.Node), has)
	}
	return p, nil
}

// first is the least address of a node in the family; invalid: it has none.
func (n *Net) first(node int, six bool) (least netip.Addr) {
	for a, p := range n.places {
		if p.Node == node && a.Is6() == six && (!least.IsValid() || a.Less(least)) {
			least = a
		}
	}
	return least
}
