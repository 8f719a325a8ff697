package swtch

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

// One VIP of two goes away: its servers drain there, and still stand in for
// each other in the one that stays.
func TestDesiredOfVIPThatGoes(t *testing.T) {
	made := func(id uint32, protocol string, states ...controller.State) controller.VIP {
		v := controller.VIP{ID: id, Name: "v", Address: netip.MustParseAddr("192.0.2.10"), Protocol: protocol, Scheme: vip.Faild,
			ChainTime: 1500 * time.Millisecond, Buckets: buckets.New(8, []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}})}
		for i, state := range states {
			v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: string(rune('a' + i)), Weight: 3, State: state})
		}
		return v
	}
	d, ok, err := DesiredOf(&controller.Assignment{VIPs: []controller.VIP{
		made(1, vip.UDP, controller.Draining, controller.Draining), made(2, vip.TCP, controller.Active, controller.Draining)}})
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
