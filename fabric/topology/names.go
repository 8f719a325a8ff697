package topology

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Find is the node that is called name, or that has it as its address. Its
// error suggests the nearest name.
func (f *Fabric) Find(name string) (node int, err error) {
	for i := range f.Nodes {
		if f.Nodes[i].Name == name {
			return i, nil
		}
	}
	if a, err := netip.ParseAddr(name); err == nil {
		if i, ok := f.ByAddress(a); ok {
			return i, nil
		}
		return 0, fmt.Errorf("%s: no node of the fabric has this address", name)
	}
	return 0, fmt.Errorf("%s: no such node", name)
}

// ByAddress is the node that has the address, as its own or on one of its
// link ends.
func (f *Fabric) ByAddress(a netip.Addr) (node int, ok bool) {
	for i := range f.Nodes {
		for _, own := range f.Nodes[i].Addresses {
			if own == a {
				return i, true
			}
		}
	}
	for i := range f.Links {
		for _, e := range f.Links[i].Ends {
			if e.Address == a && a.IsValid() {
				return e.Node, true
			}
		}
	}
	return 0, false
}

// LinkName is the link's name, unique in the fabric and stable as long as its
// ends keep names and numbers: "leaf1:0-spine1:3" by the numbers of its ports,
// "h1-leaf1:4" where an end has none; "#2" follows where that is not unique.
func (f *Fabric) LinkName(link int) string {
	base := f.linkBase(link)
	same := 1
	for i := range link {
		if f.linkBase(i) == base {
			same++
		}
	}
	if same > 1 {
		return base + "#" + strconv.Itoa(same)
	}
	return base
}

func (f *Fabric) linkBase(link int) string {
	l := &f.Links[link]
	return f.endName(&l.Ends[0]) + "-" + f.endName(&l.Ends[1])
}

func (f *Fabric) endName(e *End) string {
	if e.Port < 0 {
		return f.Nodes[e.Node].Name
	}
	return f.Nodes[e.Node].Name + ":" + strconv.Itoa(e.Port)
}

// LinkNames are all links' names.
func (f *Fabric) LinkNames() []string {
	seen, out := map[string]int{}, make([]string, len(f.Links))
	for i := range f.Links {
		out[i] = f.linkBase(i)
		if seen[out[i]]++; seen[out[i]] > 1 {
			out[i] += "#" + strconv.Itoa(seen[out[i]])
		}
	}
	return out
}
