package mptcp

import (
	"net"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// ThisHost is the index of the fabric's host whose address the calling
// thread's network namespace has; -1: there is none.
func ThisHost(f *topology.Fabric) int {
	own := OwnAddresses()
	return slices.IndexFunc(f.Nodes, func(n topology.Node) bool {
		return n.Host && slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(own, a) })
	})
}

// OwnAddresses are those of the namespace's interfaces.
func OwnAddresses() (list []netip.Addr) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list
}

// Inspection is what keeps a host's connections from having several paths, as
// far as the host can see.
type Inspection struct {
	Enabled bool // programs can open connections of Multipath TCP
	// Programs is whether programs manage the paths of connections that begin
	// now, and not the kernel.
	Programs bool
	// Limit is how many subflows beside the first the kernel takes from peers
	// where programs do not manage paths.
	Limit int
	// Few are the connections that programs of this host opened and that have
	// fewer subflows than there are disjoint paths.
	Few []Few
}

// Few is one such connection.
type Few struct {
	Remote          string // the first subflow's
	Subflows, Paths int
}

// Inspect looks at the calling thread's network namespace and changes nothing.
// The error is ErrNoMPTCP for a kernel without.
func Inspect(n *paths.Net) (*Inspection, error) {
	var i Inspection
	var err error
	if i.Enabled, err = Enabled(); err != nil {
		return nil, err
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	s, err := readSetting()
	if err != nil {
		return nil, err
	}
	i.Programs = s.now == s.programs
	if i.Limit, err = k.limit(); err != nil {
		return nil, err
	}
	d, err := openDiag()
	if err != nil {
		return nil, err
	}
	defer d.close()
	all, err := d.subflows()
	i.Few = few(n, all)
	return &i, err
}

// few are the connections among those of a list that could have more subflows.
func few(n *paths.Net, all []Subflow) (list []Few) {
	var order []uint32
	groups := map[uint32][]Subflow{}
	for _, s := range all {
		if !s.Client || s.ends() {
			continue
		}
		if groups[s.Token] == nil {
			order = append(order, s.Token)
		}
		groups[s.Token] = append(groups[s.Token], s)
	}
	apart := map[[2]int]int{}
	for _, token := range order {
		group := groups[token]
		c := newConnection(token)
		if !c.place(n, group) {
			continue
		}
		between := [2]int{c.from, c.to}
		most, ok := apart[between]
		if !ok {
			most = disjoint(n, c.from, c.to)
			apart[between] = most
		}
		if len(group) < min(most, MaxSubflows) {
			list = append(list, Few{group[0].Remote.String(), len(group), most})
		}
	}
	return list
}

// disjoint is how many paths between two nodes share no link, but for links
// that all share, if they are taken one after another.
func disjoint(n *paths.Net, from, to int) (most int) {
	w, err := waysBetween(n, from, to)
	if err != nil {
		return 0
	}
	v := view{own: uses{}, avoid: func(paths.Hop) bool { return false }, unfit: func(i int) bool {
		return n.Steered(&w.paths[i]) != nil
	}}
	for {
		i, shared, ok := w.next(v)
		if !ok || shared > 0 {
			return most
		}
		v.own.add(w.paths[i].Hops)
		most++
	}
}
