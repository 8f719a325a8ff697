package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// degrees are how many links each node has.
func degrees(f *Fabric) []int {
	n := make([]int, len(f.Nodes))
	for _, l := range f.Links {
		n[l.Ends[0].Node]++
		n[l.Ends[1].Node]++
	}
	return n
}

// sound checks what every generated fabric keeps to.
func sound(t *testing.T, f *Fabric) {
	t.Helper()
	names, addresses, ports := map[string]bool{}, map[netip.Addr]bool{}, map[[2]int]bool{}
	for _, n := range f.Nodes {
		if names[n.Name] || len(n.Addresses) != 1 || addresses[n.Addresses[0]] || n.TTL != 64 {
			t.Fatalf("node %+v: not unlike all others", n)
		}
		names[n.Name], addresses[n.Addresses[0]] = true, true
	}
	for _, l := range f.Links {
		if l.Cost != 1 || l.Ends[0].Node == l.Ends[1].Node {
			t.Fatalf("link %+v", l)
		}
		for _, e := range l.Ends {
			if e.Port == unnumbered {
				continue
			}
			key := [2]int{e.Node, e.Port}
			if f.Nodes[e.Node].Host || ports[key] || e.Port >= f.Selector.Radix {
				t.Fatalf("%s has port %d twice, is a host, or radix %d is too small", f.Nodes[e.Node].Name, e.Port, f.Selector.Radix)
			}
			ports[key] = true
		}
	}
	if r := f.Selector.Radix; r&(r-1) != 0 || r > 64 {
		t.Fatalf("radix %d", r)
	}
	for i, n := range f.Nodes {
		if n.Host && degrees(f)[i] != 1 {
			t.Fatalf("host %s has %d links", n.Name, degrees(f)[i])
		}
		if i > 100 {
			break
		}
	}
}

func TestGenerators(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, x := range []struct {
		name                         string
		make                         func() (*Fabric, error)
		hosts, routers, links, radix int
	}{
		{"fat-tree 4", func() (*Fabric, error) { return FatTree(4) }, 16, 20, 48, 2},
		{"fat-tree 8", func() (*Fabric, error) { return FatTree(8) }, 128, 80, 384, 4},
		{"fat-tree 32", func() (*Fabric, error) { return FatTree(32) }, 8192, 1280, 24576, 16},
		{"vl2", func() (*Fabric, error) { return VL2(20, 6, 20) }, 600, 46, 720, 16},
		{"bcube 4,1", func() (*Fabric, error) { return BCube(4, 1) }, 16, 24, 48, 2},
		{"bcube 5,3", func() (*Fabric, error) { return BCube(5, 3) }, 625, 1125, 3125, 4},
		{"leaf-spine", func() (*Fabric, error) { return LeafSpine(15, 8, 40) }, 600, 23, 720, 8},
		{"jellyfish", func() (*Fabric, error) { return Jellyfish(150, 10, 4, random) }, 600, 150, 1350, 16},
		{"small jellyfish", func() (*Fabric, error) { return Jellyfish(4, 3, 1, random) }, 4, 4, 10, 4},
	} {
		f, err := x.make()
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		sound(t, f)
		hosts := 0
		for _, n := range f.Nodes {
			if n.Host {
				hosts++
			}
		}
		if routers := len(f.Nodes) - hosts; hosts != x.hosts || routers != x.routers || len(f.Links) != x.links || f.Selector.Radix != x.radix {
			t.Errorf("seed %d, %s: %d hosts, %d routers, %d links, radix %d; want %+v", seed, x.name, hosts, routers, len(f.Links), f.Selector.Radix, x)
		}
	}
}

// Every switch has as many links as it has ports.
func TestDegrees(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, size := range [][2]int{{4, 3}, {6, 4}, {8, 6}, {10, 9}, {20, 3}, {50, 16}} {
		f, err := Jellyfish(size[0], size[1], 2, random)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, f)
		for i, n := range degrees(f) {
			if !f.Nodes[i].Host && n != size[1]+2 {
				t.Errorf("seed %d: %v: %s has %d links", seed, size, f.Nodes[i].Name, n)
			}
		}
	}
	f, err := FatTree(6)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range degrees(f) {
		if !f.Nodes[i].Host && n != 6 {
			t.Errorf("fat-tree: %s has %d links", f.Nodes[i].Name, n)
		}
	}
	if f, err = VL2(8, 6, 3); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"rack": 2 + 3, "aggregation": 8, "intermediate": 6}
	for i, n := range degrees(f) {
		if kind, _, _ := strings.Cut(f.Nodes[i].Name, "-"); !f.Nodes[i].Host && n != want[kind] {
			t.Errorf("vl2: %s has %d links", f.Nodes[i].Name, n)
		}
	}
}

// A switch of BCube joins servers whose numbers differ in one digit.
func TestBCube(t *testing.T) {
	const n, k = 3, 2
	f, err := BCube(n, k)
	if err != nil {
		t.Fatal(err)
	}
	members := map[int][]int{}
	level := map[int]int{}
	for _, l := range f.Links {
		if a, b := l.Ends[0].Node, l.Ends[1].Node; !f.Nodes[a].Host {
			var server int
			fmt.Sscanf(f.Nodes[a].Name, "relay-%d", &server)
			members[b] = append(members[b], server)
			level[b] = l.Ends[0].Port
		}
	}
	if len(members) != (k+1)*n*n {
		t.Fatalf("%d switches", len(members))
	}
	digit := func(s, level int) int {
		for range level {
			s /= n
		}
		return s % n
	}
	for s, of := range members {
		if len(of) != n {
			t.Errorf("%s has %d servers", f.Nodes[s].Name, len(of))
		}
		for l := range k + 1 {
			seen := map[int]bool{}
			for _, m := range of {
				seen[digit(m, l)] = true
			}
			if want := map[bool]int{true: n, false: 1}[l == level[s]]; len(seen) != want {
				t.Errorf("%s: servers %v have %d values of digit %d", f.Nodes[s].Name, of, len(seen), l)
			}
		}
	}
}

// The same arguments and draws give the same fabric.
func TestGeneratorsAreFunctions(t *testing.T) {
	draw := func(seed uint64) *Fabric {
		f, err := Jellyfish(30, 4, 2, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if !reflect.DeepEqual(draw(1), draw(1)) || reflect.DeepEqual(draw(1), draw(2)) {
		t.Error("jellyfish is not a function of its draws")
	}
}

func TestBadSizes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, x := range []struct {
		says string
		make func() (*Fabric, error)
	}{
		{"fat-tree: k 2:", func() (*Fabric, error) { return FatTree(2) }},
		{"fat-tree: k 7:", func() (*Fabric, error) { return FatTree(7) }},
		{"fat-tree: k 130:", func() (*Fabric, error) { return FatTree(130) }},
		{"vl2: switches of 5 and 6", func() (*Fabric, error) { return VL2(5, 6, 20) }},
		{"vl2: hosts of a rack 0:", func() (*Fabric, error) { return VL2(4, 4, 0) }},
		{"vl2: ports of an intermediate switch 66:", func() (*Fabric, error) { return VL2(4, 66, 1) }},
		{"bcube: n 1:", func() (*Fabric, error) { return BCube(1, 2) }},
		{"bcube: n 64, k 7:", func() (*Fabric, error) { return BCube(64, 7) }},
		{"leaf-spine: spines 65:", func() (*Fabric, error) { return LeafSpine(4, 65, 1) }},
		{"jellyfish: degree 4: must be 3 to 3", func() (*Fabric, error) { return Jellyfish(4, 4, 1, random) }},
		{"jellyfish: 5 switches with 3 links", func() (*Fabric, error) { return Jellyfish(5, 3, 1, random) }},
	} {
		if f, err := x.make(); err == nil || f != nil || !strings.HasPrefix(err.Error(), x.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", x.says, err)
		}
	}
}
