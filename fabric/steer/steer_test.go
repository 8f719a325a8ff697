package steer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/wire"
)

// leafSpine is two leaves, spines between them, the balancer lb on the first leaf
// and servers s0, s1, … on the second.
func leafSpine(spines, servers int, c pathsel.Config) *topology.Fabric {
	f := &topology.Fabric{Selector: c}
	c.Key[3] = 7
	node := func(name string, host bool, addresses ...netip.Addr) int {
		f.Nodes = append(f.Nodes, topology.Node{Name: name, Host: host, Addresses: addresses, TTL: 64})
		return len(f.Nodes) - 1
	}
	link := func(a, portA, b, portB int) {
		f.Links = append(f.Links, topology.Link{Ends: [2]topology.End{{Node: a, Port: portA}, {Node: b, Port: portB}}, Cost: 1})
	}
	one, two := node("leaf1", false), node("leaf2", false)
	for i := range spines {
		spine := node(fmt.Sprintf("spine%d", i+1), false)
		link(one, i, spine, 0)
		link(two, i, spine, 1)
	}
	lb := node("lb", true, netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00:1::2"))
	link(lb, -1, one, spines)
	for i := range servers {
		s := node(fmt.Sprintf("s%d", i), true, netip.MustParseAddr(fmt.Sprintf("10.2.0.%d", i+2)), netip.MustParseAddr(fmt.Sprintf("fd00:2::%d", i+2)))
		link(s, -1, two, spines+i)
	}
	return f
}

func config(radix int, four, six pathsel.Field) pathsel.Config {
	return pathsel.Config{Permutation: pathsel.Feistel, Radix: radix, IPv4: four, IPv6: six}
}

func open(t *testing.T, f *topology.Fabric) *Steering {
	t.Helper()
	s, err := New(f, "lb")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every flow of every path takes just this path, by paths.Net.Of, which the
// routers' program is held against.
func TestFlowsTakeTheirPath(t *testing.T) {
	for _, c := range []pathsel.Config{
		config(16, pathsel.Ports, pathsel.Ports),
		config(8, pathsel.SourcePort, pathsel.FlowLabel),
		config(6, pathsel.Ports, pathsel.SourcePort),
	} {
		f := leafSpine(4, 2, c)
		s := open(t, f)
		net, err := paths.New(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"10.2.0.2", "10.2.0.3", "fd00:2::2"} {
			address := netip.MustParseAddr(to)
			source := netip.MustParseAddr("10.1.0.2")
			if address.Is6() {
				source = netip.MustParseAddr("fd00:1::2")
			}
			server, err := s.Server(address, source)
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			if len(server.Paths) != 4 {
				t.Fatalf("%d paths to %s, want 4", len(server.Paths), to)
			}
			for i, flows := range server.flows {
				if len(flows) < 32 {
					t.Errorf("%+v: %d tunnels that take path %d to %s", c, len(flows), i, to)
				}
				seen := map[uint16]bool{}
				for _, e := range flows {
					got, _, known, err := net.Of(pathsel.Flow{Src: source, Dst: address, Proto: paths.UDP, SrcPort: e.Port, DstPort: wire.GUE.Port(), Label: e.Label}, bpf.OuterTTL)
					if err != nil || !known {
						t.Fatal(known, err)
					}
					if !slices.Equal(got.Hops, server.Paths[i].Hops) {
						t.Fatalf("%+v: %+v to %s takes %v, not path %d", c, e, to, got.Hops, i)
					}
					if seen[e.Port] {
						t.Fatalf("source port %d twice", e.Port)
					}
					if seen[e.Port] = true; server.Of(e) != i {
						t.Fatalf("Of(%+v) = %d, want %d", e, server.Of(e), i)
					}
				}
			}
		}
	}
}

func TestRows(t *testing.T) {
	server, err := open(t, leafSpine(4, 1, config(16, pathsel.Ports, pathsel.Ports))).Server(netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.1.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	all := []bool{true, true, true, true}
	if got := server.Shares(AllPaths, all, 0); !slices.Equal(got, []int{16, 16, 16, 16}) {
		t.Errorf("all good: %v", got)
	}
	one := []bool{true, false, true, true}
	if got := server.Shares(AllPaths, one, 0); got[1] != 0 || slices.Max(got)-slices.Min([]int{got[0], got[2], got[3]}) > 1 {
		t.Errorf("one bad: %v", got)
	}
	// Nothing moves but what was on the bad path.
	before, after := server.Row(AllPaths, all, 0), server.Row(AllPaths, one, 0)
	for i := range before {
		if server.Of(before[i]) != 1 && before[i] != after[i] {
			t.Errorf("part %d moved from good path %d", i, server.Of(before[i]))
		}
	}
	if got := server.Shares(AllPaths, make([]bool, 4), 0); !slices.Equal(got, []int{16, 16, 16, 16}) {
		t.Errorf("none good is as all good: %v", got)
	}
	for rank := range 8 {
		if got := server.Shares(OnePath, all, rank); got[rank%4] != Entries {
			t.Errorf("rank %d: %v", rank, got)
		}
	}
	if got := server.Shares(OnePath, one, 1); got[1] != 0 || slices.Max(got) != Entries {
		t.Errorf("one path, which is bad: %v", got)
	}
}

// Of many paths some are used, all different.
func TestManyPaths(t *testing.T) {
	s := open(t, leafSpine(40, 1, config(64, pathsel.Ports, pathsel.Ports)))
	server, err := s.Server(netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.1.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	if server.All != 40 || len(server.Paths) != MaxPaths {
		t.Fatalf("%d of %d paths", len(server.Paths), server.All)
	}
	seen := map[string]bool{}
	for _, p := range server.Paths {
		seen[fmt.Sprint(p.Hops)] = true
	}
	if len(seen) != MaxPaths {
		t.Errorf("%d different paths", len(seen))
	}
}

func TestRefused(t *testing.T) {
	f := leafSpine(2, 1, config(16, pathsel.Ports, pathsel.Ports))
	for _, c := range []struct{ name, want string }{{"nobody", "no host called nobody"}, {"leaf1", "is a router"}} {
		if _, err := New(f, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%s): %v", c.name, err)
		}
	}
	s := open(t, f)
	if err := s.Reaches(netip.MustParseAddr("10.9.9.9")); err == nil || !strings.Contains(err.Error(), "no host of the fabric has the address 10.9.9.9") {
		t.Error(err)
	}
	f = leafSpine(2, 1, config(16, pathsel.Ports, pathsel.Ports))
	f.Nodes[0].Plain = true
	if err := open(t, f).Reaches(netip.MustParseAddr("10.2.0.2")); err == nil || !strings.Contains(err.Error(), "leaf1 is plain") {
		t.Error(err)
	}
}

func TestHold(t *testing.T) {
	now := time.Unix(1000, 0)
	var h Hold
	judge := func(says, want Standing) {
		t.Helper()
		if got := h.Judge(says, now); got != want {
			t.Fatalf("probes say %d: stands %d, want %d", says, got, want)
		}
	}
	if h.Standing(now) != Unknown {
		t.Error("something is known of a new path")
	}
	judge(Good, Good)
	judge(Bad, Bad)
	judge(Good, Good) // the first return is not held
	// Each return soon after waits twice as long, whatever was bad.
	says := Bad
	for _, want := range []time.Duration{2, 4, 8, 16, 16} {
		want *= time.Second
		judge(says, says)
		says = Slow
		judge(says, says)
		judge(Good, Held)
		if until := h.Until(now); until.Sub(now) != want {
			t.Fatalf("held for %v, want %v", until.Sub(now), want)
		}
		now = now.Add(want)
		if h.Standing(now) != Good || !h.Until(now).IsZero() {
			t.Fatalf("not usable after %v", want)
		}
	}
	now = now.Add(forgive + time.Second)
	judge(Bad, Bad)
	judge(Good, Good) // what was long ago is forgotten
}

// Used is what stands best; where all are bad nothing is to be changed.
func TestBest(t *testing.T) {
	for _, c := range []struct {
		paths []Standing
		used  string // 1: used; empty: as before
	}{
		{[]Standing{Good, Good, Held, Bad}, "1100"},
		{[]Standing{Held, Bad}, "10"},
		{[]Standing{Held, Held, Unknown, Slow}, "1100"},
		{[]Standing{Bad, Unknown, Slow}, "010"},
		{[]Standing{Bad, Slow, Bad}, "010"},
		{[]Standing{Unknown, Unknown}, "11"},
		{[]Standing{Bad, Bad}, ""},
		{[]Standing{Bad}, ""},
	} {
		var got strings.Builder
		for _, used := range Best(c.paths) {
			got.WriteByte("01"[map[bool]int{true: 1}[used]])
		}
		if got.String() != c.used {
			t.Errorf("%v: %q are used, want %q", c.paths, got.String(), c.used)
		}
	}
}
