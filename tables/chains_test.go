package tables

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

// A server that died and was then removed by force is checked by nobody any
// more. It must not stand in a chain before one that fails its checks, lives
// and owns connections, or it swallows what is for that one.
func TestRemovedStandsLast(t *testing.T) {
	const now = 1_700_000_000
	v := &controller.VIP{
		ID:       1,
		Settings: vip.Settings{Name: "web", Protocol: vip.TCP, ChainTime: 4 * time.Minute},
		Slots: []controller.Slot{
			{Number: 0, Server: "up", Weight: 1, State: controller.Active},
			{Number: 1, Server: "removed", Weight: 1, State: controller.Resting},
			{Number: 2, Server: "failing", Weight: 1, State: controller.Active},
		},
	}
	v.Buckets = &buckets.Table{Generation: 3, Current: []uint16{2}, Since: []uint32{now - 5},
		Previous: [][buckets.Chain]uint16{{1, buckets.None, buckets.None}}}
	b := NewChains()
	if _, err := b.update(v, nil, now); err != nil {
		t.Fatal(err)
	}
	failing := func(_ uint32, slot uint16) bool { return slot == 2 }
	if _, err := b.update(v, failing, now+1); err != nil {
		t.Fatal(err)
	}
	own := []ownReport{2: {buckets: buckets.Bitmap{1}, at: now + 3}}
	b.reports = map[uint32][]ownReport{1: own}
	s, err := b.update(v, failing, now+4)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Rows.At(0); r.Current != 0 || r.Previous != [buckets.Chain]uint16{2, 1, buckets.None} {
		t.Errorf("row %+v, want the deputy 0 with the chain 2, 1", r)
	}
}
