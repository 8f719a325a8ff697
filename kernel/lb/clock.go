package lb

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

const clockRefresh = time.Second

func readClock(p *ebpf.Program) (c bpf.Clock, err error) {
	_, err = p.Run(&ebpf.RunOptions{Context: c, ContextOut: &c})
	if err != nil {
		return c, fmt.Errorf("run program clock: %w", err)
	}
	return c, nil
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
	return uint32(kernel.MonotonicMS()) + d
}

// SetClock fixes the shared clock by what sharedNow reads, and pins it. Once
// fixed it stays, for as long as the pins live: then SetClock does nothing.
func (l *LB) SetClock(sharedNow func() uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clockSet {
		return l.refreshClock()
	}
	return l.fixClock(sharedNow() - uint32(kernel.MonotonicMS()))
}

// RestoreClock puts back a base that was fixed in this boot, where what is pinned
// of it is damaged.
func (l *LB) RestoreClock(d uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fixClock(d)
}

func (l *LB) fixClock(d uint32) error {
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
	return l.fixClock(m.ClockD)
}

// refreshClock recomputes control.clock_base (kernel.Jiffies).
func (l *LB) refreshClock() error {
	if !l.clockSet || l.set == nil {
		return nil
	}
	for _, o := range []*objects{l.set, l.old} {
		if o == nil || o == l.old && !l.oldReadable {
			continue
		}
		c, err := readClock(l.set.Programs[progClock])
		if err != nil {
			return err
		}
		have, err := o.readControl()
		if err != nil {
			return err
		}
		base := l.jiffies.Base(have.ClockBase, l.clockD, c.MonotonicNs, c.Jiffies)
		if base == have.ClockBase {
			continue
		}
		if err := o.writeControl(unsafe.Offsetof(bpf.Control{}.ClockBase), base); err != nil {
			return err
		}
	}
	return nil
}
