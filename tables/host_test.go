package tables

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/controller"
	choices "github.com/fairlead/fairlead/vip"
)

// A clamped segment fills the smallest interface with all that is put before
// it, and no byte less.
func TestMSSLeavesRoom(t *testing.T) {
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
		vip := &controller.VIP{
			Settings: choices.Settings{Scheme: c.scheme, Forwarding: c.forwarding, Address: netip.MustParseAddr("192.0.2.1")},
		}
		slot := &controller.Slot{Address: netip.MustParseAddr("10.77.0.2")}
		if c.vip6 {
			vip.Address = netip.MustParseAddr("2001:db8::1")
		}
		if c.server6 {
			slot.Address = netip.MustParseAddr("fd00:77::2")
		}
		want := 0
		if c.before > 0 {
			want = 1500 - c.before
		}
		if got := int(mss(vip, slot, 1500)); got != want {
			t.Errorf("%+v: %d, want %d", c, got, want)
		}
	}
}

// One that takes new connections stands for the server, whatever its number.
func TestSlots(t *testing.T) {
	vip := controller.VIP{Slots: []controller.Slot{
		{Number: 1, Server: "a", State: controller.Resting}, {Number: 2, Server: "b", State: controller.Active},
		{Number: 3, Server: "a", State: controller.Active}, {Number: 4, Server: "a", State: controller.Joining},
		{Number: 5, Server: "c", State: controller.Resting},
	}}
	for server, want := range map[string][2]int{"a": {3, 4}, "b": {2, -1}, "c": {5, -1}, "d": {-1, -1}} {
		slot, other := HostSlots(&vip, server)
		got := [2]int{-1, -1}
		for i, s := range []*controller.Slot{slot, other} {
			if s != nil {
				got[i] = int(s.Number)
			}
		}
		if got != want {
			t.Errorf("%s: slots %v, want %v", server, got, want)
		}
	}
}

// What is new in a server's table begins at a moment; a drain, which changes neither
// slot nor epoch, begins nothing, so that no agent waits for it.
func TestBegins(t *testing.T) {
	key := func(epoch uint32) controller.Key {
		return controller.Key{Epoch: epoch, Secret: make([]byte, 32)}
	}
	as := &controller.Assignment{Version: 1, Keys: []controller.Key{key(0)}, VIPs: []controller.VIP{{
		ID: 1,
		Settings: choices.Settings{Name: "v", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: choices.TCP,
			Scheme: choices.Cheetah, Policy: "rr", Forwarding: choices.IPIP, CookieBits: 12},
		Slots: []controller.Slot{{Number: 3, Server: "s", Address: netip.MustParseAddr("10.77.0.2"), State: controller.Active}},
	}}}
	before, at := NewHostTable(), uint64(0)
	for _, c := range []struct {
		what   string
		change func(v *controller.VIP)
		begins bool
	}{
		{"a first table", func(*controller.VIP) {}, true},
		{"a drain", func(v *controller.VIP) { v.Slots[0].State = controller.Draining }, false},
		{"an undrain", func(v *controller.VIP) { v.Slots[0].State = controller.Active }, false},
		{"a key that decodes", func(*controller.VIP) { as.Keys = append(as.Keys, key(1)) }, false},
		{"a key that stamps", func(*controller.VIP) { as.StampEpoch = 1 }, true},
		{"another slot", func(v *controller.VIP) { v.Slots[0].Number = 5 }, true},
		{"nothing", func(*controller.VIP) {}, false},
	} {
		c.change(&as.VIPs[0])
		p, err := Host(as, "s")
		if err != nil {
			t.Fatal(err)
		}
		at += 1000
		table, err := p.Table(HostView{At: at, Before: before, MTU: 1500, Unsettled: func(*ChainVIP) bool { return false }})
		if err != nil {
			t.Fatal(err)
		}
		if got := table.Begins(at); got != c.begins {
			t.Errorf("%s: begins %v, want %v", c.what, got, c.begins)
		}
		before = table
	}
}
