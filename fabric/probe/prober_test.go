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

// A round without any answer judges nothing if paths are judged by each other, and
// is told after three.
func TestRelative(t *testing.T) {
	for _, relative := range []bool{false, true} {
		p := &Prober{c: Config{Relative: relative, Timeout: time.Millisecond, Targets: make([]Target, 1)},
			sent: make([]time.Time, 1), silent: map[int]int{}, changes: make(chan struct{}, 1)}
		for range 2 {
			p.lanes = append(p.lanes, &lane{socket: &socket{}, rounds: make([]sentProbe, 1), track: track{verdict: Unknown}})
		}
		// Who answers, whom the host says to have had unanswered, and what follows.
		round := func(times int, answers, arrived [2]bool, silent bool, want ...Verdict) {
			t.Helper()
			for range times {
				for i, l := range p.lanes {
					l.rounds[0].rtt, l.arrived = 0, arrived[i]
					if answers[i] {
						l.rounds[0].rtt = time.Millisecond
					}
				}
				p.round++
				p.judgeDue(time.Now())
			}
			for i, s := range p.States() {
				if s.Verdict != want[i] || (s.Silent != "") != silent {
					t.Errorf("relative %v, path %d is %s, want %s; silent: %q, want %v", relative, i, s.Verdict, want[i], s.Silent, silent)
				}
			}
		}
		both, none := [2]bool{true, true}, [2]bool{}
		round(3, both, none, false, Good, Good)
		round(2, none, none, false, Good, Good)
		if !relative {
			round(1, none, none, true, Lost, Lost)
			continue
		}
		round(9, none, none, true, Good, Good)
		round(3, [2]bool{true, false}, none, false, Good, Lost)
		round(9, none, none, true, Good, Lost)
		round(20, both, none, false, Good, Good)
		round(9, [2]bool{false, true}, [2]bool{true, false}, false, Good, Good)
		round(3, [2]bool{false, true}, none, false, Lost, Good)
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
