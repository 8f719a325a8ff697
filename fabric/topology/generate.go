package topology

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Generators of the fabrics that the literature knows: FatTree, VL2, BCube,
// LeafSpine and Jellyfish. They are pure: the same arguments give the same
// fabric, nodes and links in the same order.
//
// All links cost the same and have no capacity stated; hosts begin with a time
// to live of 64. The n-th node has the n-th address of 10.0.0.0/8. The ends
// between which a router may have to choose have port numbers from 0 on; an
// end that is always the only next hop has none. The selector is our
// permutation with the least power of two that fits the numbers as radix, and
// no key: set one before routers share it.

// drawing is a fabric that is being drawn.
type drawing struct {
	fabric *Fabric
	ports  int // numbers of ports in use: 0 to ports-1
}

func newDrawing(nodes, links int) *drawing {
	return &drawing{fabric: &Fabric{Nodes: make([]Node, 0, nodes), Links: make([]Link, 0, links)}}
}

// node draws one and returns its index.
func (d *drawing) node(name string, host bool) int {
	i := len(d.fabric.Nodes)
	n := i + 1
	n4 := [4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}
	d.fabric.Nodes = append(d.fabric.Nodes, Node{Name: name, Host: host, Addresses: []netip.Addr{netip.AddrFrom4(n4)}, TTL: 64})
	return i
}

// unnumbered is the port of an end that no router chooses.
const unnumbered = -1

// link joins two nodes by ports, each a number or unnumbered.
func (d *drawing) link(a, portA, b, portB int) {
	d.fabric.Links = append(d.fabric.Links, Link{Cost: 1, Ends: [2]End{{Node: a, Port: portA}, {Node: b, Port: portB}}})
	d.ports = max(d.ports, portA+1, portB+1)
}

// done is the fabric with its selector.
func (d *drawing) done() *Fabric {
	radix := 1 << bits.Len(uint(max(2, d.ports)-1))
	d.fabric.Selector = pathsel.Config{Permutation: pathsel.Feistel, Radix: radix, IPv4: pathsel.Ports, IPv6: pathsel.Ports}
	return d.fabric
}

// Bounds of the radix (pathsel): no router may have more ports to choose from.
const (
	minRadix = 2
	maxRadix = 64
)

// within says which argument of a generator is wrong.
func within(generator, what string, value, low, high int) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %s %d: must be %d to %d", generator, what, value, low, high)
	}
	return nil
}
