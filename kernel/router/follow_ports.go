package router

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/fabric/topology"
)

// Number is a port number that the router gave by itself, as it remembers it:
// a link has its number back when it comes back. Next hops of IPv4 and IPv6
// over one interface are one link, and share it.
type Number struct {
	Port      int        `json:"port"`
	Interface string     `json:"interface"`
	IPv4      netip.Addr `json:"ipv4,omitzero"` // the gateway
	IPv6      netip.Addr `json:"ipv6,omitzero"`
}

// of is the gateway of that one's family.
func (n *Number) of(gateway netip.Addr) *netip.Addr {
	if gateway.Is4() {
		return &n.IPv4
	}
	return &n.IPv6
}

// namedHop is a next hop as people and files know it.
type namedHop struct {
	device  string
	gateway netip.Addr
}

func (h namedHop) compare(g namedHop) int {
	return cmp.Or(cmp.Compare(h.device, g.device), h.gateway.Compare(g.gateway))
}

func (h namedHop) String() string { return fmt.Sprintf("%v dev %s", h.gateway, h.device) }

// fixedPort is a link's end at this router as fabric.yaml has it. Port is -1
// where it gives none.
type fixedPort struct {
	port      int
	device    string
	neighbour netip.Addr
}

// admits: the gateway may be the link's neighbour. The file knows one address
// of it; its link-local one is another.
func (f fixedPort) admits(gateway netip.Addr) bool {
	return !f.neighbour.IsValid() || f.neighbour == gateway || f.neighbour.Is4() != gateway.Is4() || gateway.IsLinkLocalUnicast()
}

// numbering is who has which port number: fabric.yaml's come first, then what
// the router gave itself, to next hops of routes that have several.
type numbering struct {
	fixed    []fixedPort
	stated   bool // fabric.yaml gives numbers to this router
	radix    int
	given    []Number
	warnings []string
}

func newNumbering(f *topology.Fabric, node int, given []Number) *numbering {
	n := &numbering{radix: f.Selector.Radix}
	taken := map[int]bool{}
	for i := range f.Links {
		for side, end := range f.Links[i].Ends {
			if end.Node != node {
				continue
			}
			n.fixed = append(n.fixed, fixedPort{end.Port, end.Device, f.Links[i].Ends[1-side].Address})
			n.stated = n.stated || end.Port >= 0
			taken[end.Port] = true
		}
	}
	// What was given before the file said so gives way.
	for _, g := range given {
		if !taken[g.Port] && g.Port < n.radix {
			n.given = append(n.given, g)
			taken[g.Port] = true
		}
	}
	return n
}

// ports are all numbers of this router, ascending.
func (n *numbering) ports() (ports []int) {
	for _, f := range n.fixed {
		if f.port >= 0 {
			ports = append(ports, f.port)
		}
	}
	for _, g := range n.given {
		ports = append(ports, g.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// inFile finds the link of fabric.yaml that a hop goes over: by its device,
// and where several links share one, or the file names no devices, by the
// neighbour's address.
func (n *numbering) inFile(h namedHop) (port int, ok bool) {
	var same []fixedPort
	for _, f := range n.fixed {
		if f.device == h.device {
			same = append(same, f)
		}
	}
	if len(same) == 1 && same[0].admits(h.gateway) {
		return same[0].port, true
	}
	if len(same) == 0 {
		for _, f := range n.fixed {
			if f.device == "" {
				same = append(same, f)
			}
		}
	}
	for _, f := range same {
		if f.neighbour.IsValid() && f.neighbour == h.gateway {
			return f.port, true
		}
	}
	return -1, false
}

// assign says which number every hop has; -1: none. New numbers are given to
// those that are true, next hops of routes that have several; then given is to
// be remembered (changed).
func (n *numbering) assign(hops map[namedHop]bool) (numbers map[namedHop]int, changed bool) {
	n.warnings = nil
	numbers = map[namedHop]int{}
	type end struct {
		port int
		four bool
	}
	taken := map[end]bool{}
	var unknown []namedHop
	for _, h := range slices.SortedFunc(maps.Keys(hops), namedHop.compare) {
		port, ok := n.inFile(h)
		is := end{port, h.gateway.Is4()}
		switch {
		// Of several neighbours behind a link of the file, the first is its end.
		case ok && !taken[is] && (port >= 0 || n.stated):
			numbers[h] = port
			taken[is] = port >= 0
		case hops[h]:
			unknown = append(unknown, h)
		default:
			numbers[h] = n.was(h)
		}
	}
	for _, h := range unknown {
		port := n.was(h)
		if port < 0 {
			if port = n.join(h); port < 0 {
				port = n.give(h, hops)
			}
			changed = changed || port >= 0
		}
		numbers[h] = port
		switch {
		case port < 0:
			n.warnings = append(n.warnings, fmt.Sprintf("next hop %v has no port number, for all %d of selector.radix are taken: no packet can select it, and it gets some only while another does not work; raise selector.radix in fabric.yaml, on all routers and hosts", h, n.radix))
		case n.stated:
			n.warnings = append(n.warnings, fmt.Sprintf("next hop %v is over no link of fabric.yaml, so this router numbered it %d by itself and the path service knows nothing of it: add the link", h, port))
		}
	}
	return numbers, changed
}

// was is the number that h was given, -1: none.
func (n *numbering) was(h namedHop) int {
	for i := range n.given {
		if g := &n.given[i]; g.Interface == h.device && *g.of(h.gateway) == h.gateway {
			return g.Port
		}
	}
	return -1
}

// join gives h the number of the other family's hop over the same interface;
// -1: there is none.
func (n *numbering) join(h namedHop) int {
	for i := range n.given {
		if g := &n.given[i]; g.Interface == h.device && !g.of(h.gateway).IsValid() {
			*g.of(h.gateway) = h.gateway
			return g.Port
		}
	}
	return -1
}

// give gives h the lowest free number; where all are taken, that of a hop that
// is in no route any more; -1: there is none.
func (n *numbering) give(h namedHop, hops map[namedHop]bool) int {
	fresh := Number{Interface: h.device}
	*fresh.of(h.gateway) = h.gateway
	taken := n.ports()
	for port := range n.radix {
		if _, is := slices.BinarySearch(taken, port); !is {
			fresh.Port = port
			n.given = append(n.given, fresh)
			return port
		}
	}
	there := func(gateway netip.Addr, device string) bool {
		_, is := hops[namedHop{device, gateway}]
		return is
	}
	for i := range n.given {
		if g := &n.given[i]; !there(g.IPv4, g.Interface) && !there(g.IPv6, g.Interface) {
			fresh.Port = g.Port
			*g = fresh
			return g.Port
		}
	}
	return -1
}
