package probe

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
)

// What is learned from both ends is held against what the first end saw: a
// router that answers each end from another address is told of.
func TestLearnedTwice(t *testing.T) {
	learn := func(f *topology.Fabric, from, to string, way ...string) {
		l := &learner{ctx: t.Context(), c: LearnConfig{Progress: func(s string) { t.Log(s) }}, f: f, explored: map[int]bool{}}
		node := func(name string, host bool) int {
			if i, err := f.Find(name); err == nil {
				return i
			}
			f.Nodes = append(f.Nodes, topology.Node{Name: name, Host: host})
			return len(f.Nodes) - 1
		}
		start := node(from, true)
		l.target = node(to, true)
		l.ask = func(_ []turn, ttl int) (int, error) {
			if ttl > len(way) {
				return l.target, nil
			}
			return node(way[ttl-1], false), nil
		}
		if err := l.explore(start, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		back string
		want []Twice
	}{
		{"leaf2 spine leaf1", nil},
		{"x y z", []Twice{{"x", []string{"leaf2"}}, {"y", []string{"spine"}}, {"z", []string{"leaf1"}}}},
		{"leaf2 y leaf1", []Twice{{"y", []string{"spine"}}}},
	} {
		f := &topology.Fabric{}
		f.Selector.Radix = 4
		empty := *f
		learn(f, "h1", "h2", "leaf1", "spine", "leaf2")
		if got := LearnedTwice(&empty, f, "h1", "h2"); got != nil {
			t.Errorf("at first: %v", got)
		}
		before := topology.Fabric{Nodes: slices.Clone(f.Nodes), Links: slices.Clone(f.Links)}
		learn(f, "h2", "h1", strings.Fields(c.back)...)
		if got := LearnedTwice(&before, f, "h2", "h1"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("back over %s: %v, want %v", c.back, got, c.want)
		}
		// A host that was not known: nothing to hold it against.
		before = topology.Fabric{Nodes: slices.Clone(f.Nodes), Links: slices.Clone(f.Links)}
		learn(f, "h3", "h1", "leaf3", "spine", "leaf1")
		if got := LearnedTwice(&before, f, "h3", "h1"); got != nil {
			t.Errorf("another host: %v", got)
		}
	}
}
