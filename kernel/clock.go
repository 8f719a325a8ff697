package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The shared clock: shared ms = CLOCK_MONOTONIC ms + D, with D fixed for the
// boot and pinned. Programs read jiffies instead, the cheapest clock there is:
//
//	shared ms = jiffies * mult >> shift + base
//
// Both advance together (the tick counts CLOCK_MONOTONIC, NTP's slewing
// included), so a base outlives its daemon; while that runs, it corrects what
// rounding of the scale adds up to.

// Jiffies turns jiffies into milliseconds.
type Jiffies struct {
	HZ          int
	Mult, Shift uint32
}

// MS is so many jiffies in ms.
func (j Jiffies) MS(jiffies uint64) uint32 { return uint32(jiffies * uint64(j.Mult) >> j.Shift) }

// JiffiesOf is exact for the usual HZ. 300 does not divide 1000: with 20 bits
// of fraction the error is 0.1 ppm, and 2^42 jiffies still fit.
func JiffiesOf(hz int) Jiffies {
	if 1000%hz == 0 {
		return Jiffies{hz, uint32(1000 / hz), 0}
	}
	return Jiffies{hz, uint32((1000<<20 + hz/2) / hz), 20}
}

// MeasureJiffies asks for the resolution of the coarse clock, which is one tick.
func MeasureJiffies() (Jiffies, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil || res.Nano() <= 0 {
		return Jiffies{}, fmt.Errorf("the length of a tick is not known: resolution %d ns (%v)", res.Nano(), err)
	}
	return JiffiesOf(int((1e9 + res.Nano()/2) / res.Nano())), nil
}

// Base is the base for D, by both clocks read at once. Jiffies stand up to one tick
// behind: one that is off by less than two is left as it is.
func (j Jiffies) Base(have, d uint32, monotonicNS, jiffies uint64) uint32 {
	base := uint32(monotonicNS/1e6) + d - j.MS(jiffies)
	if off := int32(base - have); off >= 0 && off < 2*int32(j.MS(1)) {
		return have
	}
	return base
}

// MonotonicMS is CLOCK_MONOTONIC in ms.
func MonotonicMS() uint64 {
	var ts unix.Timespec
	// Cannot fail: the clock and the pointer are valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano()) / 1e6
}
