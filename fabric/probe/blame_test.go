package probe

import (
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

func TestBlame(t *testing.T) {
	for _, c := range []struct {
		name      string
		bad, good [][]int
		want      []Suspicion
		rest      []int
	}{
		{name: "nothing is bad", good: [][]int{{1, 2}}},
		{name: "the one link that no good path has", bad: [][]int{{0, 1, 9}, {0, 1, 8}}, good: [][]int{{0, 2, 9}, {0, 2, 8}},
			want: []Suspicion{{[]int{1}, []int{0, 1}}}},
		{name: "two in a row cannot be told apart", bad: [][]int{{0, 1, 2, 9}}, good: [][]int{{0, 3, 4, 9}},
			want: []Suspicion{{[]int{1, 2}, []int{0}}}},
		{name: "a walk tells them apart", bad: [][]int{{0, 1, 2, 9}}, good: [][]int{{0, 3, 4, 9}, {0, 1}},
			want: []Suspicion{{[]int{2}, []int{0}}}},
		{name: "one link rather than two", bad: [][]int{{1, 3}, {2, 3}}, good: [][]int{{0}},
			want: []Suspicion{{[]int{3}, []int{0, 1}}}},
		{name: "two links", bad: [][]int{{1, 5}, {2, 6}}, good: [][]int{{5}, {6}},
			want: []Suspicion{{[]int{1}, []int{0}}, {[]int{2}, []int{1}}}},
		{name: "no link explains it", bad: [][]int{{1, 2}}, good: [][]int{{1}, {2}}, rest: []int{0}},
		{name: "five links, one by one", bad: [][]int{{1}, {2}, {3}, {4}, {5}, {5}},
			want: []Suspicion{{[]int{5}, []int{4, 5}}, {[]int{1}, []int{0}}, {[]int{2}, []int{1}}, {[]int{3}, []int{2}}, {[]int{4}, []int{3}}}},
	} {
		got, rest := blame(c.bad, c.good)
		if !reflect.DeepEqual(got, c.want) || !slices.Equal(rest, c.rest) {
			t.Errorf("%s: blames %v, rest %v; want %v, %v", c.name, got, rest, c.want, c.rest)
		}
	}
}

// In random fabrics with up to three bad links: what is blamed explains every
// bad path, is on no good one, and is no larger than the truth.
func TestBlameRandom(t *testing.T) {
	r := soak.Rand(t)
	for range 2000 {
		links := 3 + r.IntN(12)
		truth := r.Perm(links)[:1+r.IntN(exactBlame)]
		var bad, good [][]int
		for range 1 + r.IntN(30) {
			p := r.Perm(links)[:1+r.IntN(min(5, links))]
			if slices.ContainsFunc(p, func(l int) bool { return slices.Contains(truth, l) }) {
				bad = append(bad, p)
			} else {
				good = append(good, p)
			}
		}
		found, rest := blame(bad, good)
		if len(rest) > 0 || len(found) > len(truth) {
			t.Fatalf("bad %v, good %v: blames %v, rest %v; bad links are %v", bad, good, found, rest, truth)
		}
		for i, p := range bad {
			if !slices.ContainsFunc(found, func(s Suspicion) bool {
				return slices.Contains(s.Paths, i) && !slices.ContainsFunc(s.Links, func(l int) bool { return !slices.Contains(p, l) })
			}) {
				t.Fatalf("bad %v: %v does not explain %v", bad, found, p)
			}
		}
		for _, s := range found {
			for _, l := range s.Links {
				if slices.ContainsFunc(good, func(p []int) bool { return slices.Contains(p, l) }) {
					t.Fatalf("good %v: %v is on a good path", good, found)
				}
			}
		}
	}
}
