package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// BenchmarkPlan is apply's computing for the widest cookie's full pool, half
// of which is exchanged.
func BenchmarkPlan(b *testing.B) {
	pool := func(from, to int) *config.Config {
		c := &config.Config{Secret: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}
		v := config.VIP{Settings: vip.Settings{Name: "v", Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}), CookieBits: 15}, Port: 80}
		for i := from; i < to; i++ {
			c.Servers = append(c.Servers, config.Server{Name: fmt.Sprintf("s%d", i), Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
			v.Servers = append(v.Servers, config.Member{Name: fmt.Sprintf("s%d", i)})
		}
		c.VIPs = []config.VIP{v}
		if err := c.Validate(); err != nil {
			b.Fatal(err)
		}
		return c
	}
	before, after := pool(0, 10000), pool(5000, 15000)
	for b.Loop() {
		first, err := First(before)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := Plan(after, first, LiveCounts{}, time.Unix(1_800_000_000, 0), false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlanBuckets is the same for Beamer's slides: 32,000 servers join as many,
// and take half of 6.4 million buckets.
func BenchmarkPlanBuckets(b *testing.B) {
	before, after := beamerPool(b, 32_000), beamerPool(b, 64_000)
	first, err := First(before)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		steps, _, err := Plan(after, first, LiveCounts{}, time.Unix(1_800_000_000, 0), false)
		if err != nil || len(steps) != 2 {
			b.Fatal(len(steps), err)
		}
	}
}

// beamerPool is a deployment of one VIP with 6.4 million buckets.
func beamerPool(tb testing.TB, servers int) *config.Config {
	tb.Helper()
	c := &config.Config{Secret: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}
	c.Balancers = []config.Balancer{{Name: "lb1", Interfaces: []string{"eth0"}, Source: netip.MustParsePrefix("10.200.0.0/16")}}
	v := config.VIP{Settings: vip.Settings{Name: "v", Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Scheme: vip.Beamer}, Port: 80, Buckets: 6_400_000}
	for i := range servers {
		name := fmt.Sprintf("s%d", i)
		c.Servers = append(c.Servers, config.Server{Name: name, Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		v.Servers = append(v.Servers, config.Member{Name: name})
	}
	c.VIPs = []config.VIP{v}
	if err := c.Validate(); err != nil {
		tb.Fatal(err)
	}
	return c
}
