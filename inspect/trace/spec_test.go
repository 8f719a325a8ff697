package trace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

func fixedStamp(server string, src, dst netip.AddrPort, age uint32) (uint32, error) {
	if server != "web1" || src.String() != "203.0.113.7:4711" {
		return 0, fmt.Errorf("asked for %s by %s", server, src)
	}
	return 77 - age, nil
}

func TestSpecBuildsThePacket(t *testing.T) {
	for text, want := range map[string]func(p *wire.Parsed) bool{
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 syn": func(p *wire.Parsed) bool { return p.Flags == wire.SYN && p.Timestamp.Val == 5 },
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 [ack|psh] cookie-of=web1 age=0.002 len=3": func(p *wire.Parsed) bool {
			return p.Is(wire.ACK|wire.PSH) && p.Timestamp.Ecr == 75 && len(p.Payload) == 3
		},
		"tcp [2001:db8::1]:1 > [2001:db8::2]:2 ts=8/9 vlan=7": func(p *wire.Parsed) bool {
			return p.Version == 6 && p.Timestamp.Val == 8 && p.Timestamp.Ecr == 9 && p.VLAN == 7
		},
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 rst no-ts":                    func(p *wire.Parsed) bool { return p.Flags == wire.RST && p.Timestamp == nil },
		"tcp 203.0.113.7:4711 > 192.0.2.10:80 options=01010809000000010000": func(p *wire.Parsed) bool { return p.Err.Layer == wire.LayerOption },
		"udp 203.0.113.7:4711 > 192.0.2.10:53 frag=80 more":                 func(p *wire.Parsed) bool { return p.FragmentOffset == 80 && p.MoreFragments },
		"udp 203.0.113.7:4711 > 192.0.2.10:443 initial":                     func(p *wire.Parsed) bool { return len(p.Payload) == 1200 && p.Payload[0] == 0xc0 },
		"udp 203.0.113.7:4711 > 192.0.2.10:443 initial=2 len=1300":          func(p *wire.Parsed) bool { return len(p.Payload) == 1300 && p.Payload[0] == 0xd0 },
		"icmp 203.0.113.7 > 192.0.2.10 echo":                                func(p *wire.Parsed) bool { return p.ICMPType == wire.ICMPEchoRequest },
		"icmp 10.0.0.1 > 192.0.2.10 too-big mtu=1400 quoting tcp 192.0.2.10:80 > 203.0.113.7:4711 cookie-of=web1": func(p *wire.Parsed) bool {
			return p.Quoted.Timestamp.Val == 77 && p.ICMPRest == 1400 && p.ICMPCode == wire.ICMPFragNeeded
		},
	} {
		s, err := ParseSpec(text)
		if err != nil {
			t.Error(err)
			continue
		}
		f, err := s.Frame(5, fixedStamp)
		if err != nil {
			t.Error(err)
			continue
		}
		if p := wire.Parse(f); !want(p) || p.Err == nil && len(p.ChecksumErrors()) > 0 {
			t.Errorf("%s: %+v (%v)", text, p, p.Err)
		}
	}
}

func TestSpecErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                             "must start like",
		"sctp 1.2.3.4:1 > 1.2.3.4:2":                   "tcp, udp or icmp",
		"tcp 1.2.3.4 > 1.2.3.4:2":                      "1.2.3.4",
		"tcp 1.2.3.4:1 > [::1]:2":                      "two families",
		"tcp 1.2.3.4:1 > 1.2.3.4:2 sin":                `"sin"`,
		"tcp 1.2.3.4:1 > 1.2.3.4:2 ts=x":               "number",
		"tcp 1.2.3.4:1 > 1.2.3.4:2 age=nan":            "seconds are wanted",
		"udp 1.2.3.4:1 > 1.2.3.4:2 initial=3":          "version 1 or 2",
		"udp 1.2.3.4:1 > 1.2.3.4:2 initial len=9":      "1200 bytes",
		"tcp 1.2.3.4:1 > 1.2.3.4:2 initial":            "only udp",
		"udp 1.2.3.4:1 > 1.2.3.4:2 no-ts":              "no TCP options",
		"udp 1.2.3.4:1 > 1.2.3.4:2 syn":                `"syn"`,
		"icmp 1.2.3.4 > 1.2.3.4":                       "needs echo",
		"icmp 1.2.3.4 > 1.2.3.4 too-big":               "quoting",
		"tcp 1.2.3.4:1 > 1.2.3.4:2 no-ts cookie-of=a":  "needs a timestamp",
		"icmp 1.2.3.4 > 1.2.3.4 too-big quoting tcp a": "quoted packet",
	} {
		if _, err := ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
