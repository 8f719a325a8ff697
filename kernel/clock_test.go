package kernel

import "testing"

// Jiffies of every usual HZ count ms, and a base stays while it is off by less than
// two ticks.
func TestJiffies(t *testing.T) {
	const hour = 3_600_000
	for _, hz := range []int{100, 250, 300, 1000} {
		j := JiffiesOf(hz)
		if ms := int64(j.MS(uint64(hz) * hour / 1000)); ms < hour-2 || ms > hour+2 {
			t.Errorf("HZ %d: an hour has %d ms", hz, ms)
		}
		const d, now = 5000, 7_000_000
		jiffies := uint64(now) * uint64(hz) / 1000
		base := j.Base(0, d, now*1e6, jiffies)
		if shared := j.MS(jiffies) + base; shared != now+d {
			t.Errorf("HZ %d: shared ms %d, want %d", hz, shared, now+d)
		}
		tick := j.MS(1)
		for off, stays := range map[uint32]bool{0: true, 1: true, 2*tick - 1: true, 2 * tick: false, ^uint32(0): false} {
			if got := j.Base(base-off, d, now*1e6, jiffies); (got == base-off) != stays {
				t.Errorf("HZ %d: a base that is off by %d becomes %d (right is %d)", hz, int32(off), got, base)
			}
		}
	}
}
