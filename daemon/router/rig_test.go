package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/soak"
)

// The rig of the router's tests is a fabric of namespaces:
//
//	host-0 ── leaf-0 ──┬── spine-0 ──┬── leaf-1 ── host-1
//	                   ├── spine-1 ──┤
//	                   └── spine-2 ──┘
//
// Looked at is leaf-0, whose ports 0, 1 and 2 lead to the spines.
type routerRig struct {
	*fabrics.Fabric
	t       *testing.T
	program string
	sel     *pathsel.Selector
	random  *rand.Rand
	api     fairleadv1connect.FairleadClient
	from    map[bool]netip.Addr // of host-0, by whether it is IPv6
	to      map[bool]netip.Addr // of host-1

	mu      sync.Mutex
	arrived map[string]int // at host-1, by payload
	tags    int
}

// routerMetrics is leaf-0's address for metrics, in its own namespace.
const routerMetrics = "127.0.0.1:9477"

func newRouterRig(t *testing.T, name string) *routerRig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	r := &routerRig{t: t, program: built.Fairlead(t), arrived: map[string]int{},
		from: map[bool]netip.Addr{}, to: map[bool]netip.Addr{}}
	of, err := topology.LeafSpine(2, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.random = soak.Rand(t)
	for i := range of.Selector.Key {
		of.Selector.Key[i] = byte(r.random.Uint32())
	}
	for i := range of.Nodes {
		of.Nodes[i].Addresses = nil // the rig gives one of each family
	}
	of.Nodes[slices.IndexFunc(of.Nodes, func(n topology.Node) bool { return n.Name == "leaf-0" })].Metrics = routerMetrics
	if r.sel, err = pathsel.New(of.Selector); err != nil {
		t.Fatal(err)
	}
	r.Fabric, err = fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("f", name, os.Getpid()), Program: r.program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(r.Dir(), r.Topology().Nodes[r.Node("leaf-0")].Name+".log"))
			t.Logf("log of leaf-0:\n%s", log)
		}
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	r.look()
	return r
}

// look finds the ends' addresses, and listens at host-1 to all that comes.
func (r *routerRig) look() {
	r.t.Helper()
	var err error
	if r.api, err = api.Dial("unix:"+r.Socket("leaf-0"), config.TLS{}); err != nil {
		r.t.Fatal(err)
	}
	for _, end := range []struct {
		node string
		of   map[bool]netip.Addr
	}{{"host-0", r.from}, {"host-1", r.to}} {
		for _, a := range r.Topology().Nodes[r.Node(end.node)].Addresses {
			end.of[a.Is6()] = a
		}
	}
	for _, network := range []string{"ip4:udp", "ip6:udp"} {
		var c net.PacketConn
		err := r.In("host-1", func() (err error) { c, err = net.ListenPacket(network, ""); return err })
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { c.Close() })
		go r.listen(c)
	}
}

func (r *routerRig) listen(c net.PacketConn) {
	b := make([]byte, 2048)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		const header = 8 // of UDP; IPv4's is taken off by the package net
		r.mu.Lock()
		r.arrived[string(b[min(header, n):n])]++
		r.mu.Unlock()
	}
}

// send sends n flows, of one datagram each, that select a port of leaf-0, and
// says whether all arrive at host-1.
func (r *routerRig) send(six bool, port, n int) (all bool) {
	r.t.Helper()
	r.tags++
	tag := fmt.Sprint("tag", r.tags)
	for sent := 0; sent < n; {
		flow := pathsel.Flow{Src: r.from[six], Dst: r.to[six], Proto: 17}
		if err := r.sel.Encode(&flow, []pathsel.Step{{TTL: 64, Port: uint8(port)}}, r.random.Uint64()); err != nil {
			r.t.Fatal(err)
		}
		if flow.SrcPort == 0 || flow.DstPort == 0 {
			continue // no socket can have it
		}
		r.datagram(flow, tag)
		sent++
	}
	return r.arrive(tag, n)
}

func (r *routerRig) datagram(flow pathsel.Flow, payload string) {
	r.t.Helper()
	err := r.In("host-0", func() error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(flow.Src, flow.SrcPort)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(flow.Dst, flow.DstPort)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(payload))
		return err
	})
	if err != nil {
		r.t.Fatalf("send %+v: %v", flow, err)
	}
}

// arrive waits until n datagrams with that payload have come.
func (r *routerRig) arrive(payload string, n int) bool {
	return netspace.WaitFor(daemontest.Patience, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.arrived[payload] >= n
	})
}

func (r *routerRig) status() *fairleadv1.GetStatusResponse {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), daemontest.Patience)
	defer cancel()
	s, err := r.api.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Msg
}

// hop is the next hop of leaf-0 with that port number and family.
func (r *routerRig) hop(six bool, port int) *fairleadv1.RouterHop {
	r.t.Helper()
	for _, h := range r.status().Router.Hops {
		if a := netip.MustParseAddr(h.Gateway); int(h.Port) == port && a.Is6() == six && h.Vlan == 0 {
			return h
		}
	}
	return &fairleadv1.RouterHop{Why: "is not there"}
}

// reason is how many packets leaf-0 left to its kernel for a reason.
func (r *routerRig) reason(name string) uint64 {
	r.t.Helper()
	for _, one := range r.status().Reasons {
		if one.Name == name {
			return one.Packets
		}
	}
	r.t.Fatalf("no reason %s", name)
	return 0
}

// route is how leaf-0 sends to an address.
func (r *routerRig) route(a netip.Addr) *fairleadv1.RouterRoute {
	r.t.Helper()
	s, err := r.api.GetRoutes(r.t.Context(), connect.NewRequest(&fairleadv1.GetRoutesRequest{Addresses: []string{a.String()}}))
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Msg.Routes[0]
}

// until waits for a condition.
func (r *routerRig) until(what string, is func() bool) {
	r.t.Helper()
	if !netspace.WaitFor(daemontest.Patience, is) {
		r.t.Fatalf("%s: not within %v; status %v", what, daemontest.Patience, r.status().Router)
	}
}

// ip runs the command ip in a node.
func (r *routerRig) ip(node string, args ...string) {
	r.t.Helper()
	if out, err := fabricstest.Run(r.t.Context(), r.Fabric, node, append([]string{"ip"}, args...)...); err != nil {
		r.t.Fatal(err, out)
	}
}

// spine is leaf-0's device and gateway towards a spine.
func (r *routerRig) spine(six bool, n int) (device, gateway string) {
	h := r.hop(six, n)
	return h.Interface, h.Gateway
}

func contains(warnings []string, text string) bool {
	return strings.Contains(strings.Join(warnings, "\n"), text)
}
