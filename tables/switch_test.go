package tables

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// One VIP of two goes away: its servers drain there, and still stand in for
// each other in the one that stays.
func TestSwitchOfVIPThatGoes(t *testing.T) {
	made := func(id uint32, protocol string, states ...controller.State) controller.VIP {
		v := controller.VIP{
			ID:       id,
			Settings: vip.Settings{Name: "v", Address: netip.MustParseAddr("192.0.2.10"), Protocol: protocol, Scheme: vip.Faild, ChainTime: 1500 * time.Millisecond},
			Buckets:  buckets.New(8, []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}}),
		}
		for i, state := range states {
			v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: string(rune('a' + i)), Weight: 3, State: state})
		}
		return v
	}
	d, ok, err := Switch(&controller.Assignment{VIPs: []controller.VIP{
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

// A settled bucket's MAC names its server, a moved one's the server before, and
// what hosts make of that on its way is used, too; without servers there is none.
func TestNextHops(t *testing.T) {
	const none = buckets.None
	d := SwitchPlan{Servers: []SwitchServer{{Number: 3}, {Number: 4}}}
	rows := effective.Restore(1, []uint16{3, 4}, []uint32{0, 0}, [][buckets.Chain]uint16{buckets.NoPrevious, {3, none, none}})
	macs, used, err := d.NextHops(rows)
	if err != nil {
		t.Fatal(err)
	}
	for b, want := range []wire.Faild{
		{Kind: wire.FaildPass, Current: 3, Previous: [wire.FaildChain]uint16{none, none, none}},
		{Kind: wire.FaildPass, Current: 4, Previous: [wire.FaildChain]uint16{3, none, none}},
	} {
		for f, ok := want, true; ok; f, ok = f.Next() {
			if mac, err := wire.EncodeFaild(f); err != nil || !used[mac] {
				t.Errorf("bucket %d: %+v is not used: %v", b, f, err)
			}
		}
		if mac, _ := wire.EncodeFaild(want); macs[b] != mac {
			t.Errorf("bucket %d: %v, want %v", b, macs[b], mac)
		}
	}
	if !used[CopyMAC(3)] || !used[CopyMAC(4)] || used[CopyMAC(5)] {
		t.Errorf("copies: %v", used)
	}
	if macs, _, err := d.NextHops(effective.Restore(1, []uint16{none}, []uint32{0}, [][buckets.Chain]uint16{buckets.NoPrevious})); err != nil || macs != nil {
		t.Errorf("nobody ever: %v, %v", macs, err)
	}
}
