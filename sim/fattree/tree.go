package fattree

// tree is the fat-tree of topology.FatTree(k) by numbers alone, as k = 32 has
// 256 paths between most of its 67 million pairs: hosts are numbered as there,
// and a directed link is twice its number there, plus 1 downwards. A test holds
// it against the fabric itself and against the path service's search.
type tree struct {
	k, half, hosts int
}

func newTree(k int) tree { return tree{k, k / 2, k * k * k / 4} }

// links is how many directed ones there are.
func (t tree) links() int { return 6 * t.hosts }

// directed links: edge is the number of an edge switch, a an aggregation
// switch's in its pod, c a core switch's among those of a.
func (t tree) hostUp(host int) int32        { return int32(2 * host) }
func (t tree) hostDown(host int) int32      { return int32(2*host + 1) }
func (t tree) edgeUp(edge, a int) int32     { return int32(2 * (t.hosts + edge*t.half + a)) }
func (t tree) edgeDown(edge, a int) int32   { return t.edgeUp(edge, a) + 1 }
func (t tree) coreUp(pod, a, c int) int32   { return int32(2 * (2*t.hosts + (pod*t.half+a)*t.half + c)) }
func (t tree) coreDown(pod, a, c int) int32 { return t.coreUp(pod, a, c) + 1 }

// paths is how many paths of equal cost lead from one host to another.
func (t tree) paths(from, to int) int {
	from, to = from/t.half, to/t.half
	switch {
	case from == to:
		return 1
	case from/t.half == to/t.half:
		return t.half
	}
	return t.half * t.half
}

// path is the links of path number n, in their order, put into into.
func (t tree) path(from, to, n int, into []int32) []int32 {
	e, f := from/t.half, to/t.half
	p, q := e/t.half, f/t.half
	into = append(into, t.hostUp(from))
	switch {
	case e == f:
	case p == q:
		into = append(into, t.edgeUp(e, n), t.edgeDown(f, n))
	default:
		a, c := n/t.half, n%t.half
		into = append(into, t.edgeUp(e, a), t.coreUp(p, a, c), t.coreDown(q, a, c), t.edgeDown(f, a))
	}
	return append(into, t.hostDown(to))
}
