package paths

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Choice is what one node with several equal next hops on a flow's way does.
type Choice struct {
	Node  int
	TTL   uint8         // as it receives the packet
	Hops  []pathsel.Hop // the equal next hops
	Taken int           // index into Hops; -1: nobody knows
	How   pathsel.How
}

// Of is the path of the flow, whose packets begin with ttl (0: the source
// node's), and what each router with several equal next hops does. Where a
// plain router chooses, or a host with several links, the path ends before it
// and known is false. Errors: ErrUnknown, ErrNoPath.
func (n *Net) Of(f pathsel.Flow, ttl uint8) (p Path, choices []Choice, known bool, err error) {
	f.Src, f.Dst = f.Src.Unmap(), f.Dst.Unmap()
	if f.Src.Is4() != f.Dst.Is4() {
		return p, nil, false, fmt.Errorf("flow from %s to %s: addresses are not of one family", f.Src, f.Dst)
	}
	src, err := n.Place(f.Src.String())
	if err != nil {
		return p, nil, false, err
	}
	dst, err := n.Place(f.Dst.String())
	if err != nil {
		return p, nil, false, err
	}
	routes, err := n.Routes(src, dst, Rules{})
	if err != nil {
		return p, nil, false, err
	}
	ttl = cmp.Or(ttl, n.fabric.Nodes[src.Node].TTL)
	p = Path{Src: n.narrow(src), Dst: n.narrow(dst)}
	if len(routes.parts) > 1 {
		c := Choice{Node: src.Node, TTL: ttl, Taken: -1}
		for range routes.parts {
			c.Hops = append(c.Hops, pathsel.Hop{Port: -1, Weight: 1})
		}
		return p, []Choice{c}, false, nil
	}
	part := &routes.parts[0]
	p.Hops = append(p.Hops, part.head)
	if part.graph == nil {
		return p, nil, true, nil
	}
	usual := n.fabric.Nodes[src.Node].TTL
	for s := part.start; s != part.graph.end; ttl, usual = ttl-1, usual-1 {
		if ttl == 0 {
			return p, choices, false, fmt.Errorf("time to live: it is 0 before %s is reached; begin with more", n.placeName(dst))
		}
		e, choice, err := n.choose(part.graph.out(s), f, ttl)
		if err != nil {
			return p, choices, false, err
		}
		if choice != nil {
			choices = append(choices, *choice)
			if choice.Taken < 0 {
				return p, choices, false, nil
			}
			p.Steps = append(p.Steps, pathsel.Step{TTL: usual, Port: n.digit(e)})
		}
		p.Hops = append(p.Hops, Hop{int(e.link), int(e.from)})
		s = e.to
	}
	p.Hops = append(p.Hops, part.tail...)
	return p, choices, true, nil
}

// choose is what a router does among edges, and how if there is a choice.
func (n *Net) choose(group []edge, f pathsel.Flow, ttl uint8) (edge, *Choice, error) {
	if len(group) == 1 {
		return group[0], nil, nil
	}
	node := n.fabric.Links[group[0].link].Ends[group[0].from].Node
	c := &Choice{Node: node, TTL: ttl, Taken: -1}
	for _, e := range group {
		c.Hops = append(c.Hops, pathsel.Hop{Port: n.fabric.Links[e.link].Ends[e.from].Port, Weight: 1})
	}
	if n.fabric.Nodes[node].Plain {
		return edge{}, c, nil
	}
	g, err := n.selector.Group(c.Hops, n.known[node])
	if err != nil {
		return edge{}, nil, fmt.Errorf("router %s: %w", n.name(node), err)
	}
	c.Taken, c.How = pathsel.NewRouter(n.selector, n.name(node)).Choose(f, ttl, g)
	return group[c.Taken], c, nil
}

// narrow keeps the address of a place only if one link belongs to it.
func (n *Net) narrow(p Place) Place {
	if n.linkOf(p.Addr) < 0 {
		p.Addr = netip.Addr{}
	}
	return p
}
