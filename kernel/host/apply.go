package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// Apply makes the programs follow an assignment: for packets all at once, for
// connections that live on not at all. VIPs in which this server has no slot
// are none of its business. It takes two seconds at most, where the machine
// is busy. An error that is controller.ErrInForce came after the flip.
//
// A handshake is stamped by the time of its SYN-ACK (fl_host_vip), so a new
// slot or epoch is announced for a moment that lies just ahead of the flip.
// Where filling the table took longer than that, it is filled again for a
// later moment; where the flip itself came late, once more for the moment
// when it came. The moment of a VIP that is new is awaited before the flip (isNew).
// Where neither slot nor epoch is new, as with a drain, there is no such moment, and
// nothing is waited for.
func (a *Agent) Apply(as *controller.Assignment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.ClockBase(); !ok {
		return errors.New("host agent: the shared clock is not set yet (SetClock comes before Apply)")
	}
	own, err := tables.Host(as, a.o.Server)
	if err == nil {
		err = a.prepare(own)
	}
	if err != nil {
		return fmt.Errorf("host agent: apply version %d: %w", as.Version, err)
	}
	before := a.table
	if as.Version != a.version {
		a.former, a.version = before.Refused, as.Version
	}
	var next *tables.HostTable
	var at uint64
	for margin := firstMargin; ; margin *= 4 {
		var err error
		at = kernel.MonotonicMS() + uint64(margin)
		if next, err = a.fill(own, at); err != nil {
			return fmt.Errorf("host agent: apply version %d: %w", as.Version, err)
		}
		if kernel.MonotonicMS()+uint64(margin)/2 <= at || margin >= lastMargin || !next.Begins(at) {
			break
		}
	}
	awaited := isNew(next, before, at)
	if awaited {
		time.Sleep(time.Duration(int64(at)-int64(kernel.MonotonicMS())) * time.Millisecond)
	}
	begun := kernel.MonotonicMS()
	flipped := a.flip()
	if awaited {
		// What the flip takes in is stamped at once, also where this thread is held up
		// between the flip and the clock.
		flipped = begun
	}
	err = a.finish(as, own, next, at, flipped)
	if err = errors.Join(err, a.settle(own, before)); err != nil {
		return fmt.Errorf("host agent: version %d is %w: %w", as.Version, controller.ErrInForce, err)
	}
	return nil
}

// isNew: next has VIPs that the table before had not, and those that it had go on
// unchanged. As after a reboot, balancers may take the server for one that has them, and
// give it connections as soon as the flip takes their packets in: handshakes before the
// moment would go out without their cookie, and break.
func isNew(next, before *tables.HostTable, at uint64) (is bool) {
	for k, v := range next.Entries {
		if vip.SchemeOf(v.Scheme).Finds != vip.ByCookie {
			continue
		}
		if _, there := before.Entries[k]; !there {
			is = true
		} else if v.SlotSince == at || v.StampSince == at {
			return false
		}
	}
	return is
}

// fill writes the table of a plan to the half that is not in use. The
// VIPs' addresses come first: a packet that is decapsulated finds its own.
func (a *Agent) fill(p *tables.HostPlan, at uint64) (*tables.HostTable, error) {
	next, err := p.Table(a.view(at))
	if err != nil {
		return nil, err
	}
	if err := a.putVIPs(next); err != nil {
		return nil, err
	}
	// Packets may still read the half that is to be written: they have left it
	// for good since the last flip.
	if err := kernel.WaitForReaders(); err != nil {
		return nil, err
	}
	return next, writeTable(a.set.HostVips, a.control, next)
}

// view is what this server's table is planned by; what is new in it begins at `at`.
func (a *Agent) view(at uint64) tables.HostView {
	mtu, now := 0, time.Now()
	for _, d := range a.devices {
		if mtu == 0 || d.MTU < mtu {
			mtu = d.MTU
		}
	}
	return tables.HostView{At: at, Before: a.table, Former: a.former, MTU: mtu,
		Unsettled: func(v *tables.ChainVIP) bool { return a.state.unsettled(v, now) }}
}

// flip makes packets go by the half that is filled. It returns when that was
// done, CLOCK_MONOTONIC ms.
func (a *Agent) flip() uint64 {
	a.control.store(offActive, 1-a.control.load(offActive)&1)
	return kernel.MonotonicMS()
}

// finish is what follows the flip at `flipped` to next, planned for `at`.
func (a *Agent) finish(as *controller.Assignment, own *tables.HostPlan, next *tables.HostTable, at, flipped uint64) error {
	var late error
	begins := next.Begins(at)
	if begins && flipped >= at {
		var exact *tables.HostTable
		if exact, late = a.fill(own, flipped); late == nil {
			a.flip()
			next, at = exact, flipped
		}
	}
	a.table = next
	a.epochs(as)
	if late != nil {
		return late
	}
	// Whoever waited for Apply finds what it began in force, for SYN cookies
	// too, whose time is in steps of 64 ms.
	if begins {
		time.Sleep(time.Duration(at-flipped+64) * time.Millisecond)
	}
	return a.dropVIPs(next)
}

// epochs notes which epoch each parity stands for.
func (a *Agent) epochs(as *controller.Assignment) {
	for _, k := range as.Keys {
		a.epoch[k.Epoch&1] = k.Epoch
	}
}
