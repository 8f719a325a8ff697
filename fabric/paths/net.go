package paths

import (
	"iter"
	"net/netip"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// Net is a fabric with its routing. It does not change; several goroutines may
// use it.
type Net struct {
	fabric *topology.Fabric
}

// New computes nothing yet; routes to a destination are found when they are
// first asked for, and kept. It fails for a selector that pathsel refuses.
func New(f *topology.Fabric) (*Net, error) { panic("paths: being written") }

// Place is where paths begin or end: a node under one of its addresses. A
// host's address that stands on one of its links is reached by that link
// alone, another by all of them. An invalid Addr is any of the node's addresses.
type Place struct {
	Node int
	Addr netip.Addr
}

// Place finds a place by a node's name (any address) or by an address.
func (n *Net) Place(text string) (Place, error) { panic("paths: being written") }

// Rules narrow a search. Nodes are indices into Fabric.Nodes, links into
// Fabric.Links.
type Rules struct {
	Via        []int // nodes passed in this order, others between them
	ViaLinks   []int // links passed, in any order
	Avoid      []int // nodes
	AvoidLinks []int
}

// Routes is the set of paths between two places, numbered from 0.
type Routes struct{ count uint64 }

// Routes finds the paths of equal cost from a to b that satisfy the rules. None
// is an error that says why and what would work.
func (n *Net) Routes(a, b Place, r Rules) (*Routes, error) { panic("paths: being written") }

// Count is how many paths there are; 2^64-1 stands for that and more.
func (r *Routes) Count() uint64 { panic("paths: being written") }

// At writes path number i (below Count) to p, whose slices are used again.
func (r *Routes) At(i uint64, p *Path) { panic("paths: being written") }

// All is every path, by number. Each is the caller's own.
func (r *Routes) All() iter.Seq[Path] { panic("paths: being written") }

// Request is what of a flow is decided before its path is: zero fields are free.
type Request struct {
	Src, Dst         netip.Addr // zero: the path's ends', IPv4 before IPv6
	IPv6             bool       // prefer IPv6 for addresses that are free
	Proto            uint8      // 0: TCP
	SrcPort, DstPort uint16     // 0: free
	// SrcPorts and DstPorts bound what is chosen; zero: 32,768 to 65,535.
	SrcPorts, DstPorts [2]uint16
	TTL                uint8  // that packets begin with; 0: the source node's
	Random             uint64 // chooses among many selectors for the path
}

// Ports is a flow that takes the path. It fails where no choice of the free
// fields does, and says what would work.
func (n *Net) Ports(p *Path, r Request) (pathsel.Flow, error) { panic("paths: being written") }

// EachPorts yields such flows, each with another source port or label, until
// yield returns false; at most limit.
func (n *Net) EachPorts(p *Path, r Request, limit int, yield func(pathsel.Flow) bool) error {
	panic("paths: being written")
}

// Choice is what one router on a flow's way does.
type Choice struct {
	Node  int
	TTL   uint8 // as it receives the packet
	Ports []int // numbers of the equal next hops, -1 for those without
	Taken int   // index into Ports; -1: a plain router, nobody knows
	// Controlled is whether the flow's selector decided; else the hash did.
	Controlled bool
}

// Of is the path of the flow, whose packets begin with ttl (0: the source
// node's), and what each router with several equal next hops does. Where a
// plain router chooses, the path ends before it and known is false.
func (n *Net) Of(f pathsel.Flow, ttl uint8) (p Path, choices []Choice, known bool, err error) {
	panic("paths: being written")
}
