package doctor

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// Scheme beamer's tunnels carry 16 octets of hops, in ipip over IPv6 24: the
// room that doctor asks for is the largest tunnel's. A switch makes none.
func TestTunnels(t *testing.T) {
	made := func(scheme vip.Scheme, forwarding vip.Forwarding, protocol string, clamp bool) config.VIP {
		return config.VIP{
			Settings: vip.Settings{Scheme: scheme, Forwarding: forwarding, Protocol: protocol},
			MSSClamp: &clamp,
			Servers:  []config.Member{{Name: "s1"}},
		}
	}
	cfg := &config.Config{VIPs: []config.VIP{
		made(vip.JET, vip.IPIP, vip.TCP, false),
		made(vip.Beamer, vip.IPIP, vip.TCP, true),
		made(vip.Beamer, vip.IPIP, vip.UDP, true),
		made(vip.Beamer, vip.GUE, vip.TCP, true),
		made(vip.Faild, vip.IPIP, vip.TCP, true),
	}}
	for address, want := range map[string][]tunnel{
		"10.0.0.1": {{vip.GUE, 48, true}, {vip.IPIP, 36, false}, {vip.IPIP, 20, false}},
		"fd00::1":  {{vip.GUE, 68, true}, {vip.IPIP, 64, false}, {vip.IPIP, 40, false}},
	} {
		if got := tunnelsTo(cfg, &config.Server{Name: "s1", Address: netip.MustParseAddr(address)}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	if got := tunnelsTo(cfg, &config.Server{Name: "s2"}); len(got) != 0 {
		t.Errorf("a server of no VIP: %v", got)
	}
}
