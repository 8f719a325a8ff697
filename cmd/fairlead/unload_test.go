package main

import (
	"strings"
	"testing"
)

// A name for which nothing is loaded: what is loaded instead, if anything.
func TestNotLoaded(t *testing.T) {
	for _, c := range []struct {
		others []string
		want   string
	}{
		{nil, `nothing is loaded for "leaf1", nor for any other here; `},
		{[]string{"lb1", "leaf2"}, `nothing is loaded for "leaf1"; loaded are lb1, leaf2`},
	} {
		if got := notLoaded("leaf1", c.others).Error(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %s", c.others, got)
		}
	}
}
