package topology

import (
	"net/netip"
	"slices"
)

// LinkOf finds the link that a router knows as a next hop over device to the
// gateway: by the address of the other end, by the device if one link alone is
// on it, or by an address of the neighbour's own if one link alone leads there.
// numbered is the link whose end has the port's number (port: -1 for none).
// Both are -1 where the file knows of none.
func (f *Fabric) LinkOf(router int, device string, gateway netip.Addr, port int) (link, numbered int) {
	var byAddress, byDevice, byNeighbour []int
	numbered = -1
	for i := range f.Links {
		for side, e := range f.Links[i].Ends {
			if e.Node != router {
				continue
			}
			if port >= 0 && e.Port == port {
				numbered = i
			}
			if e.Device != "" && e.Device == device {
				byDevice = append(byDevice, i)
			}
			other := &f.Links[i].Ends[1-side]
			switch {
			case !gateway.IsValid() || e.Device != "" && e.Device != device:
			case other.Address == gateway:
				byAddress = append(byAddress, i)
			case slices.Contains(f.Nodes[other.Node].Addresses, gateway):
				byNeighbour = append(byNeighbour, i)
			}
		}
	}
	for _, found := range [][]int{byAddress, byDevice, byNeighbour} {
		if len(found) == 1 {
			return found[0], numbered
		}
	}
	return -1, numbered
}
