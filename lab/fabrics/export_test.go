package fabrics

import "net/netip"

// Routes are a router's equal next hops to an address: indices of links, as
// they were last installed.
func (f *Fabric) Routes(router string, to netip.Addr) (links []int) {
	for _, w := range f.routed[f.Node(router)][netip.PrefixFrom(to, to.BitLen())] {
		links = append(links, w.link)
	}
	return links
}
