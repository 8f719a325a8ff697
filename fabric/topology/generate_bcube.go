package topology

import (
	"cmp"
	"fmt"
)

// BCube is BCube(n, k) (Guo et al., SIGCOMM 2009): n^(k+1) servers with k+1
// ports each, and k+1 levels of n^k switches with n ports. A server's number
// has k+1 digits in base n; at level l it is joined to those whose numbers
// differ in digit l alone. n 2 to 64, k 0 to 7, at most 65,536 servers.
//
// Servers pass on packets of others. Here each is a router, relay-N, whose
// ports have the numbers of their levels, with a host, host-N, behind it. A
// switch has one next hop to anything.
func BCube(n, k int) (*Fabric, error) {
	if err := cmp.Or(within("bcube", "n", n, 2, maxRadix), within("bcube", "k", k, 0, 7)); err != nil {
		return nil, err
	}
	const most = 1 << 16
	servers := n
	for range k {
		servers *= n
		if servers > most {
			return nil, fmt.Errorf("bcube: n %d, k %d: more than %d servers; take less of either", n, k, most)
		}
	}
	each := servers / n // switches of a level
	levels := k + 1
	d := newDrawing(2*servers+levels*each, servers*(levels+1))
	for s := range servers {
		d.node(fmt.Sprintf("host-%d", s), true)
	}
	relay := len(d.fabric.Nodes)
	for s := range servers {
		d.node(fmt.Sprintf("relay-%d", s), false)
	}
	first := len(d.fabric.Nodes)
	for i := range levels * each {
		d.node(fmt.Sprintf("switch-%d-%d", i/each, i%each), false)
	}
	for s := range servers {
		d.link(s, unnumbered, relay+s, unnumbered)
	}
	for s := range servers {
		for level, unit := 0, 1; level < levels; level, unit = level+1, unit*n {
			// The number without this level's digit.
			without := s/(unit*n)*unit + s%unit
			d.link(relay+s, level, first+level*each+without, unnumbered)
		}
	}
	return d.done(), nil
}
