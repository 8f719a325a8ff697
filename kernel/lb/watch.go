package lb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/kernel"
)

// Anybody with the rights may detach a program, remove a pin, delete a device or
// flush routes, and most of that nobody is told of. So it is looked at: what is
// missing is put back from what this process holds open, which breaks nobody's;
// what stands in the way of it is told.

// tendEvery is how long something can be missing before it is put back.
const tendEvery = 500 * time.Millisecond

func (l *LB) keepAttached(ctx context.Context) error {
	t := time.NewTicker(tendEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.tend()
		}
	}
}

// tend looks once, and puts back.
func (l *LB) tend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil || l.old != nil || l.links == nil {
		return // closed, or a set takes over, which attaches by itself
	}
	astray := map[string]string{}
	note := func(what string, err error) {
		if err == nil {
			return
		}
		astray[what] = err.Error()
		if l.astray[what] != err.Error() {
			l.log.Error("cannot be put back; trying on", "what", what, "error", err)
		}
	}
	err := kernel.InNamespace(l.ns, func() error {
		note("interfaces", l.findDevices())
		for _, p := range placesOn(l.ifaces) {
			note(p.pin(), l.putBack(p))
		}
		l.tendChecks(note)
		return nil
	})
	note("namespace", err)
	note("pins", l.repin())
	l.astray = astray
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

// putBack attaches a program that is not where it belongs, and pins a link whose
// pin is gone.
func (l *LB) putBack(p place) error {
	if p.device.Index == 0 {
		return fmt.Errorf("interface %s is gone: packets do not come in there; make it again, or take it out of balancers[].interfaces and restart", p.device.Name)
	}
	held := l.links.links[p.pin()]
	at := uint64(0)
	if held != nil {
		var err error
		if at, err = kernel.Where(held); err != nil {
			return err // which does not say that it is detached
		}
	}
	if at == uint64(p.device.Index) {
		again, err := kernel.Repin(held, l.links.path(p))
		if again {
			l.log.Warn("the pin of a link was removed, and is made again", "pin", l.links.path(p))
		}
		return err
	}
	delete(l.links.links, p.pin())
	if held != nil {
		held.Close()
	}
	if err := l.links.anew(p, l.set.programs[p.program], 0); err != nil {
		return err
	}
	l.log.Warn("a program was not attached any more, and is put back", "program", p.program, "interface", p.device.Name)
	return nil
}

// repin makes the pins of maps and programs that somebody removed.
func (l *LB) repin() error {
	var err error
	if l.lock, err = kernel.Hold(l.lock, l.o.PinDir); err != nil {
		return err
	}
	for name, m := range l.set.maps {
		if err := kernel.Keep(m, filepath.Join(l.o.PinDir, dirMaps, name), l.log); err != nil {
			return err
		}
	}
	for name, p := range l.set.programs {
		if err := kernel.Keep(p, filepath.Join(l.o.PinDir, dirPrograms, name), l.log); err != nil {
			return err
		}
	}
	return nil
}
