package main

import (
	"bytes"
	"errors"
	"slices"
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

// TestUnloadGoesOn: what cannot be taken out is said, and keeps nothing else in the kernel.
func TestUnloadGoesOn(t *testing.T) {
	var out bytes.Buffer
	var asked []string
	err := unloadAll(&out, []string{"lb1", "nosuch", "s1"}, func(name string) (string, error) {
		asked = append(asked, name)
		switch name {
		case "nosuch":
			return "", notLoaded(name, []string{"lb1", "s1"})
		case "s1":
			return "", errors.New("unload s1: its daemon runs")
		}
		return "", nil
	})
	if !slices.Equal(asked, []string{"lb1", "nosuch", "s1"}) || !strings.HasPrefix(out.String(), "lb1 unloaded") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q: %s", asked, out.String())
	}
	if err == nil || err.Error() != "nothing is loaded for \"nosuch\"; loaded are lb1, s1\nunload s1: its daemon runs" {
		t.Error(err)
	}
}
