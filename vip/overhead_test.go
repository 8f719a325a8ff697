package vip

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// A row says what its codec does.
func TestOverhead(t *testing.T) {
	packet := wire.TCP{Src: netip.MustParseAddrPort("192.0.2.1:1"), Dst: netip.MustParseAddrPort("192.0.2.2:2")}.Packet()
	for _, r := range Forwardings() {
		if !r.Tunnel {
			continue
		}
		for _, a := range []string{"10.0.0.1", "fd00::1"} {
			o := wire.Outer{Tunnel: wire.Tunnel(r.Name), Src: netip.MustParseAddr(a), Dst: netip.MustParseAddr(a)}
			for _, hops := range []*wire.Hops{nil, {}} {
				o.Hops = hops
				b := o.Encapsulate(packet)
				if n := len(b) - len(packet); n != r.Overhead(o.Dst, hops != nil) {
					t.Errorf("%s over %s, hops %v: %d bytes go before a packet, the row says %d", r.Name, a, hops != nil, n, r.Overhead(o.Dst, hops != nil))
				}
				if _, back, err := wire.Decapsulate(b); err != nil || back.Tunnel != o.Tunnel {
					t.Errorf("%s over %s: %v, %v", r.Name, a, back, err)
				}
			}
		}
	}
}
