package paths

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/soak"
)

// TestBestAgainstAll: whatever the loads, Place takes a path that is best
// among all, by the order that Scheduler documents.
func TestBestAgainstAll(t *testing.T) {
	r := soak.Rand(t)
	for range 200 {
		f := randomFabric(r)
		if len(f.Links) == 0 {
			continue
		}
		for i := range f.Links {
			f.Links[i].Capacity = []int64{0, 1e9, 1e10}[r.IntN(3)]
		}
		n := drawn(t, f, nil)
		s := NewScheduler(n)
		for range 40 {
			a, b := Place{Node: r.IntN(len(f.Nodes))}, Place{Node: r.IntN(len(f.Nodes))}
			if l := r.IntN(len(f.Links)); r.IntN(4) == 0 && f.Links[l].Capacity > 0 {
				if err := s.Load(Hop{l, r.IntN(2)}, r.Float64()*float64(f.Links[l].Capacity), time.Unix(9e9, 0)); err != nil {
					t.Fatal(err)
				}
			}
			routes, err := n.Routes(a, b, Rules{})
			if err != nil {
				continue
			}
			least, sum := bestOf(s, routes)
			p, err := s.Place(Order{From: a, To: b, Random: r.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			s.remove(s.placed[p.ID])
			s.countThrough(routes)
			got := s.rate(p.Path)
			gotLeast, gotSum := got.max, got.sum
			s.add(&p)
			if gotLeast != least || math.Abs(gotSum-sum) > 1e-9*sum {
				t.Fatalf("maximum %g and sum %g, want %g and %g", gotLeast, gotSum, least, sum)
			}
			if !slices.ContainsFunc(slices.Collect(routes.All()), func(q Path) bool { return reflect.DeepEqual(q, p.Path) }) {
				t.Fatalf("%+v is no path", p.Path)
			}
		}
	}
}

func bestOf(s *Scheduler, r *Routes) (maximum, sum float64) {
	maximum, sum = math.Inf(1), math.Inf(1)
	s.countThrough(r)
	for p := range r.All() {
		q := s.rate(p)
		m, u := q.max, q.sum
		if m < maximum || m == maximum && u < sum {
			maximum, sum = m, u
		}
	}
	return maximum, sum
}

// TestSpread: flows of one pair go to different paths first, and ties are
// broken in all ways.
func TestSpread(t *testing.T) {
	n := drawn(t, must(topology.FatTree(4)), nil)
	r := soak.Rand(t)
	first := map[int]int{}
	for range 400 {
		s := NewScheduler(n)
		used := map[int]bool{}
		for i := range 4 {
			p, err := s.Place(Order{From: host(t, n, 0), To: host(t, n, -1), Random: r.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			if core := p.Path.Hops[2].Link; i == 0 {
				first[core]++
				used[core] = true
			} else {
				used[core] = true
			}
		}
		if len(used) != 4 {
			t.Fatalf("four flows over %d core links", len(used))
		}
	}
	for link, c := range first {
		if len(first) != 4 || c < 60 || c > 150 {
			t.Errorf("link %d first %d of 400 times", link, c)
		}
	}
}

// TestMeasured: a link that others fill is avoided until the measurement is
// old; the placed flows' own traffic is not counted twice.
func TestMeasured(t *testing.T) {
	f := must(topology.LeafSpine(2, 2, 2))
	for i := range f.Links {
		f.Links[i].Capacity = 1e9
	}
	n := drawn(t, f, nil)
	s := NewScheduler(n)
	place := func() int {
		t.Helper()
		p, err := s.Place(Order{From: host(t, n, 0), To: host(t, n, -1)})
		if err != nil {
			t.Fatal(err)
		}
		return p.Path.Hops[1].Link
	}
	one := place()
	hop := s.placed[1].Path.Hops[1]
	until := time.Unix(1000, 0)
	if err := s.Load(hop, 0.99e9, until); err != nil {
		t.Fatal(err)
	}
	if l := s.Loads()[2*hop.Link+hop.From]; l.Background != 0 || l.Measured != 0.99e9 || l.Flows != 1 {
		t.Errorf("the flow's own: %+v", l)
	}
	two := place()
	other := s.placed[2].Path.Hops[1]
	if one == two {
		t.Fatal("two flows share a link")
	}
	// Somebody else fills the link of the second flow.
	if _, err := s.Release(2); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(other, 0.9e9, until); err != nil {
		t.Fatal(err)
	}
	if three := place(); three != one {
		t.Error("a tenth of a link was taken, where half of another was free")
	}
	if ended := s.Expire(until); len(ended) != 0 {
		t.Error(ended)
	}
	if four := place(); four != two {
		t.Error("an old measurement still counts")
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if err := s.Load(hop, bad, until); err == nil {
			t.Errorf("%g bit/s was taken", bad)
		}
	}
	f.Links[0].Capacity = 0
	if err := s.Load(Hop{0, 0}, 1, until); err == nil || !strings.Contains(err.Error(), "the file states no capacity") {
		t.Error(err)
	}
}

func TestLife(t *testing.T) {
	n := drawn(t, must(topology.LeafSpine(2, 4, 1)), nil)
	s := NewScheduler(n)
	a, b := host(t, n, 0), host(t, n, 1)
	until := time.Unix(1000, 0)
	p, err := s.Place(Order{From: a, To: b, Ports: &Request{DstPort: 5001}, Until: until, Owner: "test"})
	if err != nil || p.ID != 1 || p.Flow.DstPort != 5001 {
		t.Fatal(p, err)
	}
	q, err := s.Place(Order{From: a, To: b, Ports: &Request{DstPort: 5001}})
	if err != nil || q.Path.Hops[1] == p.Path.Hops[1] || q.Flow == p.Flow {
		t.Fatal(q, err)
	}
	if _, err := s.Renew(1, until.Add(time.Second)); err != nil {
		t.Error(err)
	}
	if ended := s.Expire(until); len(ended) != 0 {
		t.Error(ended)
	}
	// All other links get a flow: it stays where it is, or goes to one as good.
	if again, moved, err := s.Again(2, 7); err != nil || again.ID != 2 || !moved && again.Flow != q.Flow {
		t.Errorf("%+v, %v, %v", again, moved, err)
	}
	if ended := s.Expire(until.Add(time.Second)); len(ended) != 1 || ended[0].ID != 1 {
		t.Error(ended)
	}
	if _, err := s.Release(1); !errors.Is(err, ErrUnplaced) {
		t.Error(err)
	}
	if _, err := s.Release(2); err != nil {
		t.Error(err)
	}
	for _, l := range s.Loads() {
		if l.Flows != 0 {
			t.Errorf("%+v is left", l)
		}
	}
	if p, err := s.Place(Order{From: a, To: b}); err != nil || p.ID != 3 {
		t.Errorf("an ID was used again: %d, %v", p.ID, err)
	}
}

// TestBusyPair: all selectors of a pair are in use.
func TestBusyPair(t *testing.T) {
	n := drawn(t, must(topology.LeafSpine(2, 2, 1)), nil)
	s := NewScheduler(n)
	for i := 0; ; i++ {
		_, err := s.Place(Order{From: host(t, n, 0), To: host(t, n, 1), Ports: &Request{DstPort: 80, SrcPorts: [2]uint16{40000, 40063}}})
		if err != nil {
			if !errors.Is(err, pathsel.ErrNoSelector) || !strings.Contains(err.Error(), "are taken; release flows") || i < 20 {
				t.Errorf("after %d: %v", i, err)
			}
			return
		}
	}
}

// TestNextBest: where the least loaded path has no free selector, the next
// best one is taken.
func TestNextBest(t *testing.T) {
	n := drawn(t, must(topology.LeafSpine(2, 4, 1)), nil)
	s := NewScheduler(n)
	r := soak.Rand(t)
	wanted := &Request{DstPort: 80, SrcPorts: [2]uint16{40000, 40015}}
	var err error
	for err == nil {
		_, err = s.Place(Order{From: host(t, n, 0), To: host(t, n, 1), Ports: wanted, Random: r.Uint64()})
	}
	// Each port leads over some path, if over a port of the leaf at all.
	controlled := map[pathsel.Flow]bool{}
	routes := must(n.Routes(host(t, n, 0), host(t, n, 1), Rules{}))
	for p := range routes.All() {
		all := *wanted
		_ = n.EachPorts(&p, all, 100, func(f pathsel.Flow) bool { controlled[f] = true; return true })
	}
	if placed := len(s.Placed()); placed != len(controlled) || placed == 0 {
		t.Errorf("%d flows placed, %d ports lead over a path", placed, len(controlled))
	}
	if !errors.Is(err, pathsel.ErrNoSelector) || !strings.Contains(err.Error(), "none of 3 others has one either") {
		t.Error(err)
	}
	// Ports that are given lead over one path, whichever that is.
	s = NewScheduler(n)
	for f := range controlled {
		p, err := s.Place(Order{From: host(t, n, 0), To: host(t, n, 1), Ports: &Request{SrcPort: f.SrcPort, DstPort: f.DstPort}, Random: r.Uint64()})
		if err != nil || p.Flow != f {
			t.Errorf("%+v: %+v, %v", f, p.Flow, err)
			continue
		}
		if at, _, _, err := n.Of(f, 0); err != nil || !slices.Equal(at.Hops, p.Path.Hops) {
			t.Errorf("%+v takes %v, not %v: %v", f, at.Hops, p.Path.Hops, err)
		}
	}
}

// TestState: what is placed outlasts a restart, also in a fabric that has
// changed.
func TestState(t *testing.T) {
	f := must(topology.FatTree(4))
	n := drawn(t, f, nil)
	s := NewScheduler(n)
	r := soak.Rand(t)
	for i := range 40 {
		o := Order{From: host(t, n, r.IntN(8)), To: host(t, n, 8+r.IntN(8)), Random: r.Uint64(), Owner: "o"}
		if i%2 == 0 {
			o.Ports = &Request{DstPort: 80}
		}
		if _, err := s.Place(o); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(s.State())
	if err != nil {
		t.Fatal(err)
	}
	restore := func(n *Net) (*Scheduler, []Restored) {
		var state State
		if err := json.Unmarshal(data, &state); err != nil {
			t.Fatal(err)
		}
		s := NewScheduler(n)
		return s, s.Restore(state)
	}
	same, changed := restore(n)
	if len(changed) != 0 || !reflect.DeepEqual(same.State(), s.State()) || !reflect.DeepEqual(same.Loads(), s.Loads()) {
		t.Errorf("changed: %+v", changed)
	}
	// A core link is lost: flows with fields are counted where they fall to.
	p := s.Placed()[0].Path
	f.Links[p.Hops[2].Link].Down = true
	less, changed := restore(drawn(t, f, nil))
	moved, lost := 0, 0
	for _, c := range changed {
		if c.Moved {
			moved++
		} else if lost++; c.Ports != nil || !errors.Is(c.Err, ErrNoPath) {
			t.Errorf("%+v", c)
		}
	}
	if moved == 0 || len(less.Placed())+lost != 40 || less.last != 40 {
		t.Errorf("%d moved, %d lost, %d there", moved, lost, len(less.Placed()))
	}
	if l := less.Loads()[2*p.Hops[2].Link+p.Hops[2].From]; l.Flows != 0 {
		t.Errorf("flows on a link that is down: %+v", l)
	}
}

// TestStateOfHostWithLinks: after a restart, a flow to a host whose links have
// addresses of their own is given another link with that link's address.
func TestStateOfHostWithLinks(t *testing.T) {
	n := written(t, seven)
	s := NewScheduler(n)
	from, to := must(n.Place("client")), must(n.Place("server"))
	p, err := s.Place(Order{From: from, To: to, Ports: &Request{DstPort: 80}})
	if err != nil {
		t.Fatal(err)
	}
	data := must(json.Marshal(s.State()))
	var state State
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	again := NewScheduler(n)
	if changed := again.Restore(state); len(changed) != 0 {
		t.Fatal(changed)
	}
	last := func(p Placement) int { return p.Path.Hops[len(p.Path.Hops)-1].Link }
	moved := map[int]bool{last(p): true}
	for range 3 {
		// Others fill the link that the flow ends with.
		if _, err := again.Place(Order{From: from, To: to, Rules: Rules{ViaLinks: []int{last(p)}}}); err != nil {
			t.Fatal(err)
		}
		if p, _, err = again.Again(p.ID, 1); err != nil {
			t.Fatal(err)
		}
		moved[last(p)] = true
		if on := n.linkOf(p.Flow.Dst); int(on) != last(p) {
			t.Errorf("to %s, which stands on link %d; the path ends with %d", p.Flow.Dst, on, last(p))
		}
	}
	if len(moved) != 2 {
		t.Errorf("it ended with %v, want both links", moved)
	}
}

// TestPlaceByAddress: a flow to an address takes a path to that address's link.
func TestPlaceByAddress(t *testing.T) {
	n := written(t, seven)
	s := NewScheduler(n)
	for i := range 8 {
		dst := netip.MustParseAddr([]string{"10.0.1.1", "10.0.2.1"}[i%2])
		p, err := s.Place(Order{From: must(n.Place("client")), To: must(n.Place("server")), Ports: &Request{Dst: dst, DstPort: 80}, Random: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		if on := n.linkOf(dst); int(on) != p.Path.Hops[len(p.Path.Hops)-1].Link || p.Flow.Dst != dst {
			t.Errorf("to %s: %+v", dst, p.Path)
		}
	}
	if _, err := s.Place(Order{From: must(n.Place("client")), To: must(n.Place("server")), Ports: &Request{Dst: netip.MustParseAddr("10.0.9.9")}}); err == nil || !strings.HasPrefix(err.Error(), "destination 10.0.9.9 is no address of server") {
		t.Error(err)
	}
}

func BenchmarkPlace(b *testing.B) {
	n := drawn(b, must(topology.FatTree(8)), nil)
	s := NewScheduler(n)
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		p, err := s.Place(Order{From: host(b, n, r.IntN(64)), To: host(b, n, 64+r.IntN(64)), Random: r.Uint64(), Ports: &Request{DstPort: 80}})
		if err != nil {
			b.Fatal(err)
		}
		if p.ID > 1000 {
			if _, err := s.Release(p.ID - 1000); err != nil {
				b.Fatal(err)
			}
		}
	}
}
