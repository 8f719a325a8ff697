package router

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRoom: what there is no room for is left to the kernel and said, and all
// else goes on; neighbours are left before routes.
func TestRoom(t *testing.T) {
	p := ports()
	p.routes4 = []route{unicast("10.1.0.0/24", over(2, ""))}
	for n := range 20 {
		id := HopID{2, addr(fmt.Sprint("10.1.0.", n+1))}
		p.neighbours[id] = neighbour{id: id, mac: [6]byte{2, byte(n)}, state: unix.NUD_REACHABLE}
	}
	for n := range 6 {
		a := over(3, "10.9.0.6")
		a.weight += n
		p.routes4 = append(p.routes4, unicast(fmt.Sprintf("10.2.%d.0/24", n), a, over(4, "10.9.0.10")))
	}
	count := func(tables *Tables, k RouteKind) (n int) {
		for _, r := range tables.Routes {
			if r.Kind == k {
				n++
			}
		}
		return n
	}
	for _, one := range []struct {
		most                       sizes
		devices, forwarded, beyond int
		said                       string
	}{
		{sizes{5, 27, 6, 22}, 5, 26, 0, ""},
		{sizes{5, 27, 6, 12}, 5, 16, 0, "packets to 10 neighbours"},
		{sizes{5, 27, 6, 2}, 5, 6, 0, "packets to 20 neighbours"},
		{sizes{5, 27, 4, 22}, 5, 24, 2, "the packets of 2 routes"},
		{sizes{5, 27, 6, 1}, 5, 1, 6, "the packets of 6 routes"},
		{sizes{3, 27, 6, 22}, 3, 26, 0, "by 2 of 5 devices"},
		{sizes{5, 6, 6, 22}, 5, 0, 0, "the kernel has 7 routes"},
		{sizes{5, 10, 6, 22}, 5, 9, 0, "packets to 17 neighbours"},
	} {
		tables, warnings, _ := p.translateWithin(one.most, newNumbering(fabricOf(4), 0, nil), nil, nil)
		said := strings.Join(warnings, "\n")
		if len(tables.Devices) != one.devices || count(&tables, Forward) != one.forwarded || count(&tables, Beyond) != one.beyond || !strings.Contains(said, one.said) {
			t.Errorf("%+v: %d devices, %d routes forwarded, %d left, %q", one.most, len(tables.Devices), count(&tables, Forward), count(&tables, Beyond), said)
		}
		if one.said == "" && strings.Contains(said, "left to the kernel") || len(tables.Hops) > one.most.hops || len(tables.Routes) > one.most.routes {
			t.Errorf("%+v: %d hops, %q", one.most, len(tables.Hops), said)
		}
	}
}
