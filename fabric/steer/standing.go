package steer

import "slices"

// Standing is how much a path is to be preferred: more is better. The zero value
// is a path that nothing is known of.
type Standing int

const (
	// Bad: it carries nothing, by its probes.
	Bad Standing = iota - 2
	// Slow: it carries packets, after a while.
	Slow
	Unknown
	// Held: good, and turned bad soon after it was so before (Hold).
	Held
	Good
)

// Best are the paths that are used: those that stand best. It is nil where all are
// bad: nothing tells which of them is better, and what is used stays so.
func Best(paths []Standing) []bool {
	best := slices.Max(paths)
	if best == Bad {
		return nil
	}
	used := make([]bool, len(paths))
	for i, s := range paths {
		used[i] = s == best
	}
	return used
}
