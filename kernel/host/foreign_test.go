package host

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Tunnels of foreigners at a real server, on whose link nobody else is.

var (
	stranger4, stranger6 = netip.MustParseAddr("10.99.0.77"), netip.MustParseAddr("fd99::77")
	forgedMAC            = net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
)

// tunnelAssignment is chainAssignment under any scheme and forwarding.
func tunnelAssignment(scheme choices.Scheme, forwarding choices.Forwarding) *controller.Assignment {
	as := chainAssignment(scheme)
	for i := range as.VIPs {
		as.VIPs[i].Forwarding, as.VIPs[i].CookieBits = forwarding, 12
		if scheme != choices.Beamer {
			as.VIPs[i].Buckets, as.VIPs[i].ChainTime = nil, 0
		}
	}
	return as
}

func outer(kind wire.Tunnel, six, known bool) wire.Outer {
	o := wire.Outer{Tunnel: kind, Src: stranger4, Dst: hosttest.Server4, SrcPort: 50000}
	if known {
		o.Src = hosttest.Client4
	}
	if six {
		if o.Src, o.Dst = stranger6, hosttest.Server6; known {
			o.Src = hosttest.Client6
		}
	}
	return o
}

// linkOnly is what only a host of the server's own link may send it: where the
// client is, and that there is a router.
func linkOnly() [][]byte {
	option := append([]byte{2, 1}, forgedMAC...)
	target := hosttest.Client6.AsSlice()
	advert := wire.ICMP{Src: hosttest.Client6, Dst: hosttest.VIP6, Type: 136, Rest: 0x2000_0000, Payload: append(slices.Clone(target), option...), IP: wire.IP{TTL: 255}}
	option[0] = 1
	router := wire.ICMP{Src: netip.MustParseAddr("fe80::66"), Dst: hosttest.VIP6, Type: 134, Rest: 0x4000_0708, Payload: append(make([]byte, 8), option...), IP: wire.IP{TTL: 255}}
	return [][]byte{advert.Packet(), router.Packet()}
}

// learned is what the server's stack knows by what linkOnly says.
func (r *rig) learned() (all []string) {
	r.t.Helper()
	err := r.Server.Do(func() error {
		neighbours, err := netlink.NeighList(0, unix.AF_INET6)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.HardwareAddr.String() == forgedMAC.String() {
				all = append(all, n.IP.String())
			}
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Gw: net.ParseIP("fe80::66")}, netlink.RT_FILTER_GW)
		for _, route := range routes {
			all = append(all, fmt.Sprint("by ", route.Gw))
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// know makes the client a neighbour of the server's.
func (r *rig) know() {
	r.t.Helper()
	if err := r.Server.Do(func() error {
		c, err := net.Dial("udp6", netip.AddrPortFrom(hosttest.Client6, 9).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the client is a neighbour", func() (known bool) {
		_ = r.Server.Do(func() error {
			all, err := netlink.NeighList(0, unix.AF_INET6)
			known = slices.ContainsFunc(all, func(n netlink.Neigh) bool {
				return n.IP.Equal(hosttest.Client6.AsSlice()) && len(n.HardwareAddr) == 6
			})
			return err
		})
		return known
	})
}

// Neighbour discovery in a tunnel moves nothing, whoever sends it. Without
// guards it does: the packets are right.
func TestNeighbourDiscoveryInTunnels(t *testing.T) {
	t.Parallel()
	for _, scheme := range []choices.Scheme{choices.Cheetah, choices.JET, choices.Beamer} {
		for _, tunnel := range wire.Tunnels() {
			t.Run(string(scheme)+"-"+string(tunnel), func(t *testing.T) {
				r := newChainRig(t, tunnelAssignment(scheme, choices.Forwarding(tunnel)))
				r.know()
				sent := uint64(0)
				for _, known := range []bool{true, false} {
					for _, six := range []bool{false, true} {
						if !six && scheme == choices.Beamer { // its servers have one family
							continue
						}
						for _, packet := range linkOnly() {
							o := outer(tunnel, six, known)
							r.sendFromClient(o.Encapsulate(packet))
							if o.Dst == hosttest.Server6 {
								sent++
							}
						}
					}
				}
				eventually(t, "they are dropped", func() bool { return r.reason("drop_foreign_icmp") == sent })
				if all := r.learned(); len(all) > 0 {
					t.Errorf("the server's stack learned %s", all)
				}
				r.agent.Close()
				r.unguarded = true
				r.open()
				for _, packet := range linkOnly() {
					r.sendFromClient(outer(tunnel, true, true).Encapsulate(packet))
				}
				eventually(t, "without guards both are believed", func() bool {
					all := r.learned()
					return slices.Contains(all, hosttest.Client6.String()) && slices.Contains(all, "by fe80::66")
				})
			})
		}
	}
}

// reaches sends a SYN in a tunnel and says whether the server's listener answers.
func (r *rig) reaches(o wire.Outer, port uint16, ip wire.IP) bool {
	r.t.Helper()
	vip, client := hosttest.VIP4, hosttest.Client4
	if o.Dst.Is6() {
		vip, client = hosttest.VIP6, hosttest.Client6
	}
	from := netip.AddrPortFrom(client, port)
	answers := r.watchFrames(func(p *wire.Parsed) bool {
		return p.Protocol == wire.ProtoTCP && p.Destination() == from && p.Is(wire.SYN|wire.ACK)
	})
	before := r.reason("drop_foreign_source") + r.reason("drop_foreign_tunnel")
	syn := o.Encapsulate(wire.TCP{Src: from, Dst: netip.AddrPortFrom(vip, 80), Flags: wire.SYN, Seq: 1, Options: wire.SYNOptions(1400, 7), IP: ip}.Packet())
	// Again as clients do: the stack drops a SYN whose way back is not there yet, as in a
	// namespace on a busy machine whose link is only just up.
	again := time.Now()
	eventually(r.t, "an answer or a drop", func() bool {
		if now := time.Now(); !now.Before(again) {
			again = now.Add(time.Second)
			r.sendFromClient(syn)
		}
		return len(answers()) > 0 || r.reason("drop_foreign_source")+r.reason("drop_foreign_tunnel") > before
	})
	return len(answers()) > 0
}

// Tunnels are taken from known sources in every scheme; from all of a family of
// which the assignment names none, which is said; and from those that it adds.
func TestForeignSources(t *testing.T) {
	t.Parallel()
	for _, scheme := range []choices.Scheme{choices.Cheetah, choices.JET} {
		t.Run(string(scheme), func(t *testing.T) {
			as := tunnelAssignment(scheme, choices.GUE)
			r := newChainRig(t, as)
			r.listen(hosttest.VIP4)
			r.listen(hosttest.VIP6)
			port := uint16(20000)
			try := func(what string, known, six, want bool) {
				t.Helper()
				port++
				if got := r.reaches(outer(wire.GUE, six, known), port, wire.IP{}); got != want {
					t.Errorf("%s, known %t, IPv6 %t: taken %t, want %t", what, known, six, got, want)
				}
			}
			warned := func(want int) {
				t.Helper()
				n := 0
				for _, w := range r.agent.Status().Warnings {
					if strings.Contains(w, "taken from anybody") {
						n++
					}
				}
				if n != want {
					t.Errorf("%d warnings about open sources, want %d: %q", n, want, r.agent.Status().Warnings)
				}
			}
			apply := func(sources ...string) {
				t.Helper()
				next := tunnelAssignment(scheme, choices.GUE)
				next.Version, next.Sources = r.as.Version+1, nil
				for _, p := range sources {
					next.Sources = append(next.Sources, netip.MustParsePrefix(p))
				}
				r.as = next
				if err := r.agent.Apply(next); err != nil {
					t.Fatal(err)
				}
			}
			for _, six := range []bool{false, true} {
				try("all named", true, six, true)
				try("all named", false, six, false)
			}
			warned(0)
			apply("10.99.0.1/32") // of a balancer nobody knows the source over IPv6
			try("IPv4 named", false, false, false)
			try("IPv4 named", false, true, true)
			warned(1)
			apply() // by a fairlead that wrote none
			try("none named", false, false, true)
			try("none named", false, true, true)
			warned(2)
			apply("10.99.0.1/32", "10.99.0.64/26", "fd99::1/128", "fd99::40/122")
			for _, six := range []bool{false, true} {
				try("added", true, six, true)
				try("added", false, six, true)
			}
			warned(0)
			var many []string
			for i := range bpf.HostSources + 1 {
				many = append(many, fmt.Sprintf("10.98.%d.1/32", i))
			}
			apply(many...)
			try("too many", true, false, true)
			warned(2)
			apply("10.99.0.1/32", "fd99::1/128")
			try("all named again", false, false, false)
			try("all named again", true, false, true)
			warned(0)
		})
	}
}

// While a forwarding changes both tunnels are taken: balancers have it after the
// agents. With the next version, which comes when all have it, the old one is not.
func TestForwardingChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to choices.Forwarding
		old, new wire.Tunnel
	}{{choices.IPIP, choices.GUE, wire.IPIP, wire.GUE}, {choices.GUE, choices.IPIP, wire.GUE, wire.IPIP}, {choices.IPIP, choices.L2, wire.IPIP, wire.IPIP}} {
		t.Run(string(c.from+"-"+c.to), func(t *testing.T) {
			r := newChainRig(t, tunnelAssignment(choices.JET, c.from))
			r.listen(hosttest.VIP4)
			port := uint16(20000)
			try := func(what string, kind wire.Tunnel, want bool) {
				t.Helper()
				port++
				if got := r.reaches(outer(kind, false, true), port, wire.IP{}); got != want {
					t.Errorf("%s, %v: taken %t, want %t", what, kind, got, want)
				}
			}
			apply := func(version uint64) {
				t.Helper()
				r.as = tunnelAssignment(choices.JET, c.to)
				r.as.Version = version
				if err := r.agent.Apply(r.as); err != nil {
					t.Fatal(err)
				}
			}
			try("before", c.old, true)
			if c.old != c.new {
				try("before", c.new, false)
			}
			apply(2)
			try("meanwhile", c.old, true)
			try("meanwhile", c.new, true)
			apply(2) // once more, as after an error
			try("meanwhile, again", c.old, true)
			r.agent.Close()
			r.open() // a restart does not know how far the balancers are
			try("meanwhile, restarted", c.old, true)
			apply(3)
			try("after", c.old, false)
			if c.to != choices.L2 {
				try("after", c.new, true)
			}
			r.agent.Close()
			r.open()
			try("after, restarted", c.old, false)
		})
	}
}

// What a balancer finds its way through, so does the server: to the listener.
func TestExtensionHeaders(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, tunnelAssignment(choices.Beamer, choices.IPIP))
	r.listen(hosttest.VIP6)
	for i, ip := range []wire.IP{
		{}, {Atomic: true}, {Extensions: []wire.Extension{{Type: 0}}}, {Extensions: []wire.Extension{{Type: 0, Body: append([]byte{0x1e, 28}, make([]byte, 28)...)}}},
		{Extensions: extensions(1, 30)}, {Extensions: append([]wire.Extension{{Type: 0}}, extensions(1, 254)...), Atomic: true},
	} {
		if !r.reaches(outer(wire.IPIP, true, true), uint16(20000+i), ip) {
			t.Errorf("%+v does not reach the listener", ip)
		}
	}
}

// A table that an older agent left has no flags: nothing that was taken before
// the first Apply is refused.
func TestOlderTable(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, tunnelAssignment(choices.JET, choices.IPIP))
	r.listen(hosttest.VIP4)
	old := r.agent.table.Clone()
	for k, v := range old.Entries {
		v.Flags = 0
		old.Entries[k] = v
	}
	if err := kernel.WaitForReaders(); err != nil {
		t.Fatal(err)
	}
	if err := writeTable(r.agent.set.HostVips, r.agent.control, old); err != nil {
		t.Fatal(err)
	}
	r.agent.flip()
	r.agent.Close()
	next := r.as
	if err := r.Server.Do(func() (err error) {
		r.agent, err = Open(r.options(), slog.New(slog.DiscardHandler))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, kind := range wire.Tunnels() {
		if !r.reaches(outer(kind, false, false), uint16(20000+i), wire.IP{}) {
			t.Errorf("%v is refused before the first Apply", kind)
		}
	}
	next.Version++
	if err := r.agent.Apply(next); err != nil {
		t.Fatal(err)
	}
	if r.reaches(outer(wire.IPIP, false, false), 20010, wire.IP{}) {
		t.Error("a stranger is heard after it")
	}
}
