package probe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// A router that says that it has no way on accuses the link behind it, at once
// and without walks: routers answer few of those while probes use up what they
// allow themselves.
func TestNoWayOn(t *testing.T) {
	f, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Selector.Key[0] = 1
	n, err := paths.New(f)
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) int {
		i, err := f.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	routes, err := n.Routes(paths.Place{Node: find("host-0")}, paths.Place{Node: find("host-1")}, paths.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	answers := netip.MustParseAddr("10.9.0.1")
	p := &Prober{c: Config{Fabric: f, From: "host-0", Targets: []Target{{Host: "host-1"}}}, names: map[netip.Addr]int{}, net: n}
	for over := range routes.All() {
		l := &lane{over: over, path: len(p.lanes), socket: new(socket), track: track{verdict: Good, since: time.Now()}}
		p.lanes = append(p.lanes, l)
	}
	bad := p.lanes[0]
	bad.track.verdict, bad.track.bad = Lost, badInRow
	links := func() []int {
		_, found := p.Report()
		if len(found) != 1 || found[0].Kind != KindLost {
			t.Fatalf("findings %+v", found)
		}
		return found[0].Links
	}
	if got := links(); len(got) != 2 {
		t.Errorf("nobody says anything: %v, want both links of the spine", got)
	}
	way := bad.links()
	for k, router := range routersOf(f, bad.over)[:2] {
		p.names[answers] = router
		p.takeError(bad.socket, packet{icmp: &icmpError{router: answers, kind: 3, code: 1}})
		if got := links(); !slices.Equal(got, way[k+1:k+2]) {
			t.Errorf("router %d has no way: links %v, want %d", k, got, way[k+1])
		}
	}
	delete(p.names, answers) // somebody whom the file does not know
	p.takeError(bad.socket, packet{icmp: &icmpError{router: answers, kind: 3, code: 1}})
	if got := links(); len(got) != 2 {
		t.Errorf("a stranger says it: %v, want both links of the spine", got)
	}
}

// A walk to a router that has no way on has come there.
func TestWalkNoWayOn(t *testing.T) {
	there := netip.MustParseAddr("10.9.0.1")
	p := &Prober{names: map[netip.Addr]int{there: 2}, c: Config{Fabric: &topology.Fabric{}, Timeout: time.Second}}
	for router, want := range map[int]bool{2: true, 3: false} {
		w := &walker{router: router, asked: time.Now()}
		w.expired(packet{at: time.Now(), icmp: &icmpError{router: there, kind: 3, code: 0}}, p)
		if w.right.IsZero() == want {
			t.Errorf("router %d: right %v", router, w.right)
		}
	}
}
