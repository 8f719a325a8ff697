package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
)

// key is that of the fabrics of these tests.
var key = [16]byte{0xfa, 1, 2, 3}

// buildFabric builds a fabric of namespaces for a test.
func buildFabric(t *testing.T, name string, of *topology.Fabric, err error, o fabrics.Options) *fabrics.Fabric {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("fabrics of namespaces need root: run the tests with sudo")
	}
	if err != nil {
		t.Fatal(err)
	}
	of.Selector.Key = key
	for i := range of.Nodes { // a second family for the ends
		of.Nodes[i].Addresses = append(of.Nodes[i].Addresses, netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xb0, 15: byte(i + 1)}))
	}
	o.Name = fmt.Sprint("b", name, os.Getpid())
	f, err := fabrics.Up(t.Context(), of, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
		if left := netspace.List("fl-" + o.Name + "-"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	return f
}

// answerOn runs an answerer on a host until the test ends.
func answerOn(t *testing.T, f *fabrics.Fabric, host string, port uint16) *Answerer {
	t.Helper()
	var a *Answerer
	err := f.In(host, func() (err error) {
		a, err = NewAnswerer(AnswerConfig{Key: f.Topology().Selector.Key, Port: port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, func(ctx context.Context) { _ = a.Run(ctx) })
	return a
}

func runUntilEnd(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// probeFrom probes all paths between two hosts until the test ends.
func probeFrom(t *testing.T, f *fabrics.Fabric, from, to string, six bool) *Prober {
	t.Helper()
	n, err := paths.New(f.Topology())
	if err != nil {
		t.Fatal(err)
	}
	routes, err := n.Routes(paths.Place{Node: f.Node(from)}, paths.Place{Node: f.Node(to)}, paths.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Host: to, Paths: slices.Collect(routes.All())}
	var p *Prober
	err = f.In(from, func() (err error) {
		p, err = New(Config{Fabric: f.Topology(), From: from, IPv6: six, Targets: []Target{target}, Walk: time.Second,
			Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, func(ctx context.Context) { _ = p.Run(ctx) })
	return p
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = testWriter{}

// await waits until the report satisfies the condition, and logs how long.
func await(t *testing.T, p *Prober, what string, want func([]State, []Finding) bool) ([]State, []Finding) {
	t.Helper()
	began := time.Now()
	ok := netspace.WaitFor(20*time.Second, func() bool { return want(p.Report()) })
	states, findings := p.Report()
	if !ok {
		for _, w := range p.walkers {
			t.Logf("walk to %s over %v: TTL %d, flow %v: right %v, wrong %d (%s), silent %d, %s", p.c.Fabric.Nodes[w.router].Name, w.links, w.ttl, w.flow, w.right, w.wrong, w.saw, w.silent, w.shift)
		}
		t.Fatalf("never came: %s; states %+v, findings %+v", what, states, findings)
	}
	t.Logf("%s after %v", what, time.Since(began).Round(time.Millisecond))
	return states, findings
}

func allGood(states []State, findings []Finding) bool {
	return len(findings) == 0 && !slices.ContainsFunc(states, func(s State) bool { return s.Verdict != Good || s.Altered != "" })
}

// One path, without selectors: probes and answers of both families.
func TestOnePath(t *testing.T) {
	of, err := topology.LeafSpine(2, 1, 1)
	f := buildFabric(t, "one", of, err, fabrics.Options{})
	a := answerOn(t, f, "host-1", DefaultPort)
	for _, six := range []bool{false, true} {
		p := probeFrom(t, f, "host-0", "host-1", six)
		states, _ := await(t, p, fmt.Sprintf("the path is good (IPv6 %v)", six), allGood)
		if s := states[0]; s.Flow.Src.Is6() != six || s.RTTMin <= 0 || s.RTTMin > time.Second {
			t.Errorf("state %+v", s)
		}
		if err := p.Measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", p.States())
	}
	if n := a.Answers(); n.Answered == 0 || n.Foreign != 0 || n.Failed != 0 {
		t.Errorf("answerer counted %+v", n)
	}
}

// nft gives a node rules of nftables.
func nft(t *testing.T, f *fabrics.Fabric, node, rules string) {
	t.Helper()
	if out, err := fabricstest.Run(t.Context(), f, node, "nft", rules); err != nil {
		t.Fatalf("nft %s: %v %s", rules, err, out)
	}
}

// What a router on the way rewrites is said, and where.
func TestRewritten(t *testing.T) {
	of, err := topology.LeafSpine(2, 1, 1)
	f := buildFabric(t, "alter", of, err, fabrics.Options{})
	answerOn(t, f, "host-1", DefaultPort)
	answerOn(t, f, "host-1", 6082)
	nat := []int{0, 1, 2, 3} // any link: the selector is another behind it, and nothing more is seen
	for _, c := range []struct {
		name, rules, says string
		links             []int
	}{
		{"TTL lowered", "chain c { type filter hook forward priority 0; iif eth0 ip ttl set 40; }", "the TTL arrives as 39, not 61", []int{3}},
		{"TTL raised", "chain c { type filter hook forward priority 0; iif eth0 ip ttl set 250; }", "the TTL arrives as 249, not 61", []int{3}},
		{"TTL lowered on the way back", "chain c { type filter hook forward priority 0; iif eth1 ip ttl set 40; }", "the TTL of answers arrives as 39, not 61", nat},
		{"source NAT", "chain c { type nat hook postrouting priority 100; oif eth1 masquerade; }", "NAT on the way: 10.0.0.1:", nat},
		{"destination NAT", "chain c { type nat hook prerouting priority -100; udp dport 6081 dnat to 10.0.0.2:6082; }",
			"NAT on the way: what is sent to 10.0.0.2:6081 arrives at 10.0.0.2:6082", nat},
	} {
		t.Run(c.name, func(t *testing.T) {
			nft(t, f, "spine-0", "table ip alter { "+c.rules+"; }")
			defer nft(t, f, "spine-0", "delete table ip alter")
			p := probeFrom(t, f, "host-0", "host-1", false)
			states, _ := await(t, p, "it is said", func(s []State, found []Finding) bool {
				return strings.Contains(s[0].Altered, c.says) && len(found) == 1 && found[0].Kind == KindAltered && slices.Equal(found[0].Links, c.links)
			})
			t.Log(states[0].Altered)
		})
	}
}

// names is a finding that says just this of one link.
func names(kind Kind, link int) func([]State, []Finding) bool {
	return func(_ []State, found []Finding) bool {
		return len(found) == 1 && found[0].Kind == kind && slices.Equal(found[0].Links, []int{link})
	}
}

// Real routers, four paths: whatever is wrong with a link, it is named, and
// no other; and it is well again when it is.
func TestBadLink(t *testing.T) {
	of, err := topology.LeafSpine(2, 4, 1)
	f := buildFabric(t, "link", of, err, fabrics.Options{Program: built.Fairlead(t), Wires: true})
	answerOn(t, f, "host-1", DefaultPort)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", six), func(t *testing.T) {
			p := probeFrom(t, f, "host-0", "host-1", six)
			await(t, p, "all paths are good", allGood)
			cases := []struct {
				name         string
				link         int
				kind         Kind
				damage, mend func(int) error
			}{
				{"first link loses", f.Link("leaf-0", "spine-1", 0), KindLost, func(l int) error { return fabricstest.Lose(f, l, 1) }, func(l int) error { return fabricstest.Lose(f, l, 0) }},
				{"second link loses", f.Link("spine-2", "leaf-1", 0), KindLost, func(l int) error { return fabricstest.Lose(f, l, 1) }, func(l int) error { return fabricstest.Lose(f, l, 0) }},
				{"first link is cut", f.Link("leaf-0", "spine-3", 0), KindLost, f.Cut, f.Restore},
				// Once routing has heard of it, nothing is lost any more.
				{"first link is out of use", f.Link("leaf-0", "spine-3", 0), KindUnused, func(l int) error { return errors.Join(f.Cut(l), f.Reroute()) }, f.Restore},
			}
			if six {
				cases = cases[:1] // the rest does not depend on the family
			}
			for _, c := range cases {
				do(c.damage(c.link))
				_, found := await(t, p, c.name, names(c.kind, c.link))
				t.Logf("%+v", found[0])
				do(c.mend(c.link))
				await(t, p, "all is well again", allGood)
			}
		})
	}
	for _, name := range [][2]string{{"leaf-0", "spine-0"}, {"spine-3", "leaf-1"}} {
		link := f.Link(name[0], name[1], 0)
		do(f.Limit(link, 5e6))
		p := probeFrom(t, f, "host-0", "host-1", false)
		began := time.Now()
		// The best of all trains counts: on a busy machine the first may not do.
		var states []State
		var found []Finding
		for range 4 {
			do(p.Measure(t.Context()))
			if states, found = p.Report(); names(KindSlow, link)(states, found) {
				break
			}
		}
		if !names(KindSlow, link)(states, found) {
			t.Errorf("link %d of 5 Mbit/s: %+v, %+v", link, states, found)
		}
		t.Logf("measured in %v: %+v, rates %v", time.Since(began), found, states[0].Rates)
		do(f.Limit(link, 0))
	}
}

// Fields other than both ports: source ports of 16 bits, and flow labels.
func TestFields(t *testing.T) {
	of, err := topology.LeafSpine(2, 2, 1)
	if err == nil {
		of.Selector.IPv4, of.Selector.IPv6 = pathsel.SourcePort, pathsel.FlowLabel
	}
	f := buildFabric(t, "field", of, err, fabrics.Options{Program: built.Fairlead(t)})
	answerOn(t, f, "host-1", DefaultPort)
	for _, six := range []bool{false, true} {
		p := probeFrom(t, f, "host-0", "host-1", six)
		await(t, p, "all paths are good", allGood)
		// The walks, which go out at once, agree.
		states, _ := await(t, p, "walks agree", func(s []State, found []Finding) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return !slices.ContainsFunc(p.choices(), func(w *walker) bool { return w.right.IsZero() }) && allGood(s, found)
		})
		if s := states[0]; (s.Flow.Label != 0) != six {
			t.Errorf("IPv6 %v: flow %+v", six, s.Flow)
		}
	}
}
