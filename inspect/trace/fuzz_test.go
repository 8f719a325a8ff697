package trace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// FuzzParseSpec: a packet's description is refused in words that repeat it, or
// becomes a packet from and to where it says.
func FuzzParseSpec(f *testing.F) {
	for _, text := range []string{
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 [ack|psh] cookie-of=web1 age=0.002 len=3",
		"tcp [2001:db8::1]:1 > [2001:db8::2]:2 ts=8/9 vlan=7 ttl=3 df",
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 options=01010809000000010000",
		"udp 203.0.113.7:4711 > 192.0.2.10:53 frag=80 more",
		"udp 203.0.113.7:4711 > 192.0.2.10:443 initial=2 len=1300",
		"icmp 203.0.113.7 > 192.0.2.10 echo",
		"icmp 10.0.0.1 > 192.0.2.10 too-big mtu=1400 quote=28 quoting tcp 192.0.2.10:80 > 203.0.113.7:4711 cookie-of=web1",
		"icmp 2001:db8::9 > 2001:db8::1 time-exceeded quoting icmp 2001:db8::1 > 2001:db8::2 echo",
	} {
		f.Add(text)
	}
	stamp := func(_ string, _, _ netip.AddrPort, ageMS uint32) (uint32, error) { return 77 - ageMS, nil }
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "packet ") {
				t.Errorf("error %q", err)
			}
			return
		}
		if s.AgeMS > 1000<<22 {
			t.Errorf("age of %d ms", s.AgeMS)
		}
		frame, err := s.Frame(5, stamp)
		if err != nil {
			t.Fatal(err)
		}
		p := wire.Parse(frame)
		if p.Src != s.Src.Addr().WithZone("") || p.Dst != s.Dst.Addr().WithZone("") || p.VLAN != s.VLAN {
			t.Errorf("%q: %v > %v, VLAN %d (%v)", text, p.Src, p.Dst, p.VLAN, p.Err)
		}
	})
}
