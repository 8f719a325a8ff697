package attack

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

func testSite() Site {
	a := netip.MustParseAddr
	var s Site
	for i, vip := range []string{"10.77.7.1:80", "[fd77:7::2]:80"} {
		v := netip.MustParseAddrPort(vip)
		s.VIPs = append(s.VIPs, v)
		client := []string{"10.77.0.2", "fd77::2"}[i]
		for p := range 50 {
			s.Flows = append(s.Flows, Flow{Client: netip.AddrPortFrom(a(client), uint16(20000+p)), VIP: v, Ack: 7, Stamped: true, TSVal: 1, TSEcr: 1 << 20})
		}
	}
	s.Servers = []netip.Addr{a("10.77.1.101"), a("fd77:1::102")}
	s.Machines = []netip.Addr{a("10.77.1.101"), a("fd77:1::101"), a("10.77.1.11"), a("fd77:1::11")}
	s.Balancers = []netip.Addr{a("10.77.129.1"), a("fd77:80:1::1")}
	s.Gateways = []netip.Addr{a("10.77.1.1"), a("fd77:1::1")}
	s.Idle = []netip.Addr{a("10.77.1.11"), a("fd77:1::11")}
	s.Attackers = []netip.Addr{a("10.77.0.2"), a("fd77::2")}
	return s
}

// TestSeed: a seed repeats every attack, and no packet is longer than what a
// client can send.
func TestSeed(t *testing.T) {
	for kind := range kinds {
		one, err := New(Plan{kind, testSite()}, rand.New(rand.NewPCG(3, 0)))
		if err != nil {
			t.Fatal(err)
		}
		two, _ := New(Plan{kind, testSite()}, rand.New(rand.NewPCG(3, 0)))
		for i := range 5000 {
			p, _ := one.Next()
			if same, _ := two.Next(); !bytes.Equal(p, same) {
				t.Fatalf("%s: packet %d differs", kind, i)
			}
			if len(p) > 1500 || len(p) < 20 || p[0]>>4 != 4 && p[0]>>4 != 6 {
				t.Fatalf("%s: packet %d has %d bytes, first %#x", kind, i, len(p), p[0])
			}
		}
	}
	if _, err := New(Plan{"siege", testSite()}, nil); err == nil {
		t.Error("an attack that there is not is accepted")
	}
	if _, err := New(Plan{Kind: "flood"}, nil); err == nil {
		t.Error("a site without anything is accepted")
	}
}

// inner undoes tunnels.
func inner(packet []byte) (p *wire.Parsed, source netip.Addr) {
	in, o, err := wire.Decapsulate(packet)
	if err != nil {
		return wire.ParsePacket(packet), source
	}
	return wire.ParsePacket(in), o.Src
}

// TestAims: what makes each attack one is in its packets.
func TestAims(t *testing.T) {
	const n = 20000
	site := testSite()
	sources := map[netip.Addr]bool{}
	counts := map[string]map[string]int{}
	for kind := range kinds {
		a, err := New(Plan{kind, site}, rand.New(rand.NewPCG(5, 0)))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		counts[kind] = seen
		for range n {
			packet, genuine := a.Next()
			p, from := inner(packet)
			if genuine {
				seen["genuine"]++
			}
			if kind == "discovery" && from.IsValid() {
				sources[from] = true
			}
			switch {
			case p.Protocol == wire.ProtoICMPv6 && p.TTL == 255 && p.ICMPType >= 133 && p.ICMPType <= 137:
				seen["discovery"]++
			case p.Protocol == wire.ProtoICMP && p.ICMPType == icmpRedirect && p.Src == site.Gateways[0]:
				seen["redirect"]++
			case p.Protocol == wire.ProtoTCP && p.Is(wire.RST) && p.SrcPort >= firstPort:
				seen["reset"]++
			case p.Protocol == wire.ProtoTCP && p.Is(wire.SYN):
				seen["syn"]++
			case p.Protocol == wire.ProtoUDP:
				seen["udp"]++
			}
			if p.Fragmented() {
				seen["fragment"]++
			}
			if p.Err != nil {
				seen["malformed"]++
			}
			if from.IsValid() {
				seen["tunnel"]++
			}
		}
	}
	for _, c := range []struct {
		kind, what string
		least      int
	}{
		{"discovery", "discovery", n}, {"redirect", "redirect", n / 3}, {"redirect", "discovery", n / 3},
		{"resets", "reset", n / 20}, {"resets", "syn", n / 5}, {"spray", "reset", n / 3}, {"spray", "syn", n / 10},
		{"flood", "syn", n / 3}, {"flood", "udp", n / 10}, {"asks", "genuine", n/AskGenuine - 1}, {"generation", "tunnel", n},
		{"barrage", "tunnel", n / 20}, {"barrage", "malformed", n / 10}, {"barrage", "fragment", n / 50}, {"barrage", "syn", n / 50},
	} {
		if got := counts[c.kind][c.what]; got < c.least {
			t.Errorf("%s: %d of %d packets are %s, must be at least %d: %v", c.kind, got, n, c.what, c.least, counts[c.kind])
		}
	}
	for _, s := range append(site.Attackers, site.Balancers...) {
		if !sources[s] {
			t.Errorf("discovery never comes from %v", s)
		}
	}
}

// TestKnown: every connection meets two RSTs before the flood, and genuine
// errors alone quote one that lives.
func TestKnown(t *testing.T) {
	site := testSite()
	start := func(kind string) *Attacker {
		a, err := New(Plan{kind, site}, rand.New(rand.NewPCG(9, 0)))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	met := map[netip.AddrPort]int{}
	a := start("resets")
	for range 2 * len(site.Flows) {
		b, _ := a.Next()
		met[wire.ParsePacket(b).Source()]++
	}
	living := map[netip.AddrPort]netip.AddrPort{}
	for _, f := range site.Flows {
		if living[f.Client] = f.VIP; met[f.Client] != 2 {
			t.Errorf("%v meets %d RSTs", f.Client, met[f.Client])
		}
	}
	a = start("asks")
	hosts := map[netip.Addr]bool{}
	for range 100 * AskGenuine {
		b, genuine := a.Next()
		p := wire.ParsePacket(b)
		if p.Err != nil || !p.IsICMPError() || p.Quoted == nil {
			t.Fatalf("%+v", p)
		}
		_, lives := living[p.Quoted.Destination()]
		if genuine {
			hosts[p.Src] = true
		}
		if lives != genuine {
			t.Errorf("genuine %v, the connection lives %v", genuine, lives)
		}
	}
	if len(hosts) < 90 {
		t.Errorf("genuine errors come from %d hosts", len(hosts))
	}
}
