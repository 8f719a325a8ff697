package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
)

// eachMayLag asks of one agent after the other.
func eachMayLag(a, b *Assignment) error {
	for _, x := range []*Assignment{a, b} {
		for _, v := range x.VIPs {
			for _, s := range v.Slots {
				if err := errors.Join(HostMayLag(a, b, s.Server), TunnelsMayLag(a, b, s.Server)); err != nil {
					return fmt.Errorf("%s: %w", s.Server, err)
				}
			}
		}
	}
	return nil
}

// TestAgentsMayLag: nobody waits for agents where a server drains, works again or joins;
// all do where a tunnel comes that they would not take, or a packet that they could not
// pass on.
func TestAgentsMayLag(t *testing.T) {
	for _, scheme := range []string{"cheetah", "jet", "beamer", "faild"} {
		cfg, err := config.Parse("f", []byte(fmt.Sprintf(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb, interfaces: [eth0], source: 10.0.1.1}]
switches: [{name: sw}]
servers: [{name: s1, address: 10.0.0.1}, {name: s2, address: 10.0.0.2}, {name: s3, address: 10.0.0.3}]
vips: [{name: v, address: 192.0.2.1, port: 80, scheme: %s, servers: [s1, s2, s3]}]
controllers: [{name: c1}]
`, scheme)))
		if err != nil {
			t.Fatal(err)
		}
		cur, err := First(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range []Op{
			{Kind: Drain, Server: "s2"}, {Kind: Undrain, Server: "s2"}, {Kind: Rotate, Key: make([]byte, 32)},
			{Kind: Add, VIP: "v", Server: "s4", Address: netip.MustParseAddr("10.0.0.4"), API: "unix:/s4"}, {Kind: Remove, Server: "s1"},
		} {
			steps, _, err := Change(cur, LiveCounts{}, time.Unix(1_800_000_000, 0), true, op)
			if err != nil || len(steps) == 0 {
				t.Fatalf("%s: %s: %d steps, %v", scheme, op.Kind, len(steps), err)
			}
			for _, step := range steps {
				if err := errors.Join(AgentsMayLag(cur, step), eachMayLag(cur, step)); err != nil {
					t.Errorf("%s: %s: version %d: %v", scheme, op.Kind, step.Version, err)
				}
				cur = step
			}
		}
		for what, change := range map[string]func(b *Assignment){
			"a tunnel's source":     func(b *Assignment) { b.Sources = append(b.Sources, netip.MustParsePrefix("10.0.2.0/24")) },
			"another forwarding":    func(b *Assignment) { b.VIPs[0].Forwarding = "gue" },
			"an epoch that is gone": func(b *Assignment) { b.Keys[0].Epoch += 7; b.Keys = b.Keys[:1] },
			"a server that works": func(b *Assignment) {
				b.VIPs[0].Slots = append(b.VIPs[0].Slots, Slot{Number: 9, Server: "s9", State: Active})
			},
			"another at its place": func(b *Assignment) { b.VIPs[0].Slots[1].Address = netip.MustParseAddr("10.9.9.9") },
			"another cookie":       func(b *Assignment) { b.VIPs[0].CookieBits++; b.VIPs[0].Scheme = "cheetah" },
			"no VIP":               func(b *Assignment) { b.VIPs = nil },
			"a chain to a stranger": func(b *Assignment) {
				if v := &b.VIPs[0]; v.Bucketed() {
					v.Buckets = v.Buckets.Clone()
					v.Buckets.Previous[0][0] = 77
				}
			},
		} {
			b := cur.Clone()
			change(b)
			all, each := AgentsMayLag(cur, b), eachMayLag(cur, b)
			if (all == nil) != (each == nil) {
				t.Errorf("%s: %s: of all at once %v, of each %v", scheme, what, all, each)
			}
			if scheme == "beamer" && all == nil && what != "another cookie" {
				t.Errorf("%s: %s: nobody waits", scheme, what)
			}
		}
	}
}
