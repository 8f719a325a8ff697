package doctor

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/config"
)

// Scheme beamer's tunnels carry 16 octets of hops, in ipip over IPv6 24: the
// room that doctor asks for is the largest tunnel's. A switch makes none.
func TestTunnels(t *testing.T) {
	vip := func(scheme, forwarding, protocol string, clamp bool) config.VIP {
		return config.VIP{Scheme: scheme, Forwarding: forwarding, Protocol: protocol, MSSClamp: &clamp, Servers: []config.Member{{Name: "s1"}}}
	}
	cfg := &config.Config{VIPs: []config.VIP{
		vip(config.JET, config.IPIP, config.TCP, false),
		vip(config.Beamer, config.IPIP, config.TCP, true),
		vip(config.Beamer, config.IPIP, config.UDP, true),
		vip(config.Beamer, config.GUE, config.TCP, true),
		vip(config.Faild, config.IPIP, config.TCP, true),
	}}
	for address, want := range map[string][]tunnel{
		"10.0.0.1": {{config.GUE, 48, true}, {config.IPIP, 36, false}, {config.IPIP, 20, false}},
		"fd00::1":  {{config.GUE, 68, true}, {config.IPIP, 64, false}, {config.IPIP, 40, false}},
	} {
		if got := tunnelsTo(cfg, &config.Server{Name: "s1", Address: netip.MustParseAddr(address)}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	if got := tunnelsTo(cfg, &config.Server{Name: "s2"}); len(got) != 0 {
		t.Errorf("a server of no VIP: %v", got)
	}
}
