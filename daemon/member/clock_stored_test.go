package member_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/store"
)

// TestStoredClock: a deployment whose clock is an hour ahead of all wall clocks, and
// that is older than its store, brings it there. A machine without pins that nobody
// else answers has the same clock by it; and by its wall clock where what the store has
// is damaged. What is pinned is never changed.
func TestStoredClock(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	wall := uint32(time.Now().UnixMilli()) - uint32(now.Sec*1000+now.Nsec/1e6)
	d := storedOn(t, func(d *membertest.Deployment) {
		for _, name := range everybody {
			d.Plane(name).Base = new(wall + hour)
		}
	})
	near := func(what, source string, ahead uint32) {
		t.Helper()
		s := d.Status("lb1")
		if off := int32(s.Clock.BaseMs - wall - ahead); s.Clock.Source != source || off < -500 || off > 500 {
			t.Errorf("%s: by %s, %d ms off", what, s.Clock.Source, off)
		}
	}
	near("at first", "pinned", hour)
	client := d.Memory.Client()
	d.Eventually("the store has the clock", func() bool {
		entries, _, err := client.Read(t.Context(), "clock")
		return err == nil && len(entries) == 1
	})
	again := func() {
		d.Stops["lb1"]()
		d.Planes["lb1"].Base = nil
		d.Start(config.RoleBalancer, "lb1")
	}
	again()
	near("beside others", "peers", hour)
	for _, name := range []string{"s1", "s2", "lb2"} {
		d.Stops[name]()
	}
	again()
	near("alone", "store", hour)
	if _, err := client.Commit(t.Context(), nil, store.Op{Key: "clock", Value: []byte("what nobody wrote")}); err != nil {
		t.Fatal(err)
	}
	again()
	near("alone, and the store is damaged", "wall", 0)
	d.Stops["lb1"]()
	d.Start(config.RoleBalancer, "lb1")
	near("once more", "pinned", 0)
}
