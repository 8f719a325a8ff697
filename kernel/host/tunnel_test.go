package host

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Which tunnels are taken, and what out of them.

// icmpMessages are messages to the VIP: those that a balancer sends, and others.
func icmpMessages(client, vip netip.AddrPort) map[string][]byte {
	router, all := client.Addr(), map[string][]byte{}
	errors, others := []uint8{3, 11, 12}, []uint8{4, 5, 9, 10, 13, 17, 40}
	var ip wire.IP
	if vip.Addr().Is6() {
		errors, others = []uint8{1, 2, 3, 4}, []uint8{0, 5, 100, 130, 131, 132, 133, 134, 135, 136, 137, 138, 143}
		ip.Atomic = true
	}
	sent := wire.TCP{Src: vip, Dst: client, Flags: wire.ACK, Payload: make([]byte, 40)}
	fragment := sent
	fragment.IP.FragmentOffset = 8
	atomic := sent
	atomic.IP = ip
	for _, kind := range append(errors, others...) {
		all[fmt.Sprintf("icmp-%d", kind)] = wire.ICMPError{Src: router, Dst: vip.Addr(), Type: kind, Quoted: sent.Packet(), IP: wire.IP{TTL: 255}}.Packet()
	}
	for name, quote := range map[string][]byte{
		"fragment": fragment.Packet(), "atomic": atomic.Packet(), "udp": wire.UDP{Src: vip, Dst: client, Payload: make([]byte, 9)}.Packet(), "nothing": nil,
		"another-port":    wire.TCP{Src: netip.AddrPortFrom(vip.Addr(), 81), Dst: client}.Packet(),
		"another-address": wire.TCP{Src: client, Dst: vip}.Packet(),
		"echo":            wire.Echo(vip.Addr(), router, 1, 2, nil, true).Packet(),
	} {
		all["error-of-"+name] = wire.ICMPError{Src: router, Dst: vip.Addr(), Type: errors[0], Quoted: quote}.Packet()
	}
	all["echo"] = wire.Echo(router, vip.Addr(), 1, 2, []byte("hello"), false).Packet()
	all["echo-reply"] = wire.Echo(router, vip.Addr(), 1, 2, []byte("hello"), true).Packet()
	return all
}

// What a VIP's flags refuse is dropped, of every form in every scheme, by the
// short ways and the long one, and nothing else is.
func TestInTunnelsTaken(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	p.both = true
	list := []netip.Prefix{netip.MustParsePrefix("10.254.0.0/24"), netip.MustParsePrefix("10.254.1.1/32"), netip.MustParsePrefix("10.254.1.3/32"),
		netip.MustParsePrefix("10.254.1.5/32"), netip.MustParsePrefix("10.254.1.7/32"), netip.MustParsePrefix("fd00:254::/64"), netip.MustParsePrefix("fd00:255::1/128")}
	sources, err := tables.HostSources(list)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sources {
		if err := p.o.HostSources.Put(uint32(i), s); err != nil {
			t.Fatal(err)
		}
	}
	server4, server6 := netip.MustParseAddr("10.0.0.77"), netip.MustParseAddr("fd00::77")
	for _, a := range []netip.Addr{server4, server6} {
		if err := p.o.HostSenders.Put(tables.Key{Addr: a}.Words(), uint8(1)); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]bool{
		"10.254.0.0": true, "10.254.0.255": true, "10.254.1.1": true, "10.254.1.3": true, "10.254.1.5": true, "10.254.1.7": true,
		"10.254.1.0": false, "10.254.1.2": false, "10.254.2.0": false, "198.51.100.7": false, "0.0.0.0": false, "10.0.0.77": false,
		"fd00:254::": true, "fd00:254::ffff:ffff:ffff:ffff": true, "fd00:255::1": true, "fd00:255::2": false, "fd00:254:0:1::": false,
		"::": false, "fd00::77": false,
	}
	for _, scheme := range []uint8{0, uint8(bpf.SchemeCheetah), uint8(bpf.SchemeBeamer)} {
		for _, flags := range []uint16{0, tables.Refuses(choices.IPIP), tables.Refuses(choices.GUE), tables.NoTunnel, uint16(bpf.HostVIPSources), uint16(bpf.HostVIPSources) | tables.Refuses(choices.GUE)} {
			p.scheme, p.flags = scheme, flags
			p.fill()
			for source, ok := range known {
				src := netip.MustParseAddr(source)
				for _, kind := range wire.Tunnels() {
					for _, inner := range []netip.AddrPort{packetVIP4, packetVIP6} {
						client, outer := packetClient4, packetTunnel4
						if inner == packetVIP6 {
							client = packetClient6
						}
						if src.Is6() {
							outer = packetTunnel6
						}
						want, reason := uint32(xdpPass), ""
						switch {
						case flags&tables.Refuses(choices.Forwarding(kind)) != 0:
							want, reason = xdpDrop, "drop_foreign_tunnel"
						case (scheme == uint8(bpf.SchemeBeamer) || flags&uint16(bpf.HostVIPSources) != 0) && !ok && (scheme != uint8(bpf.SchemeBeamer) || src != server4 && src != server6):
							want, reason = xdpDrop, "drop_foreign_source"
						}
						o := wire.Outer{Tunnel: kind, Src: src, Dst: outer, SrcPort: 50000}
						segment := wire.TCP{Src: client, Dst: inner, Flags: wire.ACK, Options: wire.Timestamp(7, 9)}
						fragment := segment
						fragment.IP.MoreFragments = true
						error := wire.ICMPError{Src: client.Addr(), Dst: inner.Addr(), Type: map[bool]uint8{true: 3, false: 1}[inner == packetVIP4],
							Quoted: wire.TCP{Src: inner, Dst: client, Payload: make([]byte, 9)}.Packet()}
						for name, packet := range map[string][]byte{
							"segment": segment.Packet(), "fragment": fragment.Packet(), "error": error.Packet(),
							"datagram": wire.UDP{Src: client, Dst: inner, Payload: []byte("hello")}.Packet(),
							"echo":     wire.Echo(client.Addr(), inner.Addr(), 1, 2, nil, false).Packet(),
						} {
							before := readReasons(t, p.o.HostReasons)
							ret, _ := p.in(wire.Link{}.Frame(o.Encapsulate(packet)))
							after := readReasons(t, p.o.HostReasons)
							if ret != want || reason != "" && after[reason] != before[reason]+1 {
								t.Errorf("scheme %d, flags %#x, %v from %s, %s to %s: verdict %d, want %d %s", scheme, flags, kind, source, name, inner, ret, want, reason)
							}
						}
					}
				}
			}
		}
	}
}
