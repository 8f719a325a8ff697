package host

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// Tables that are older than others', servers of which balancers disagree, and
// who may send at all.

func TestOwnGenerations(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	first, second := n.hosts[0], n.hosts[1]
	for _, base := range []uint32{ownGeneration, 0xffff_fffe, 0x7fff_ffff, 5} { // serial numbers wrap
		eachTunnel(t, n, func(c *client) {
			for _, h := range n.hosts {
				h.change(c.vip, func(v *bpf.HostVIP) { v.Generation = base })
				h.forget(c.vip)
			}
			step := func(what string, gen uint32, f fate, newest uint32, chain ...uint16) {
				t.Helper()
				c.gen = base + gen
				c.stranger(fmt.Sprintf("base %#x: %s", base, what), second, f, chain...)
				if got := second.newest(c.vip); newest != 0 && got != base+newest {
					t.Errorf("%s: base %#x: %s: newest is %+d, want %+d", c.by.name, base, what, int32(got-base), newest)
				}
			}
			old := ^uint32(0) // one less
			step("as the agent's", 0, taken("", 2), 0)
			step("older than the agent's", old, dropped("drop_stale", 2), 0)
			step("older, with a chain", old, dropped("drop_stale", 2, 1), 0, 1)
			step("newer", 1, taken("", 2), 1)
			step("now the agent's is old", 0, dropped("drop_stale", 2), 1)
			const far = bpf.GenerationAhead
			step("much newer", far-1, taken("", 2), far-1)
			step("backwards", far-2, dropped("drop_stale", 2), far-1)
			step("half the circle back", far-1+1<<31, dropped("drop_stale", 2), far-1)
			// However many packets say so, and however small the steps are.
			before := second.reasons()["generation_jump"]
			step("a step too far", far+1, taken("", 2), far-1)
			step("2^20 too far", far+1<<20, taken("", 2), far-1)
			step("far too far", 1<<31-1, taken("", 2), far-1)
			if jumps := second.reasons()["generation_jump"] - before; jumps != 3 {
				t.Errorf("%s: %d jumps counted, want 3", c.by.name, jumps)
			}
			c.outer.Src = first.addr(c.by.outer == 6)
			step("a server teaches nothing", far, taken("", 2), far-1)
			c.outer.Src = netip.Addr{}
			// The agent hears of a table that is older than what was learned
			// (restored from a backup, say), and clears that.
			second.change(c.vip, func(v *bpf.HostVIP) { v.Generation = base - 100 })
			second.forget(c.vip)
			step("the agent's again", ^uint32(99), taken("", 2), 0)
		})
	}
}

func (h *ownHost) forget(vip netip.AddrPort) {
	h.t.Helper()
	h.net.must(h.o.HostOwn.Put(vipID(vip), bpf.HostOwn{}))
}

// The moment of the last packet by an older table is kept for the agent.
func TestOwnStaleMoment(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	c := newClient(n, ipip4, 32000, false)
	var own bpf.HostOwn
	n.must(h.o.HostOwn.Lookup(vipID(c.vip), &own))
	c.stranger("fresh", h, taken("", 1))
	if own.StaleMs != 0 {
		t.Errorf("stale at %#x before anything was", own.StaleMs)
	}
	c.gen--
	c.stranger("stale", h, dropped("drop_stale", 1))
	n.must(h.o.HostOwn.Lookup(vipID(c.vip), &own))
	if own.StaleMs&^1 != ownNow&^1 {
		t.Errorf("stale at %#x, want %#x", own.StaleMs, ownNow)
	}
}

// While balancers may disagree whether a server is up, it resets nothing.
func TestOwnUnsettled(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		second.change(c.vip, func(v *bpf.HostVIP) { v.Flags = 1 })
		c.stranger("no chain", second, dropped("drop_stale", 2))
		c.stranger("a chain", second, taken("", 2, 1), 1)
		c.expect("SYN", second, wire.SYN, taken("in_opening", 2))
		d := c.again()
		d.connect(second)
		d.expect("owned", second, wire.ACK, taken("in_owned", 2))
		second.change(c.vip, func(v *bpf.HostVIP) { v.Flags = 0 })
		c.again().again().stranger("settled", second, taken("", 2))
	})
}

func TestOwnForeignSource(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 3)
	second := n.hosts[1]
	eachTunnel(t, n, func(c *client) {
		v6 := c.by.outer == 6
		for addr, ok := range map[string]bool{
			"10.254.0.0": true, "10.254.255.255": true, "10.253.255.255": false, "10.255.0.0": false, "10.9.0.1": true, "10.9.0.3": true,
			"10.9.0.2": false, "10.9.0.4": false, "198.51.100.7": false, "0.0.0.0": false, "255.255.255.255": false,
			"fd00:254::": true, "fd00:254:ffff::1": true, "fd00:253::1": false, "fd00:255::1": false, "fd00:9::1": true, "fd00:9::2": false,
			"::": false, "::ffff:10.254.0.9": false,
		} {
			a := netip.MustParseAddr(addr)
			if a.Is6() != v6 || a.Is4In6() {
				continue
			}
			c.outer.Src = a
			for _, chain := range [][]uint16{nil, {1}} {
				f := dropped("drop_foreign_source", 2)
				if ok && chain != nil {
					f = taken("", 2, 1)
				} else if ok {
					f = taken("", 2)
				}
				c.stranger("from "+addr, second, f, chain...)
			}
			// Without hops too: whoever may not send tunnels may send none.
			o := wire.Outer{Tunnel: c.by.over, Src: a, Dst: second.addr(v6)}
			f := dropped("drop_foreign_source", 2)
			if ok {
				f = taken("", 2)
			}
			n.want(c.by.name+": no hops from "+addr, second, wire.Link{}.Frame(o.Encapsulate(c.segment(wire.ACK, ""))), f)
			frag := wire.TCP{Src: c.addr, Dst: c.vip, Flags: wire.ACK, IP: wire.IP{MoreFragments: true}}.Packet()
			n.want(c.by.name+": fragment from "+addr, second, wire.Link{}.Frame(o.Encapsulate(frag)), f)
		}
	})
	// All sources used, and the last of them counts.
	for i := range uint32(64) {
		one := bpf.HostSource{Addr: words(fmt.Sprintf("10.77.0.%d", i)), Mask: [2]uint64{^uint64(0), ^uint64(0)}}
		n.must(second.o.HostSources.Put(i, one))
	}
	c := newClient(n, ipip4, 33000, false)
	c.outer.Src = netip.MustParseAddr("10.77.0.63")
	c.stranger("the 64th source", second, taken("", 2))
	c.outer.Src = netip.MustParseAddr("10.77.0.64")
	c.stranger("none", second, dropped("drop_foreign_source", 2))
}

// Packets without a tunnel are the VIP's as they always were: from clients in
// the same network, say.
func TestOwnWithoutTunnel(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 1)
	h := n.hosts[0]
	for _, vip := range []netip.AddrPort{beamer4, beamer6, faild4, faild6} {
		c := newClient(n, ipip4, 34000, false)
		c.vip = vip
		if vip.Addr().Is6() {
			c.addr = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::7"), 34000)
		}
		n.want("direct", h, wire.Link{Dst: h.mac()}.Frame(c.segment(wire.ACK, "")), taken("in_direct", 1))
	}
}

// A source of IPv6 that is a balancer's or server's IPv4 address, mapped, is
// nobody's: filters of IPv4 never see it.
func TestOwnMappedSource(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	for i, by := range []delivery{gue6, ipip6} {
		for j, known := range []netip.Addr{balancer4, n.hosts[1].addr(false)} {
			c := newClient(n, by, uint16(13000+10*i+j), true)
			c.outer.Src = netip.AddrFrom16(known.As16())
			c.says("mapped", n.hosts[0], dropped("drop_foreign_source", 1), 2)
		}
	}
}
