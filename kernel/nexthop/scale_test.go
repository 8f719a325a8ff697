package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
)

// manyServers are the issue's, behind one gateway.
const manyServers = 64_000

func many(b *testing.B) (w *Watcher, servers map[netip.Addr]bool) {
	w = watching(b, newRig(b))
	addRoute(b, w, "10.0.0.0/9", netlink.Route{Gw: net.IP(hosttest.Client4.AsSlice())})
	servers = map[netip.Addr]bool{}
	for i := range manyServers {
		servers[netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})] = true
	}
	return w, servers
}

// BenchmarkWatch is 64,000 servers that are new.
func BenchmarkWatch(b *testing.B) {
	w, servers := many(b)
	for b.Loop() {
		w.Watch(map[netip.Addr]bool{}, 0)
		w.Watch(servers, 1)
	}
}

// BenchmarkTurn is what is done every refreshEvery.
func BenchmarkTurn(b *testing.B) {
	w, servers := many(b)
	w.Watch(servers, 1)
	for b.Loop() {
		w.turn()
	}
}
