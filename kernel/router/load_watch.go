package router

import (
	"fmt"
)

// Tend puts back what somebody took away since the last Apply: the program from
// devices, and pins. What stands in the way stays in Status. To be called in the
// router's network namespace, every half second or so: the kernel tells nobody.
func (p *Plane) Tend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil || p.held == nil {
		return
	}
	p.astray.Look(p.log, func(note func(what string, err error)) {
		note("pins", p.folder.Keep(p.set.Set, p.set.dir))
		for index := range p.held {
			name := deviceStatus(index).Name
			if name == "" {
				continue // deleted: the next tables are without it
			}
			if err := p.hold(index, name); err != nil {
				note(linkPin(index), fmt.Errorf("interface %s: %w", name, err))
			}
		}
	})
}
