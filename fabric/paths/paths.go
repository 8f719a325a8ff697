// Package paths searches paths through a fabric and says which fields of a
// packet make it follow them: what `fairlead path` and the path service
// answer. No I/O, no clock.
//
// Routing is what routers of a data centre do: all shortest paths by the
// links' costs, next hop by next hop. A destination's routes are a graph
// without loops (routing.go), found once and kept; a set of paths is that graph
// with a beginning, and rules make a smaller one of it (rules.go). Paths are
// numbered, not listed, as there may be millions.
//
//	Place, Place, Rules ──Routes──▶ set of paths ──At──▶ Path ──Ports──▶ Flow ──Of──▶ Path
package paths

import (
	"errors"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Errors that a caller may want to tell apart, beside pathsel's ErrCollision
// and ErrNoSelector.
var (
	// ErrUnknown: no node or link of this name.
	ErrUnknown = errors.New("not in the fabric")
	// ErrUnplaced: no flow with this ID.
	ErrUnplaced = errors.New("not placed")
	// ErrNoPath: the fabric has none such.
	ErrNoPath = errors.New("no path")
	// ErrUnsteered: on the path a router has a choice that no selector makes.
	ErrUnsteered = errors.New("cannot be selected")
)

// NoPort stands in a Step whose choice no selector can make: the port has no
// number, or the router is plain.
const NoPort = 255

// Path is one way from a node to another, over routers whose next hops cost
// the same.
type Path struct {
	// Src and Dst are its ends. An address is set where it was asked for, or
	// where the path's link belongs to it alone.
	Src, Dst Place
	// Hops are its links in their order, from the source on.
	Hops []Hop
	// Steps are the choices that a selector has to make: one for each router
	// on the way that has several equal next hops, in their order. TTLs are of
	// packets that begin with the source node's.
	Steps []pathsel.Step
}

// Hop is one link of a path: Link is an index into Fabric.Links, passed from
// Ends[From] to Ends[1-From].
type Hop struct {
	Link int
	From int
}

// Clone shares nothing with p.
func (p *Path) Clone() Path {
	q := *p
	q.Hops = append([]Hop(nil), p.Hops...)
	q.Steps = append([]pathsel.Step(nil), p.Steps...)
	return q
}
