// Package paths searches paths through a fabric and says which fields of a
// packet make it follow them: what `fairlead path` and the path service answer.
// No I/O, no clock.
package paths

import "github.com/fairlead/fairlead/fabric/pathsel"

// Path is one way from a host to another, over routers whose next hops cost
// the same.
type Path struct {
	// Src and Dst are its ends. An address is set where the links of the ends
	// belong to one address only.
	Src, Dst Place
	// Hops are its links in their order, from the source on.
	Hops []Hop
	// Steps are the choices that a selector has to make: one for each router
	// on the way that has several equal next hops, in their order. TTLs are of
	// packets that begin with the source node's.
	Steps []pathsel.Step
}

// Hop is one link of a path: Link is an index into Fabric.Links, passed from Ends[From] to Ends[1-From].
type Hop struct {
	Link int
	From int
}
