// Package bgp decides which addresses a daemon announces by BGP, and says why it
// does not announce others. An Announcer keeps a Speaker to that; what speaks is
// bgp/gobgp, and in tests bgp/bgptest.
package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/vip"
)

// Node is a balancer or switch as it stands.
type Node struct {
	Name     string
	NotReady []string // what /ready says, and that it stops; empty: routers may use it
	VIPs     []VIP    // that it forwards
}

// VIP is one of them.
type VIP struct {
	Name        string
	Address     netip.Addr
	Announce    string // vip.Announces
	Communities []string
	MED         int // 0: that of all
	// Servers shall take new connections, and Healthy of them are not down.
	Servers, Healthy int
}

// Common is what all routes have.
type Common struct {
	Communities []string
	MED         int
}

// Route is to one address.
type Route struct {
	Address     netip.Addr
	Communities []string
	MED         int
}

// Decision is what shall be with an address of VIPs.
type Decision struct {
	Route
	VIPs     []string // names
	Withheld []string // why it is not announced; empty: it shall be
}

// Decide says what shall be with each address, in their order.
func Decide(n Node, common Common) (all []Decision) {
	byAddress := map[netip.Addr][]VIP{}
	var addresses []netip.Addr
	for _, v := range n.VIPs {
		if byAddress[v.Address] == nil {
			addresses = append(addresses, v.Address)
		}
		byAddress[v.Address] = append(byAddress[v.Address], v)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range addresses {
		all = append(all, decide(n, common, byAddress[a]))
	}
	return all
}

// decide is Decide for the VIPs of one address.
func decide(n Node, common Common, vips []VIP) Decision {
	d := Decision{Route: Route{Address: vips[0].Address, Communities: slices.Clone(common.Communities), MED: common.MED}}
	wanted := false
	var unwell []string
	for _, v := range vips {
		d.VIPs = append(d.VIPs, v.Name)
		// The file has them agree; a version on its way may not.
		for _, c := range v.Communities {
			if !slices.Contains(d.Communities, c) {
				d.Communities = append(d.Communities, c)
			}
		}
		d.MED = cmp.Or(v.MED, d.MED)
		switch {
		case v.Announce == vip.AnnounceNever:
			unwell = append(unwell, "announce: never, says VIP "+v.Name)
		case v.Announce == vip.AnnounceAlways, v.Healthy > 0:
			wanted = true
		case v.Servers == 0:
			unwell = append(unwell, fmt.Sprintf("no server in VIP %s takes new connections", v.Name))
		default:
			unwell = append(unwell, fmt.Sprintf("no healthy server in VIP %s, of %d", v.Name, v.Servers))
		}
	}
	if !wanted {
		d.Withheld = unwell
	}
	for _, why := range n.NotReady {
		d.Withheld = append(d.Withheld, fmt.Sprintf("%s is not ready: %s", n.Name, why))
	}
	return d
}

// Neighbour is a router that is told routes.
type Neighbour struct {
	Address     netip.Addr
	AS          int
	State       string // of RFC 4271, or Waiting
	Established bool
	Since       time.Time // it is established, or is not
	Error       string    // why it was not the last time, empty: it always was
	BFD         string    // up, down or init; empty: it is not spoken
}

// Waiting is the state of neighbours before sessions are opened.
const Waiting = "waiting"

// Heard is which neighbours hear of an address that is announced, and why others of
// its family do not.
func Heard(a netip.Addr, neighbours []Neighbour) (by []netip.Addr, not []string) {
	family := false
	for _, n := range neighbours {
		switch {
		case n.Address.Is4() != a.Is4():
			continue
		case n.Established:
			by = append(by, n.Address)
		default:
			why := n.State
			if n.Error != "" {
				why += ": " + n.Error
			}
			not = append(not, fmt.Sprintf("neighbour %s is not established: %s", n.Address, why))
		}
		family = true
	}
	if !family {
		version := "IPv6"
		if a.Is4() {
			version = "IPv4"
		}
		not = append(not, "no neighbour has an "+version+" address: each is told the addresses of its own family")
	}
	return by, not
}
