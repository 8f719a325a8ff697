package health

import "time"

// What others know of a server sooner than checks can.

// Ended has a server down in a VIP at once, as its agent says that what served it has
// ended: as if as many checks as it takes had failed. As many good ones as at any
// other time have it up again. Of what is no target nothing is kept.
func (c *Checker) Ended(server string, vip uint32, why string) {
	type told struct {
		target Target
		report Report
	}
	var changes []told
	c.mu.Lock()
	for k, w := range c.workers {
		if k.VIP != vip || w.target.Server != server {
			continue
		}
		w.falls++
		changed := w.machine.Fall()
		w.report.Detail, w.report.Remembered = why, false
		if changed {
			w.report.State, w.report.Since, w.report.Ended = Down, time.Now(), true
			changes = append(changes, told{w.target, w.report})
		}
	}
	c.mu.Unlock()
	if c.onChange == nil {
		return
	}
	for _, t := range changes {
		c.onChange(t.target, t.report)
	}
}

// Ask has a server checked in all its VIPs now: something is the matter with its
// machine, perhaps.
func (c *Checker) Ask(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w.target.Server == server {
			select {
			case w.ask <- struct{}{}:
			default: // it is going to be
			}
		}
	}
}
