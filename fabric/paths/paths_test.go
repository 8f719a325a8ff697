package paths

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/soak"
)

// drawn is the net of a fabric that a generator drew, with a key.
func drawn(t testing.TB, f *topology.Fabric, err error) *Net {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f.Selector.Key = [16]byte{1, 2, 3}
	n, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// written is the net of a file.
func written(t testing.TB, text string) *Net {
	t.Helper()
	f, err := topology.Parse("test.yaml", []byte("selector: {key: 000102030405060708090a0b0c0d0e0f, radix: 8}\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAgainstSearch compares with all simple paths of least cost, found by
// trying everything, over random fabrics with parallel links, costs, links
// that are down, and hosts with several links.
func TestAgainstSearch(t *testing.T) {
	r := soak.Rand(t)
	for range 300 {
		f := randomFabric(r)
		n := drawn(t, f, nil)
		for a := range f.Nodes {
			for b := range f.Nodes {
				want := everything(f, a, b)
				routes, err := n.Routes(Place{Node: a}, Place{Node: b}, Rules{})
				if (err == nil) != (len(want) > 0) {
					t.Fatalf("%d to %d: %v, want %d paths", a, b, err, len(want))
				}
				if err != nil {
					if !errors.Is(err, ErrNoPath) {
						t.Fatal(err)
					}
					continue
				}
				var got []string
				for p := range routes.All() {
					got = append(got, fmt.Sprint(p.Hops))
				}
				slices.Sort(got)
				if uint64(len(got)) != routes.Count() || !slices.Equal(got, want) {
					t.Fatalf("%d to %d: %v, want %v in %+v", a, b, got, want, f.Links)
				}
			}
		}
	}
}

func randomFabric(r *rand.Rand) *topology.Fabric {
	f := &topology.Fabric{Selector: pathsel.Config{Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports}}
	routers, hosts := 1+r.IntN(5), 2+r.IntN(3)
	next := make([]int, routers)
	for i := range routers + hosts {
		f.Nodes = append(f.Nodes, topology.Node{Name: fmt.Sprintf("n%d", i), Host: i >= routers, TTL: 64,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	for range routers + hosts + r.IntN(8) {
		a, b := r.IntN(routers+hosts), r.IntN(routers+hosts)
		if a == b {
			continue
		}
		l := topology.Link{Cost: 1 + r.IntN(2), Down: r.IntN(8) == 0}
		for side, node := range []int{a, b} {
			l.Ends[side] = topology.End{Node: node, Port: -1}
			if node < routers && next[node] < 16 {
				l.Ends[side].Port = next[node]
				next[node]++
			}
		}
		f.Links = append(f.Links, l)
	}
	return f
}

// everything is all simple paths of least cost whose inner nodes are routers.
func everything(f *topology.Fabric, a, b int) []string {
	least, out := 1<<30, []string{}
	var walk func(at, cost int, seen map[int]bool, hops []Hop)
	walk = func(at, cost int, seen map[int]bool, hops []Hop) {
		if at == b {
			if len(hops) == 0 {
				return
			}
			if cost < least {
				least, out = cost, out[:0]
			}
			if cost == least {
				out = append(out, fmt.Sprint(hops))
			}
			return
		}
		if at != a && f.Nodes[at].Host {
			return
		}
		seen[at] = true
		for i, l := range f.Links {
			for side := range l.Ends {
				if to := l.Ends[1-side].Node; !l.Down && l.Ends[side].Node == at && !seen[to] {
					walk(to, cost+l.Cost, seen, append(slices.Clone(hops), Hop{i, side}))
				}
			}
		}
		delete(seen, at)
	}
	walk(a, 0, map[int]bool{}, nil)
	slices.Sort(out)
	return out
}

// TestPortsLeadThere: each path's flows take that path, by the routers' model;
// the steps of Of are the path's.
func TestPortsLeadThere(t *testing.T) {
	r := soak.Rand(t)
	n := drawn(t, must(topology.FatTree(4)), nil)
	for _, fields := range []pathsel.Field{pathsel.Ports, pathsel.SourcePort} {
		f := *n.fabric
		f.Selector.IPv4 = fields
		n := drawn(t, &f, nil)
		a, b := host(t, n, 0), host(t, n, -1)
		routes, err := n.Routes(a, b, Rules{})
		if err != nil || routes.Count() != 4 {
			t.Fatal(routes, err)
		}
		for p := range routes.All() {
			for _, q := range []Request{{}, {DstPort: 443}, {SrcPort: 50000}, {DstPort: 443, SrcPorts: [2]uint16{2000, 40000}}, {DstPort: 80, TTL: 33, Proto: UDP}} {
				if q.DstPort == 0 && fields == pathsel.SourcePort {
					continue
				}
				q.Random = r.Uint64()
				flow, err := n.Ports(&p, q)
				if err != nil {
					t.Fatalf("%+v: %v", q, err)
				}
				if q.DstPort != 0 && flow.DstPort != q.DstPort || q.SrcPort != 0 && flow.SrcPort != q.SrcPort || !within(flow.SrcPort, q.SrcPorts) {
					t.Errorf("%+v: %+v", q, flow)
				}
				back, choices, known, err := n.Of(flow, q.TTL)
				if err != nil || !known || !reflect.DeepEqual(back.Hops, p.Hops) || !reflect.DeepEqual(back.Steps, p.Steps) {
					t.Fatalf("%+v leads over %v %v, want %v (%v)", flow, back.Hops, back.Steps, p.Hops, err)
				}
				for _, c := range choices {
					if c.How != pathsel.Selected {
						t.Errorf("%+v: %+v", flow, c)
					}
				}
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// host is the host with this number among hosts, from the end if negative.
func host(t testing.TB, n *Net, number int) Place {
	var hosts []int
	for i := range n.fabric.Nodes {
		if n.fabric.Nodes[i].Host {
			hosts = append(hosts, i)
		}
	}
	return Place{Node: hosts[(number+len(hosts))%len(hosts)]}
}

func TestEachPorts(t *testing.T) {
	n := drawn(t, must(topology.LeafSpine(2, 4, 1)), nil)
	routes := must(n.Routes(host(t, n, 0), host(t, n, 1), Rules{}))
	var p Path
	routes.At(2, &p)
	for _, q := range []Request{{}, {DstPort: 80}, {SrcPort: 40000}} {
		seen := map[pathsel.Flow]bool{}
		err := n.EachPorts(&p, q, 50, func(f pathsel.Flow) bool {
			if seen[f] {
				t.Errorf("%+v twice", f)
			}
			seen[f] = true
			return true
		})
		if err != nil || len(seen) != 50 {
			t.Errorf("%+v: %d flows, %v", q, len(seen), err)
		}
		// Those that are taken are not given again.
		if f, err := n.Ports(&p, Request{SrcPort: q.SrcPort, DstPort: q.DstPort, Taken: func(f pathsel.Flow) bool { return seen[f] }}); err != nil || seen[f] {
			t.Errorf("%+v, %v", f, err)
		}
	}
	_, err := n.Ports(&p, Request{DstPort: 80, Taken: func(pathsel.Flow) bool { return true }})
	if !errors.Is(err, pathsel.ErrNoSelector) || !strings.Contains(err.Error(), "are taken; release flows") {
		t.Error(err)
	}
}

const seven = `
routers: [{name: r1}, {name: r2, plain: true}]
hosts: [{name: client, addresses: [10.0.0.1]}, {name: server, addresses: [10.0.1.1, 10.0.2.1]}]
links:
  - {between: [client, r1]}
  - {between: [r1, r2], ports: [0, 0]}
  - {between: [r1, r2], ports: [1, 1]}
  - {between: [r1, r2]}
  - {between: [r2, server], addresses: [none, 10.0.1.1]}
  - {between: [r1, server], addresses: [none, 10.0.2.1]}
`

// TestAddressesOnLinks: an address on a link's end is reached by that link,
// a name by all.
func TestAddressesOnLinks(t *testing.T) {
	n := written(t, seven)
	count := func(a, b string) uint64 {
		t.Helper()
		r, err := n.Routes(must(n.Place(a)), must(n.Place(b)), Rules{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Count()
	}
	if a, b, c := count("client", "10.0.1.1"), count("client", "10.0.2.1"), count("client", "server"); a != 3 || b != 1 || c != 4 {
		t.Errorf("%d, %d, %d paths", a, b, c)
	}
	// Its own packets leave by the link of their source.
	if a, b := count("10.0.1.1", "client"), count("10.0.2.1", "client"); a != 3 || b != 1 {
		t.Errorf("%d, %d paths back", a, b)
	}
	p := slices.Collect(must(n.Routes(must(n.Place("client")), must(n.Place("server")), Rules{})).All())[0]
	f, err := n.Ports(&p, Request{DstPort: 80})
	if err != nil || f.Dst != netip.MustParseAddr("10.0.1.1") {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestAddressOfAnotherLink: packets to an address do not take a path that ends
// with another link.
func TestAddressOfAnotherLink(t *testing.T) {
	n := written(t, seven)
	p := slices.Collect(must(n.Routes(must(n.Place("client")), must(n.Place("server")), Rules{})).All())[0]
	_, err := n.Ports(&p, Request{DstPort: 80, Dst: netip.MustParseAddr("10.0.2.1")})
	if !errors.Is(err, ErrUnsteered) || !strings.Contains(err.Error(), "destination 10.0.2.1 stands on link r1-server, and the path ends with link r2-server") {
		t.Error(err)
	}
	if f, err := n.Ports(&p, Request{DstPort: 80, Dst: netip.MustParseAddr("10.0.1.1")}); err != nil || f.Dst != netip.MustParseAddr("10.0.1.1") {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestNumber: the number of a path is the one that At has it under.
func TestNumber(t *testing.T) {
	r := soak.Rand(t)
	for range 100 {
		f := randomFabric(r)
		n := drawn(t, f, nil)
		routes, err := n.Routes(Place{Node: r.IntN(len(f.Nodes))}, Place{Node: r.IntN(len(f.Nodes))}, Rules{})
		if err != nil {
			continue
		}
		for i := range min(routes.Count(), 200) {
			var p Path
			routes.At(i, &p)
			if got, ok := routes.Number(p.Hops); !ok || got != i {
				t.Fatalf("path %d has number %d, %v", i, got, ok)
			}
			for end := range p.Hops {
				if got, ok := routes.Number(p.Hops[:end]); ok {
					t.Fatalf("the beginning of path %d has number %d", i, got)
				}
			}
		}
	}
}

// TestAt: a place under an address of its own, or one that the file cannot know.
func TestAt(t *testing.T) {
	n := written(t, seven)
	server := must(n.Place("server"))
	for address, want := range map[string]string{"10.0.2.1": "", "2001:db8::7": "", "10.0.0.1": "10.0.0.1 is an address of client, not of server",
		"10.0.2.2": "10.0.2.2 is no address of server, by the file; write one that is, such as 10.0.1.1"} {
		a := netip.MustParseAddr(address)
		p, err := n.At(server, a)
		if want == "" && (err != nil || a.Is4() != (p.Addr == a)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, %v", address, p, err)
		}
	}
}

// TestSteeredByFamily: whether two routers read the same digit depends on how
// many digits the family's field has: 8 of two ports, 5 of a flow label.
func TestSteeredByFamily(t *testing.T) {
	chain := `
routers: [{name: r1}, {name: r2}, {name: r3}, {name: r4}, {name: r5}, {name: r6}, {name: r7}]
hosts: [{name: a, addresses: [A]}, {name: b, addresses: [B]}]
links:
  - {between: [a, r1]}
  - {between: [r1, r2], ports: [0, 0]}
  - {between: [r1, r2], ports: [1, 1]}
  - {between: [r2, r3]}
  - {between: [r3, r4]}
  - {between: [r4, r5]}
  - {between: [r5, r6]}
  - {between: [r6, r7], ports: [0, 0]}
  - {between: [r6, r7], ports: [1, 1]}
  - {between: [r7, b]}
`
	const a4, b4, a6, b6 = "10.0.0.1", "10.0.0.2", `"2001:db8::1"`, `"2001:db8::2"`
	for _, c := range []struct {
		a, b    string
		steered bool
	}{{a4, b4, true}, {a6, b6, false}, {a4 + ", " + a6, b4 + ", " + b6, true}, {a4 + ", " + a6, b6, false}, {"", "", true}} {
		text := "selector: {key: 000102030405060708090a0b0c0d0e0f, radix: 16, ipv6: flow-label}" + strings.NewReplacer("[A]", "["+c.a+"]", "[B]", "["+c.b+"]").Replace(chain)
		f, err := topology.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		n := must(New(f))
		var p Path
		must(n.Routes(must(n.Place("a")), must(n.Place("b")), Rules{})).At(0, &p)
		if err := n.Steered(&p); (err == nil) != c.steered || err != nil && !errors.Is(err, pathsel.ErrCollision) {
			t.Errorf("%s to %s: %v", c.a, c.b, err)
		}
		if _, err := n.Ports(&p, Request{SrcPort: 40000, DstPort: 80}); errors.Is(err, pathsel.ErrCollision) == c.steered {
			t.Errorf("%s to %s: %v", c.a, c.b, err)
		}
	}
}

func TestRules(t *testing.T) {
	n := drawn(t, must(topology.FatTree(4)), nil)
	a, b := host(t, n, 0), host(t, n, -1)
	all := must(n.Routes(a, b, Rules{}))
	for p := range all.All() {
		for _, h := range p.Hops[1 : len(p.Hops)-1] {
			sum := uint64(0)
			for _, rules := range []Rules{{ViaLinks: []int{h.Link}}, {AvoidLinks: []int{h.Link}}} {
				r, err := n.Routes(a, b, rules)
				if err != nil {
					t.Fatal(err)
				}
				sum += r.Count()
				for q := range r.All() {
					if has := slices.ContainsFunc(q.Hops, func(g Hop) bool { return g.Link == h.Link }); has != (rules.ViaLinks != nil) {
						t.Errorf("%+v: %v", rules, q.Hops)
					}
				}
			}
			if sum != all.Count() {
				t.Errorf("%d paths with and without, want %d", sum, all.Count())
			}
		}
		// All routers of a path in order leave that path.
		nodes := n.Nodes(&p)
		r, err := n.Routes(a, b, Rules{Via: nodes[1 : len(nodes)-1]})
		if err != nil || r.Count() != 1 {
			t.Fatal(err)
		}
		var q Path
		if r.At(0, &q); !reflect.DeepEqual(p, q) {
			t.Errorf("%+v, want %+v: steps as without rules", q, p)
		}
	}
	if _, err := n.Routes(a, b, Rules{Via: []int{host(t, n, 3).Node}}); !errors.Is(err, ErrNoPath) || !strings.Contains(err.Error(), "paths of equal cost pass ") {
		t.Error(err)
	}
}

// TestRefused: what cannot be done says what could.
func TestRefused(t *testing.T) {
	n := written(t, seven)
	place := func(s string) Place { return must(n.Place(s)) }
	for name, want := range map[string]string{
		"cleint":   "cleint: not in the fabric: there is no such router or host; did you mean client?",
		"x":        "x: not in the fabric: there is no such router or host; known: client, r1, r2, server",
		"10.9.9.9": "10.9.9.9: not in the fabric: no router or host has this address; write a name, or add it to the file",
	} {
		if _, err := n.Place(name); err == nil || err.Error() != want || !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.Routes(place("client"), place("client"), Rules{}); !errors.Is(err, ErrNoPath) {
		t.Error(err)
	}
	var p Path
	routes := must(n.Routes(place("client"), place("10.0.1.1"), Rules{}))
	routes.At(2, &p)
	if _, err := n.Ports(&p, Request{}); !errors.Is(err, ErrUnsteered) || !strings.Contains(err.Error(), "link r1-r2 cannot be selected: its port at r1 has no number; write one") {
		t.Error(err)
	}
	routes.At(1, &p)
	for want, q := range map[string]Request{
		"no address of IPv6 is known of client":   {IPv6: true},
		"time to live 1: the path has 2 routers":  {TTL: 1},
		"do not lead over this path":              {SrcPort: 1, DstPort: wrongPort(t, n, &p)},
		"none of the source ports 40000 to 40000": {DstPort: 80, SrcPorts: [2]uint16{40000, 40000}},
		"source ports 5-4: the first is above":    {DstPort: 80, SrcPorts: [2]uint16{5, 4}},
	} {
		if _, err := n.Ports(&p, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	// Back, the plain router chooses.
	back := must(n.Routes(place("10.0.1.1"), place("client"), Rules{}))
	back.At(0, &p)
	if _, err := n.Ports(&p, Request{}); !errors.Is(err, ErrUnsteered) || !strings.Contains(err.Error(), "router r2 is plain") {
		t.Error(err)
	}
	f := pathsel.Flow{Src: netip.MustParseAddr("10.0.1.1"), Dst: netip.MustParseAddr("10.0.0.1"), Proto: TCP, SrcPort: 80, DstPort: 80}
	if _, choices, known, err := n.Of(f, 0); err != nil || known || len(choices) != 1 || choices[0].Taken != -1 {
		t.Errorf("%+v, %v, %v", choices, known, err)
	}
}

// wrongPort is a destination port that leads, with source port 1, elsewhere.
func wrongPort(t *testing.T, n *Net, p *Path) uint16 {
	for port := uint16(1); port < 1000; port++ {
		if _, err := n.Ports(p, Request{SrcPort: 1, DstPort: port}); err != nil {
			return port
		}
	}
	t.Fatal("all ports lead over the path")
	return 0
}

// TestUncontrolled: Of foretells flows that nobody steered, and spreads them.
func TestUncontrolled(t *testing.T) {
	n := drawn(t, must(topology.LeafSpine(2, 3, 1)), nil)
	counts := map[string]int{}
	for port := range 3000 {
		f := pathsel.Flow{Src: n.fabric.Nodes[host(t, n, 0).Node].Addresses[0], Dst: n.fabric.Nodes[host(t, n, 1).Node].Addresses[0], Proto: TCP, SrcPort: uint16(port + 30000), DstPort: 80}
		p, _, known, err := n.Of(f, 0)
		if err != nil || !known {
			t.Fatal(err)
		}
		counts[fmt.Sprint(p.Hops)]++
	}
	for path, c := range counts {
		if len(counts) != 3 || c < 800 || c > 1200 {
			t.Errorf("%s: %d of 3000", path, c)
		}
	}
}

// BenchmarkSearchAndPorts is the figure: a path between two hosts of
// a fat-tree of 128 hosts is found, by random number, and its ports computed.
func BenchmarkSearchAndPorts(b *testing.B) {
	n := drawn(b, must(topology.FatTree(8)), nil)
	var places []Place
	for i := range 128 {
		places = append(places, host(b, n, i))
	}
	r := rand.New(rand.NewPCG(1, 2))
	var p Path
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		x, y := r.IntN(128), r.IntN(127)
		if y >= x {
			y++
		}
		routes, err := n.Routes(places[x], places[y], Rules{})
		if err != nil {
			b.Fatal(err)
		}
		routes.At(r.Uint64N(routes.Count()), &p)
		if _, err := n.Ports(&p, Request{Random: r.Uint64()}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFlowLabel: IPv6 steered by its flow label, while ports are given.
func TestFlowLabel(t *testing.T) {
	f := *must(topology.FatTree(4))
	f.Selector.IPv6 = pathsel.FlowLabel
	for i := range f.Nodes {
		f.Nodes[i].Addresses = append(f.Nodes[i].Addresses, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i + 1)}))
	}
	n := drawn(t, &f, nil)
	for p := range must(n.Routes(host(t, n, 0), host(t, n, -1), Rules{})).All() {
		flow, err := n.Ports(&p, Request{IPv6: true, SrcPort: 4711, DstPort: 80})
		if err != nil || flow.Label == 0 || flow.SrcPort != 4711 || !flow.Src.Is6() {
			t.Fatal(flow, err)
		}
		if back, _, known, err := n.Of(flow, 0); err != nil || !known || !slices.Equal(back.Hops, p.Hops) {
			t.Errorf("%+v leads over %v, want %v (%v)", flow, back.Hops, p.Hops, err)
		}
		if _, err := n.Ports(&p, Request{IPv6: true, DstPort: 80}); err == nil || !strings.Contains(err.Error(), "name both") {
			t.Error(err)
		}
	}
}

// TestTooLong: more choices in a row than a selector has digits. A path whose
// steps all happen to fit has ports, the others say why not; what has ports
// leads there.
func TestTooLong(t *testing.T) {
	text := "routers:\n"
	links := "hosts: [{name: a, addresses: [10.0.0.1]}, {name: b, addresses: [10.0.0.2]}]\nlinks:\n  - {between: [a, r0]}\n"
	const routers = 13 // radix 8: ten digits
	for i := range routers {
		text += fmt.Sprintf("  - {name: r%d}\n", i)
		for port := range 2 {
			if i+1 < routers {
				links += fmt.Sprintf("  - {between: [r%d, r%d], ports: [%d, %d]}\n", i, i+1, port, port+2)
			}
		}
	}
	n := written(t, text+links+fmt.Sprintf("  - {between: [r%d, b]}\n", routers-1))
	routes := must(n.Routes(must(n.Place("a")), must(n.Place("b")), Rules{}))
	if routes.Count() != 1<<(routers-1) {
		t.Fatal(routes.Count())
	}
	good, bad := 0, 0
	for p := range routes.All() {
		flow, err := n.Ports(&p, Request{})
		if err == nil {
			good++
			if back, _, known, err := n.Of(flow, 0); err != nil || !known || !slices.Equal(back.Hops, p.Hops) {
				t.Fatalf("%+v leads over %v, want %v (%v)", flow, back.Hops, p.Hops, err)
			}
			continue
		}
		if bad++; !errors.Is(err, pathsel.ErrCollision) || strings.Contains(err.Error(), "\n") {
			t.Fatal(err)
		}
	}
	if bad == 0 {
		t.Errorf("all %d paths have ports", good)
	}
}
