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

// A balancer that missed tables while others renewed a chain that its own table
// says nothing of: everybody is asked, and until they had time to answer, the
// new table's previous server counts, however long ago it had the bucket.
func TestMissedTables(t *testing.T) {
	const now = 1_700_000_000
	v := &controller.VIP{
		ID:       1,
		Settings: vip.Settings{Name: "web", Protocol: vip.TCP, ChainTime: 4 * time.Minute},
	}
	for n := range uint16(3) {
		v.Slots = append(v.Slots, controller.Slot{Number: n, Server: "s", Weight: 1, State: controller.Active})
	}
	table := func(generation uint32, since uint32, previous ...uint16) *buckets.Table {
		chain := buckets.NoPrevious
		copy(chain[:], previous)
		return &buckets.Table{Generation: generation, Current: []uint16{0}, Since: []uint32{since}, Previous: [][buckets.Chain]uint16{chain}}
	}
	b := NewChains()
	at := func(t *testing.T, after uint32, previous []uint16, asked int) {
		t.Helper()
		s, err := b.update(v, nil, now+after)
		if err != nil {
			t.Fatal(err)
		}
		b.Enforced(&Plan{Stretches: []Stretch{s}})
		want := buckets.NoPrevious
		copy(want[:], previous)
		if r := s.Rows.At(0); r.Previous != want {
			t.Errorf("after %d s: %+v, want previous servers %v", after, r, previous)
		}
		if got := b.Status(Moment{})[0].Previous; len(got) != asked {
			t.Errorf("after %d s: %v are asked, want %d", after, got, asked)
		}
	}
	v.Buckets = table(1, 0)
	at(t, 0, nil, 3) // new
	at(t, NewFor, nil, 0)
	v.Buckets = table(2, now+NewFor)
	at(t, 300, nil, 0) // nothing was missed
	// Bucket 0 went to server 1 in 3 and back in 4, five minutes ago.
	v.Buckets = table(4, now+300, 1)
	at(t, 600, []uint16{1}, 3)
	b.Report(1, 1, []byte{1}, now+602)
	b.Report(1, 2, []byte{1}, now+602) // a deputy elsewhere, meanwhile
	at(t, 603, []uint16{2, 1}, 3)
	at(t, 600+NewFor, []uint16{2, 1}, 2)
	b.Report(1, 2, []byte{0}, now+630)
	at(t, 631, []uint16{1}, 1)
}
