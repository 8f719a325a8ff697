package bgp_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/vip"
)

var four, six = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")

// Each rule, by what is said of the address.
func TestDecide(t *testing.T) {
	well := bgp.VIP{Name: "web", Address: four, Announce: vip.AnnounceHealthy, Servers: 2, Healthy: 1}
	down := bgp.VIP{Name: "tls", Address: four, Announce: vip.AnnounceHealthy, Servers: 2}
	none := bgp.VIP{Name: "old", Address: four, Announce: vip.AnnounceHealthy}
	with := func(v bgp.VIP, announce string) bgp.VIP { v.Announce = announce; return v }
	for what, c := range map[string]struct {
		notReady []string
		vips     []bgp.VIP
		why      []string // nil: announced
	}{
		"healthy":           {nil, []bgp.VIP{well}, nil},
		"one VIP is":        {nil, []bgp.VIP{down, well, none}, nil},
		"no VIP is":         {nil, []bgp.VIP{down, none}, []string{"no healthy server in VIP tls, of 2", "no server in VIP old takes new connections"}},
		"always":            {nil, []bgp.VIP{with(down, vip.AnnounceAlways)}, nil},
		"never":             {nil, []bgp.VIP{with(well, vip.AnnounceNever)}, []string{"announce: never, says VIP web"}},
		"not ready":         {[]string{"it starts"}, []bgp.VIP{well}, []string{"lb1 is not ready: it starts"}},
		"always, not ready": {[]string{"it starts"}, []bgp.VIP{with(well, vip.AnnounceAlways)}, []string{"lb1 is not ready: it starts"}},
		"neither":           {[]string{"it starts"}, []bgp.VIP{down}, []string{"no healthy server in VIP tls, of 2", "lb1 is not ready: it starts"}},
	} {
		d := bgp.Decide(bgp.Node{Name: "lb1", NotReady: c.notReady, VIPs: c.vips}, bgp.Common{})
		if len(d) != 1 || !slices.Equal(d[0].Withheld, c.why) {
			t.Errorf("%s: %+v, want %q", what, d, c.why)
		}
	}
}

// A VIP's communities are added to those of all, its MED goes before theirs, and
// addresses come in order.
func TestRoutes(t *testing.T) {
	n := bgp.Node{Name: "lb1", VIPs: []bgp.VIP{
		{Name: "six", Address: six, Healthy: 1},
		{Name: "web", Address: four, Healthy: 1, Communities: []string{"65001:2", "65001:1"}, MED: 7},
	}}
	d := bgp.Decide(n, bgp.Common{Communities: []string{"65001:1"}, MED: 5})
	if len(d) != 2 || d[0].Address != four || d[1].Address != six {
		t.Fatalf("%+v", d)
	}
	if !slices.Equal(d[0].Communities, []string{"65001:1", "65001:2"}) || d[0].MED != 7 {
		t.Errorf("of its own: %+v", d[0])
	}
	if !slices.Equal(d[1].Communities, []string{"65001:1"}) || d[1].MED != 5 {
		t.Errorf("of all: %+v", d[1])
	}
}

func TestHeard(t *testing.T) {
	up := bgp.Neighbour{Address: netip.MustParseAddr("10.0.0.1"), Established: true, State: "established"}
	down := bgp.Neighbour{Address: netip.MustParseAddr("10.0.0.2"), State: "active", Error: "connect: refused"}
	by, not := bgp.Heard(four, []bgp.Neighbour{up, down})
	if len(by) != 1 || by[0] != up.Address || len(not) != 1 || not[0] != "neighbour 10.0.0.2 is not established: active: connect: refused" {
		t.Errorf("%v, %q", by, not)
	}
	by, not = bgp.Heard(six, []bgp.Neighbour{up, down})
	if len(by) != 0 || len(not) != 1 || !strings.Contains(not[0], "no neighbour has an IPv6 address") {
		t.Errorf("%v, %q", by, not)
	}
}
