package probe

import (
	"cmp"
	"maps"
	"slices"
)

// exactBlame bounds the search for the smallest set: sets of up to so many
// links are tried all; where more are needed, links are taken one by one, each
// time the one that explains the most.
const exactBlame = 3

// Suspicion is a link that explains bad paths.
type Suspicion struct {
	// Links are indices into Fabric.Links. Several: the same bad paths pass
	// them all, and nothing that was sent tells which of them it is.
	Links []int
	// Paths are the bad paths that it explains: indices into what blame was
	// given.
	Paths []int
}

// blame finds the smallest set of links that explains all bad paths: each bad
// path passes one of them, and none is on a good one. Paths are lists of links;
// what walks have seen makes them shorter, or good.
//
// rest are the bad paths that no link explains, as each of their links is on
// a good path.
func blame(bad, good [][]int) (found []Suspicion, rest []int) {
	fine := map[int]bool{}
	for _, p := range good {
		for _, l := range p {
			fine[l] = true
		}
	}
	classes := alike(bad, fine)
	var open []int
	for i := range bad {
		if slices.ContainsFunc(classes, func(s Suspicion) bool { return slices.Contains(s.Paths, i) }) {
			open = append(open, i)
		} else {
			rest = append(rest, i)
		}
	}
	for size := 1; size <= exactBlame; size++ {
		if found, ok := cover(classes, open, size); ok {
			return found, rest
		}
	}
	return greedy(classes, open), rest
}

// alike are the links that may be bad, those on the same bad paths together,
// the ones that explain most first.
func alike(bad [][]int, fine map[int]bool) []Suspicion {
	on := map[int][]int{} // link → bad paths
	for i, p := range bad {
		for _, l := range p {
			if !fine[l] && !slices.Contains(on[l], i) {
				on[l] = append(on[l], i)
			}
		}
	}
	var classes []Suspicion
	for _, l := range slices.Sorted(maps.Keys(on)) {
		at := slices.IndexFunc(classes, func(s Suspicion) bool { return slices.Equal(s.Paths, on[l]) })
		if at < 0 {
			classes = append(classes, Suspicion{Paths: on[l]})
			at = len(classes) - 1
		}
		classes[at].Links = append(classes[at].Links, l)
	}
	slices.SortStableFunc(classes, func(a, b Suspicion) int { return cmp.Compare(len(b.Paths), len(a.Paths)) })
	return classes
}

// cover finds size classes or fewer that together explain all open paths: one
// of those that explain the first open path is taken, and the rest is covered
// by one fewer.
func cover(classes []Suspicion, open []int, size int) ([]Suspicion, bool) {
	if len(open) == 0 {
		return nil, true
	}
	if size == 0 {
		return nil, false
	}
	for _, s := range classes {
		if !slices.Contains(s.Paths, open[0]) {
			continue
		}
		if more, ok := cover(classes, without(open, s.Paths), size-1); ok {
			return append([]Suspicion{s}, more...), true
		}
	}
	return nil, false
}

func greedy(classes []Suspicion, open []int) (found []Suspicion) {
	for len(open) > 0 {
		best := slices.MinFunc(classes, func(a, b Suspicion) int {
			return cmp.Compare(len(without(open, a.Paths)), len(without(open, b.Paths)))
		})
		found = append(found, best)
		open = without(open, best.Paths)
	}
	return found
}

// without is what of open is not in paths.
func without(open, paths []int) []int {
	return slices.DeleteFunc(slices.Clone(open), func(i int) bool { return slices.Contains(paths, i) })
}
