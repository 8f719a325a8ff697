// Package steer chooses the paths that a balancer's tunnels take through a fabric
// whose routers read path selectors (CFLB, section 3; no paper steers tunnels).
//
//	fabric.yaml, balancer ─New─▶ Steering ─Server─▶ paths to a server, and flows
//	                                                that take each
//	verdicts of probes ──Hold.Judge, Best──▶ which of them are used
//	used paths ────────────Server.Row──▶ 64 entries: a source port and a flow label
//	                                     for each part of the server's connections
//
// No I/O, no clock. lb.SetSteers puts rows before packets, fabric/probe
// gives verdicts, daemon joins the two.
package steer

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/wire"
)

const (
	// Entries is how many parts a server's connections are steered in.
	Entries = bpf.SteerEntries
	// MaxPaths is how many paths to a server are used and probed. Of more, so
	// many are taken that stand apart in their order.
	MaxPaths = 16

	// firstPort: below it are ports that filters on the way may know.
	firstPort = 1024
	lastPort  = 65535
)

// Entry is what the tunnels of one part of the connections carry. The zero value:
// whatever their hash says.
type Entry struct {
	Port  uint16 // outer UDP source port
	Label uint32 // IPv6 flow label
}

// Row is what all of a server's connections carry.
type Row [Entries]Entry

// Steering is a fabric as one balancer sees it.
type Steering struct {
	name string
	node int
	net  *paths.Net
}

// New finds the balancer, a host of the fabric by its name.
func New(f *topology.Fabric, balancer string) (*Steering, error) {
	net, err := paths.New(f)
	if err != nil {
		return nil, err
	}
	node := slices.IndexFunc(f.Nodes, func(n topology.Node) bool { return n.Name == balancer })
	if node < 0 {
		return nil, fmt.Errorf("the fabric has no host called %s, where this balancer's tunnels would begin", balancer)
	}
	if !f.Nodes[node].Host {
		return nil, fmt.Errorf("%s is a router of the fabric, and tunnels begin at hosts", balancer)
	}
	return &Steering{balancer, node, net}, nil
}

// Fabric is what New was given.
func (s *Steering) Fabric() *topology.Fabric { return s.net.Fabric() }

// Reaches says why the server cannot be steered to; nil: it can.
func (s *Steering) Reaches(server netip.Addr) error {
	_, err := s.Server(server, netip.Addr{})
	return err
}

// Server is where tunnels go, and the paths that they may take.
type Server struct {
	Name    string // in the fabric
	Address netip.Addr
	Paths   []paths.Path
	// All is how many paths there are, of which Paths are some.
	All uint64

	flows [][]Entry // of each path, at least one
}

// Server finds the paths to a server and the flows that take them. source is the
// tunnels' outer source, of the same family; invalid: the balancer's own in the
// fabric. Where routers leave no choice there is one path.
func (s *Steering) Server(address, source netip.Addr) (*Server, error) {
	f := s.net.Fabric()
	node, ok := f.ByAddress(address)
	if !ok {
		return nil, fmt.Errorf("no host of the fabric has the address %s", address)
	}
	routes, err := s.net.Routes(paths.Place{Node: s.node, Addr: source}, paths.Place{Node: node, Addr: address}, paths.Rules{})
	if err != nil {
		return nil, err
	}
	server := &Server{Name: f.Nodes[node].Name, Address: address, All: routes.Count()}
	var failed error
	for _, number := range s.chosen(address, routes.Count()) {
		var p paths.Path
		routes.At(number, &p)
		entries, err := s.flows(&p, source, address)
		if err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		server.Paths, server.flows = append(server.Paths, p), append(server.flows, entries)
	}
	if len(server.Paths) == 0 {
		return nil, failed
	}
	return server, nil
}

// chosen are the numbers of the paths that are used.
func (s *Steering) chosen(server netip.Addr, count uint64) (numbers []uint64) {
	n := min(count, MaxPaths)
	first := uint64(0)
	if count > n { // else all, in their order
		first = s.draw(server) % count
	}
	for i := range n {
		numbers = append(numbers, (first+i*(count/n))%count)
	}
	return numbers
}

// draw is a number of the balancer and the server, so that not all of them prefer
// the same path.
func (s *Steering) draw(server netip.Addr) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s.name))
	h.Write([]byte{0})
	h.Write(server.AsSlice())
	return h.Sum64()
}

// flows are up to Entries tunnels that take the path, each with another port, so
// that the server's card still spreads them over its queues.
func (s *Steering) flows(p *paths.Path, source, server netip.Addr) (entries []Entry, err error) {
	r := paths.Request{Src: source, Dst: server, Proto: paths.UDP, DstPort: wire.GUE.Port(),
		SrcPorts: [2]uint16{firstPort, lastPort}, TTL: bpf.OuterTTL, Random: s.draw(server), IPv6: server.Is6()}
	take := func(f pathsel.Flow) bool {
		entries = append(entries, Entry{f.SrcPort, f.Label})
		return true
	}
	if s.net.Selector().Field(server.Is6()) != pathsel.FlowLabel {
		err = s.net.EachPorts(p, r, Entries, take)
		return entries, err
	}
	// The label selects, and is looked for under each port.
	for i := range Entries {
		r.SrcPort = lastPort - uint16(i)
		if err := s.net.EachPorts(p, r, 1, take); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// Of is the path that a tunnel with this entry takes, by the fabric's file: an
// index into Paths, -1 for another or an unknown one.
func (v *Server) Of(e Entry) int {
	return slices.IndexFunc(v.flows, func(flows []Entry) bool { return slices.Contains(flows, e) })
}

// Addresses are the balancer's in the fabric.
func (s *Steering) Addresses() []netip.Addr { return s.net.Fabric().Nodes[s.node].Addresses }

// Nodes are the names of those that a path passes, from the balancer on.
func (s *Steering) Nodes(p *paths.Path) (names []string) {
	for _, n := range s.net.Nodes(p) {
		names = append(names, s.net.Fabric().Nodes[n].Name)
	}
	return names
}

// Links are the names of a path's links.
func (s *Steering) Links(p *paths.Path) (names []string) {
	for _, h := range p.Hops {
		names = append(names, s.net.LinkName(h.Link))
	}
	return names
}
