package swtch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
)

// One VIP of two goes away: its servers drain there, and still stand in for
// each other in the one that stays.
func TestDesiredOfVIPThatGoes(t *testing.T) {
	vip := func(id uint32, protocol string, states ...controller.State) controller.VIP {
		v := controller.VIP{ID: id, Name: "v", Address: netip.MustParseAddr("192.0.2.10"), Protocol: protocol, Scheme: config.Faild,
			ChainTime: 1500 * time.Millisecond, Buckets: buckets.New(8, []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}})}
		for i, state := range states {
			v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: string(rune('a' + i)), Weight: 3, State: state})
		}
		return v
	}
	d, ok, err := DesiredOf(&controller.Assignment{VIPs: []controller.VIP{
		vip(1, config.UDP, controller.Draining, controller.Draining), vip(2, config.TCP, controller.Active, controller.Draining)}})
	if err != nil || !ok {
		t.Fatal(err)
	}
	if d.Servers[0].Weight != 3 || d.Servers[1].Weight != 0 {
		t.Errorf("servers %+v", d.Servers)
	}
	if d.ChainTime != 2*time.Second || !d.Datagrams || !d.Streams {
		t.Errorf("%+v", d)
	}
}
