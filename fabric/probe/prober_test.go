package probe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// leafSpine is a fabric that no machine has, and all paths between its hosts.
func leafSpine(t *testing.T, plain bool) (*topology.Fabric, Target) {
	t.Helper()
	f, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Selector.Key = key
	for i := range f.Nodes {
		f.Nodes[i].Plain = plain && !f.Nodes[i].Host
	}
	n, err := paths.New(f)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := n.Routes(paths.Place{Node: 0}, paths.Place{Node: 1}, paths.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return f, Target{Host: f.Nodes[1].Name, Paths: slices.Collect(routes.All())}
}

// What makes no sense is refused, in one line that names it and the remedy.
func TestNewRefuses(t *testing.T) {
	f, target := leafSpine(t, false)
	plain, unsteered := leafSpine(t, true)
	for _, c := range []struct {
		name, says string
		config     Config
	}{
		{"not this host", "this host has no address 10.", Config{Fabric: f}},
		{"interval", "interval 1ms: must be 10ms or more", Config{Fabric: f, Interval: time.Millisecond}},
		{"timeout", "timeout 1m0s: must be 1ms to 10s", Config{Fabric: f, Timeout: time.Minute}},
		{"walk", "walk -1s: must be 0 (never) or more", Config{Fabric: f, Walk: -time.Second}},
		{"plain routers", "is plain and chooses by a hash nobody knows", Config{Fabric: plain}},
	} {
		c.config.From, c.config.Targets = f.Nodes[0].Name, []Target{target}
		if c.config.Fabric == plain {
			c.config.Targets = []Target{unsteered}
		}
		p, err := New(c.config)
		if err == nil {
			p.Close()
			t.Errorf("%s: not refused", c.name)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q does not say %q in one line", c.name, err, c.says)
		}
	}
}

// A beginning of a path keeps the choices before its last router, by their
// places on the way.
func TestBeginning(t *testing.T) {
	f, err := topology.FatTree(4)
	if err != nil {
		t.Fatal(err)
	}
	n, err := paths.New(f)
	if err != nil {
		t.Fatal(err)
	}
	last := slices.IndexFunc(f.Nodes, func(n topology.Node) bool { return n.Name == "host-15" })
	routes, err := n.Routes(paths.Place{Node: 0}, paths.Place{Node: last}, paths.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Collect(routes.All())[3]
	ttl := f.Nodes[0].TTL
	for k := 1; k < len(whole.Hops); k++ {
		b := beginning(whole, ttl, k)
		if len(b.Hops) != k {
			t.Errorf("as far as router %d: %d links", k, len(b.Hops))
		}
		// Edge and aggregation choose upwards; who is behind them is seen from
		// the next router on.
		if want := min(k-1, 2); len(b.Steps) != want {
			t.Errorf("as far as router %d: choices %v, want %d", k, b.Steps, want)
		}
		for i, s := range b.Steps {
			if nth(s, ttl) != i+1 {
				t.Errorf("choice %v is of router %d, want %d", s, nth(s, ttl), i+1)
			}
		}
	}
}
