package lb

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
)

// The shared clock: shared ms = CLOCK_MONOTONIC ms + D, with D fixed for the
// boot and pinned. Programs read jiffies instead, the cheapest clock there
// is, and add control.clock_base, which the daemon recomputes:
//
//	shared ms = jiffies * mult >> shift + clock_base
//
// Both advance together (the tick counts CLOCK_MONOTONIC, NTP's slewing
// included), so a base outlives the daemon; while it runs, it corrects what
// rounding of the scale adds up to.

const clockRefresh = time.Second

// jiffyScale turns jiffies into milliseconds.
type jiffyScale struct {
	hz    uint32
	mult  uint64
	shift uint32
}

func (s jiffyScale) ms(jiffies uint64) uint32 { return uint32(jiffies * s.mult >> s.shift) }

// scaleOf is exact for the usual HZ. 300 does not divide 1000: with 20 bits
// of fraction the error is 0.3 ppm, and 2^33 jiffies still fit.
func scaleOf(hz uint32) jiffyScale {
	if 1000%hz == 0 {
		return jiffyScale{hz, uint64(1000 / hz), 0}
	}
	return jiffyScale{hz, (1000<<20 + uint64(hz)/2) / uint64(hz), 20}
}

// measureHZ takes two readings of both clocks, each off by at most one jiffy:
// over 100 ms that is 10 Hz, which tells the values that kernels are built
// with from each other.
func measureHZ(clock *ebpf.Program) (jiffyScale, error) {
	a, err := readClock(clock)
	if err != nil {
		return jiffyScale{}, err
	}
	time.Sleep(100 * time.Millisecond)
	b, err := readClock(clock)
	if err != nil {
		return jiffyScale{}, err
	}
	hz := float64(b.Jiffies-a.Jiffies) * 1e9 / float64(b.MonotonicNs-a.MonotonicNs)
	best := uint32(100)
	for _, h := range []uint32{250, 300, 1000} {
		if math.Abs(hz-float64(h)) < math.Abs(hz-float64(best)) {
			best = h
		}
	}
	return scaleOf(best), nil
}

func readClock(p *ebpf.Program) (c bpf.Clock, err error) {
	_, err = p.Run(&ebpf.RunOptions{Context: c, ContextOut: &c})
	if err != nil {
		return c, fmt.Errorf("run program clock: %w", err)
	}
	return c, nil
}

// measureClock loads the program clock alone: its answer is a constant of the
// others.
func measureClock(spec *ebpf.CollectionSpec) (jiffyScale, error) {
	p, err := ebpf.NewProgram(spec.Programs[progClock].Copy())
	if err != nil {
		return jiffyScale{}, fmt.Errorf("load program clock: %w", err)
	}
	defer p.Close()
	return measureHZ(p)
}

func monotonicMS() uint32 {
	var ts unix.Timespec
	// Cannot fail: the clock and the pointer are valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint32(ts.Nano() / 1e6)
}

// ClockBase is D of this boot: shared ms = CLOCK_MONOTONIC ms + D. ok is
// false until SetClock fixed it, in this process or in one before.
func (l *LB) ClockBase() (d uint32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clockD, l.clockSet
}

// SharedNow is the shared clock in ms; meaningless until ClockBase is ok.
func (l *LB) SharedNow() uint32 {
	d, _ := l.ClockBase()
	return monotonicMS() + d
}

// SetClock fixes the shared clock by what sharedNow reads, and pins it. Once
// fixed it stays, for as long as the pins live: then SetClock does nothing.
func (l *LB) SetClock(sharedNow func() uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return errClosed
	}
	if !l.clockSet {
		l.clockD, l.clockSet = sharedNow()-monotonicMS(), true
		if err := l.set.putMeta(l.metaClock); err != nil {
			return fmt.Errorf("pin the clock: %w", err)
		}
	}
	return l.refreshClock()
}

// RestoreClock puts back a base that was fixed in this boot, where what is pinned
// of it is damaged.
func (l *LB) RestoreClock(d uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return errClosed
	}
	l.clockD, l.clockSet = d, true
	if err := l.set.putMeta(l.metaClock); err != nil {
		return fmt.Errorf("pin the clock: %w", err)
	}
	return l.refreshClock()
}

func (l *LB) metaClock(m *metaRecord) { m.ClockD, m.ClockSet = l.clockD, 1 }

// adoptClock takes over the clock that a process before fixed.
func (l *LB) adoptClock(from *objects) error {
	m, err := from.meta()
	if err != nil || m.ClockSet == 0 {
		return nil // nothing pinned, or by something before the clock was kept
	}
	l.clockD, l.clockSet = m.ClockD, true
	if err := l.set.putMeta(l.metaClock); err != nil {
		return err
	}
	return l.refreshClock()
}

// refreshClock recomputes clock_base. Jiffies stand up to one tick behind;
// a base that is off by less than two is left alone.
func (l *LB) refreshClock() error {
	if !l.clockSet || l.set == nil {
		return nil
	}
	for _, o := range []*objects{l.set, l.old} {
		if o == nil || o == l.old && !l.oldReadable {
			continue
		}
		c, err := readClock(l.set.programs[progClock])
		if err != nil {
			return err
		}
		base := uint32(c.MonotonicNs/1e6) + l.clockD - l.jiffies.ms(c.Jiffies)
		have, err := o.readControl()
		if err != nil {
			return err
		}
		if off := int32(base - have.ClockBase); off >= 0 && off < 2*int32(l.jiffies.ms(1)) {
			continue
		}
		if err := o.writeControl(unsafe.Offsetof(bpf.Control{}.ClockBase), base); err != nil {
			return err
		}
	}
	return nil
}
