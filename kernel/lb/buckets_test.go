package lb

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// The shared clock's full value is the one nearest to the wall clock's, and a
// second of it comes back as a moment of the wall clock at which that second
// has begun.
func TestSharedTime(t *testing.T) {
	for _, ahead := range []time.Duration{0, 700 * time.Millisecond, -time.Hour, 20 * 24 * time.Hour, -20 * 24 * time.Hour} {
		l := &LB{clockSet: true}
		now := time.Now()
		l.clockD = uint32(now.Add(ahead).UnixMilli()) - uint32(kernel.MonotonicMS())
		shared := l.sharedMS(now)
		if off := int64(shared) - now.Add(ahead).UnixMilli(); off < -20 || off > 20 {
			t.Errorf("ahead %v: shared %d ms, off by %d", ahead, shared, off)
		}
		s := uint32(shared/1000) + 100
		if back := (tables.Moment{Now: now, SharedMS: shared}).Wall(s); uint32(l.sharedMS(back)/1000) != s || back.Sub(now) > 101*time.Second {
			t.Errorf("ahead %v: second %d comes back as %v, which is second %d", ahead, s, back, l.sharedMS(back)/1000)
		}
	}
	l := &LB{}
	if got := l.sharedMS(time.UnixMilli(123_456)); got != 123_456 {
		t.Errorf("without a clock: %d", got)
	}
	if at := (tables.Moment{Now: time.Now()}).Wall(0); !at.IsZero() {
		t.Errorf("never is %v", at)
	}
}
