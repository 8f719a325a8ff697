package paths

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// Net is a fabric with its routing. The fabric must not be changed under it;
// several goroutines may use it.
type Net struct {
	fabric   *topology.Fabric
	selector *pathsel.Selector
	names    map[string]int
	places   map[netip.Addr]Place
	onLink   map[netip.Addr]int32 // hosts' addresses that stand on a link's end
	linkName []string
	byLink   map[string]int
	// out are a node's links that are not down, in the order of its group: by
	// port number, those without one after them.
	out [][]half
	// state is a router's number among all routers, -1 for a host.
	state  []int32
	router []int32 // node by state
	known  []uint64

	mu     sync.Mutex
	routes map[goal]*routes
}

// half is a link as one of its ends sees it.
type half struct {
	link int32
	to   int32 // node
	from uint8 // which of the link's ends this is
}

// New computes no routes yet: those to a destination are found when they are
// first asked for, and kept. It fails for a selector that pathsel refuses.
func New(f *topology.Fabric) (*Net, error) {
	s, err := pathsel.New(f.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector.%w", err)
	}
	n := &Net{fabric: f, selector: s, names: map[string]int{}, places: map[netip.Addr]Place{}, onLink: map[netip.Addr]int32{},
		byLink: map[string]int{}, linkName: f.LinkNames(), routes: map[goal]*routes{},
		out: make([][]half, len(f.Nodes)), state: make([]int32, len(f.Nodes)), known: make([]uint64, len(f.Nodes))}
	for i := range f.Nodes {
		n.names[f.Nodes[i].Name] = i
		n.state[i] = -1
		if !f.Nodes[i].Host {
			n.state[i] = int32(len(n.router))
			n.router = append(n.router, int32(i))
		}
		for _, a := range f.Nodes[i].Addresses {
			n.places[a] = Place{i, a}
		}
	}
	for i := range f.Links {
		n.addLink(i)
	}
	for i := range n.out {
		n.sortGroup(n.out[i])
	}
	return n, nil
}

func (n *Net) addLink(link int) {
	l := &n.fabric.Links[link]
	n.byLink[n.linkName[link]] = link
	for side := range l.Ends {
		e := &l.Ends[side]
		if e.Address.IsValid() {
			n.places[e.Address] = Place{e.Node, e.Address}
			if n.state[e.Node] < 0 {
				on := int32(link)
				if _, twice := n.onLink[e.Address]; twice {
					on = -1
				}
				n.onLink[e.Address] = on
			}
		}
		if e.Port >= 0 && e.Port < pathsel.MaxRadix {
			n.known[e.Node] |= 1 << e.Port
		}
		if !l.Down {
			n.out[e.Node] = append(n.out[e.Node], half{int32(link), int32(l.Ends[1-side].Node), uint8(side)})
		}
	}
}

// Fabric is what New was given.
func (n *Net) Fabric() *topology.Fabric { return n.fabric }

// Selector is the fabric's.
func (n *Net) Selector() *pathsel.Selector { return n.selector }

// Place is where paths begin or end: a node under one of its addresses. A
// host's address that stands on one of its links is reached by that link
// alone, another by all of them. An invalid Addr is any of the node's addresses.
type Place struct {
	Node int
	Addr netip.Addr
}

// Place finds a place by a node's name (any address) or by an address. The
// error wraps ErrUnknown.
func (n *Net) Place(text string) (Place, error) {
	if i, ok := n.names[text]; ok {
		return Place{Node: i}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		if p, ok := n.places[a.Unmap()]; ok {
			return p, nil
		}
		return Place{}, fmt.Errorf("%s: %w: no router or host has this address; write a name, or add it to the file", text, ErrUnknown)
	}
	return Place{}, n.unknown(text, "router or host", n.names)
}

// Node finds a node by its name or one of its addresses.
func (n *Net) Node(text string) (int, error) {
	p, err := n.Place(text)
	return p.Node, err
}

// Link finds a link by its name (LinkName).
func (n *Net) Link(text string) (int, error) {
	if i, ok := n.byLink[text]; ok {
		return i, nil
	}
	return 0, n.unknown(text, "link", n.byLink)
}

// LinkName is topology's, without its cost.
func (n *Net) LinkName(link int) string { return n.linkName[link] }

func (n *Net) unknown(text, kind string, names map[string]int) error {
	all := slices.Sorted(maps.Keys(names))
	remedy := ""
	if near := yamlfile.Nearest(text, all); near != "" {
		remedy = "; did you mean " + near + "?"
	} else if len(all) <= 12 && len(all) > 0 {
		remedy = "; known: " + joined(all)
	}
	return fmt.Errorf("%s: %w: there is no such %s%s", text, ErrUnknown, kind, remedy)
}

// name is a node's.
func (n *Net) name(node int) string { return n.fabric.Nodes[node].Name }
