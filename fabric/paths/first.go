package paths

// First are the links by which the paths begin: of routes from a router, its
// equal next hops.
func (r *Routes) First() []Hop {
	var hops []Hop
	for i := range r.parts {
		hops = append(hops, r.parts[i].head)
	}
	return hops
}
