package lb

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
	choices "github.com/fairlead/fairlead/vip"
)

// Who is down by the disk or by the lines is down; a number that is another
// server's now says nothing.
func TestRecalled(t *testing.T) {
	vip := netip.MustParseAddrPort("192.0.2.1:80")
	address := func(n uint16) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
	a := &controller.Assignment{VIPs: []controller.VIP{{ID: 1, Settings: choices.Settings{Address: vip.Addr(), Health: &choices.Health{Port: 80}}}, {ID: 2}}}
	names := []string{"well", "disk", "line", "both", "other", "unheard", "moved"}
	var known []health.Known
	for i, name := range names {
		n := uint16(i)
		a.VIPs[0].Slots = append(a.VIPs[0].Slots, controller.Slot{Number: n, Server: name, Address: address(n)})
		switch name {
		case "unheard":
		case "other":
			known = append(known, health.Known{VIP: 1, Slot: n, Server: "before", Address: vip})
		default:
			known = append(known, health.Known{VIP: 1, Slot: n, Server: name, Address: vip, Up: name != "disk" && name != "both"})
		}
	}
	down := []lb.DownServer{{VIP: 1, Slot: 2, Address: address(2)}, {VIP: 1, Slot: 3, Address: address(3)},
		{VIP: 1, Slot: 6, Address: address(9)}, {VIP: 2, Slot: 0, Address: address(0)}}
	got := map[string]string{}
	for _, k := range recalled(a, known, down) {
		got[k.Server] = map[bool]string{true: "up", false: "down"}[k.Up]
	}
	for name, want := range map[string]string{"well": "up", "disk": "down", "line": "down", "both": "down", "other": "", "unheard": "", "moved": "up"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
