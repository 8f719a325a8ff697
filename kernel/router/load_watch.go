package router

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

// Tend puts back what somebody took away since the last Apply: the program from
// devices, and pins. What stands in the way stays in Status. To be called in the
// router's network namespace, every half second or so: the kernel tells nobody.
func (p *Plane) Tend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil || p.links == nil {
		return
	}
	errs := []error{p.repinSet()}
	for index, l := range p.links {
		name := deviceStatus(index).Name
		if name == "" {
			continue // deleted: the next tables are without it
		}
		if on, err := linkOf(l); err != nil || on == index {
			errs = append(errs, err, p.repin(l, index))
			continue
		}
		// A link that was detached stays so. It stands for its device until there is
		// another.
		again, err := kernel.AttachXDP(p.set.program, index, name, 0, p.log)
		if err == nil {
			err = kernel.Replace(again, p.linkPath(index))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("interface %s: %w", name, err))
			continue
		}
		l.Close()
		p.links[index] = again
		p.log.Warn("the program was not attached any more, and is put back", "interface", name)
	}
	p.tell(errors.Join(errs...))
}

// tell notes what Tend could not do, and logs it once.
func (p *Plane) tell(err error) {
	astray := ""
	if err != nil {
		astray = err.Error()
	}
	if astray != "" && astray != p.astray {
		p.log.Error("cannot be put back; trying on", "error", err)
	}
	p.astray = astray
}

// repinSet makes the pins of the maps and the program that somebody removed.
func (p *Plane) repinSet() (err error) {
	if p.lock, err = kernel.Hold(p.lock, p.o.PinDir); err != nil {
		return err
	}
	for name, m := range p.set.maps {
		if err := kernel.Keep(m, filepath.Join(p.set.dir, dirMaps, name), p.log); err != nil {
			return err
		}
	}
	return kernel.Keep(p.set.program, filepath.Join(p.set.dir, dirPrograms, bpf.RouterProgRouter), p.log)
}
