package lb

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/kernel"
)

// tend looks once, and puts back.
func (l *LB) tend() { l.look(true) }

// look is tend, at the pins only if it is their turn: no packet misses one while the
// daemon lives, and there are dozens.
func (l *LB) look(pins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil || l.old != nil || !l.attached {
		return // closed, or a set takes over, which attaches by itself
	}
	l.astray.Look(l.log, func(note func(what string, err error)) {
		note("namespace", kernel.InNamespace(l.ns, func() error {
			note("interfaces", l.findDevices())
			for _, p := range placesOn(l.ifaces) {
				note(p.pin(), l.putBack(p))
			}
			l.tendChecks(note)
			return nil
		}))
		if pins {
			l.unpinned = l.folder.Keep(l.set.Set, l.folder.Dir)
		}
		note("pins", l.unpinned)
	})
}

// findDevices looks the interfaces up again: one may have been deleted, and made
// anew with another index. One that cannot be looked up is taken to be as it was.
func (l *LB) findDevices() error {
	var errs []error
	for n, i := range l.ifaces {
		switch dev, err := kernel.Device(i.Name); {
		case err != nil:
			errs = append(errs, err)
		case dev == nil:
			l.ifaces[n].Index = 0
		default:
			l.ifaces[n] = *dev
		}
	}
	return errors.Join(errs...)
}

// putBack has a program where it belongs.
func (l *LB) putBack(p place) error {
	if p.device.Index == 0 {
		return fmt.Errorf("interface %s is gone: packets do not come in there; make it again, or take it out of balancers[].interfaces and restart", p.device.Name)
	}
	return l.hold(p, nil)
}
