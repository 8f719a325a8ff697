package main

import (
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// Paths over the same nodes are told apart by their links.
func TestSteeredPath(t *testing.T) {
	all := []*fairleadv1.SteeredPath{
		{Nodes: []string{"lb", "leaf1", "spine1", "leaf2", "s"}, Links: []string{"a", "b"}},
		{Nodes: []string{"lb", "leaf1", "leaf2", "s"}, Links: []string{"lb-leaf1:0", "leaf1:1-leaf2:1"}},
		{Nodes: []string{"lb", "leaf1", "leaf2", "s"}, Links: []string{"lb-leaf1:0", "leaf1:2-leaf2:2"}},
	}
	for i, want := range []string{"leaf1 spine1 leaf2", "leaf1 leaf2 (lb-leaf1:0 leaf1:1-leaf2:1)", "leaf1 leaf2 (lb-leaf1:0 leaf1:2-leaf2:2)"} {
		if got := steeredPath(all, i); got != want {
			t.Errorf("path %d: %s, want %s", i, got, want)
		}
	}
}
