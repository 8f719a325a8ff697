package lb

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/vip"
)

// Servers that are down leave the tables, but for a VIP all of whose active
// servers are. Who stopped taking connections while down is down.
func TestOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := controller.VIP{ID: 7, Settings: vip.Settings{Health: &vip.Health{}, Address: netip.MustParseAddr("192.0.2.1")}}
		isDown := map[uint16]bool{}
		var activeUp, active int
		for i := range rapid.IntRange(0, 6).Draw(t, "slots") {
			n := uint16(i)
			state := rapid.SampledFrom([]controller.State{controller.Joining, controller.Active, controller.Standby, controller.Draining, controller.Resting}).Draw(t, "state")
			isDown[n] = rapid.Bool().Draw(t, "down")
			v.Slots = append(v.Slots, controller.Slot{Number: n, State: state})
			if state == controller.Active {
				active++
				if !isDown[n] {
					activeUp++
				}
			}
		}
		down, open := overlay(&controller.Assignment{VIPs: []controller.VIP{v}}, func(_ uint32, s uint16) bool { return isDown[s] })
		if open[7] != (active > 0 && activeUp == 0) {
			t.Fatalf("fail-open %v with %d of %d active up", open[7], activeUp, active)
		}
		for _, s := range v.Slots {
			want := isDown[s.Number] && s.State != controller.Joining && (s.State != controller.Active || !open[7])
			if down[health.Key{VIP: 7, Slot: s.Number}] != want {
				t.Fatalf("slot %d: down %v, want %v", s.Number, !want, want)
			}
		}
	})
}
