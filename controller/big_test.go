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
