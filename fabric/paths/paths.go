// Package paths searches paths through a fabric and says which fields of a
// packet make it follow them: what `fairlead path` and the path service answer.
// No I/O, no clock.
package paths

import "github.com/fairlead/fairlead/fabric/pathsel"

// Path is one way from a host to another, over routers whose next hops cost
// the same.
type Path struct {
	// Links in their order, from the source on: indices into Fabric.Links, with
	// the end at which the packet enters it.
	Hops []Hop
	// Steps are the choices that a selector has to make: one for each router
	// on the way that has several equal next hops.
	Steps []pathsel.Step
}

// Hop is one link of a path, passed from Ends[From] to Ends[1-From].
type Hop struct {
	Link int
	From int
}
