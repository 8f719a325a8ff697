package host

import (
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
)

// A clamped segment fills the smallest interface with all that is put before
// it, and no byte less.
func TestMSSLeavesRoom(t *testing.T) {
	a := &Agent{devices: []Interface{{MTU: 9000}, {MTU: 1500}}}
	const ip4, ip6, tcp, udp, gue, hops, options6 = 20, 40, 20, 8, 4, 16, 24
	for _, c := range []struct {
		scheme        choices.Scheme
		forwarding    choices.Forwarding
		vip6, server6 bool
		before        int // bytes before the segment; 0: nothing is clamped
	}{
		{choices.Cheetah, choices.IPIP, false, false, ip4 + ip4 + tcp},
		{choices.Cheetah, choices.GUE, false, false, ip4 + udp + gue + ip4 + tcp},
		{choices.Cheetah, choices.L2, false, false, 0},
		{choices.Beamer, choices.IPIP, false, false, ip4 + hops + ip4 + tcp},
		{choices.Beamer, choices.IPIP, true, false, ip4 + hops + ip6 + tcp},
		{choices.Beamer, choices.IPIP, false, true, ip6 + options6 + ip4 + tcp},
		{choices.Beamer, choices.IPIP, true, true, ip6 + options6 + ip6 + tcp},
		{choices.Beamer, choices.GUE, false, false, ip4 + udp + gue + hops + ip4 + tcp},
		{choices.Beamer, choices.GUE, true, true, ip6 + udp + gue + hops + ip6 + tcp},
		{choices.Faild, choices.IPIP, false, false, 0},
	} {
		vip := &controller.VIP{Scheme: c.scheme, Forwarding: c.forwarding, Address: hosttest.VIP4}
		slot := &controller.Slot{Address: hosttest.Server4}
		if c.vip6 {
			vip.Address = hosttest.VIP6
		}
		if c.server6 {
			slot.Address = hosttest.Server6
		}
		want := 0
		if c.before > 0 {
			want = 1500 - c.before
		}
		if got := int(a.mss(vip, slot)); got != want {
			t.Errorf("%+v: %d, want %d", c, got, want)
		}
	}
}
