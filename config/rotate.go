package config

import (
	"fmt"
	"time"
)

// Bounds of rotate_keys. A rotation is two changes that every daemon takes.
const (
	leastRotation = time.Hour
	mostRotation  = 10 * 365 * 24 * time.Hour
)

// checkRotation: a key is dropped a whole period after the last connection was stamped
// under it, and must decode for as long as one of those may be silent.
func (c *Config) checkRotation() {
	if c.RotateKeys == 0 {
		return
	}
	least, whose := leastRotation, ""
	cookies := false
	for _, v := range c.VIPs {
		cookies = cookies || v.Cookies()
		if !v.Cookies() || v.CookieBits < v.Width().MinBits || v.CookieBits > v.Width().MaxBits { // that was said
			continue
		}
		if idle := v.Width().Idle(v.CookieBits); idle > least {
			least, whose = (idle + time.Second - 1).Truncate(time.Second), fmt.Sprintf(", for which a connection of VIP %s may be silent and keep its cookie", v.Name)
		}
	}
	remedy := fmt.Sprintf("write %s%s, or more, %s at most, or remove it", least, whose, mostRotation)
	switch {
	case len(c.Controllers) == 0:
		c.problem("rotate_keys", c.RotateKeys, "no controller is named, and it is a controller that rotates", "name controllers, or remove it and run `fairlead rotate` now and then")
	case c.RotateKeys < least || c.RotateKeys > mostRotation:
		c.problem("rotate_keys", c.RotateKeys, "out of range", remedy)
	case !cookies && len(c.VIPs) > 0:
		c.problem("rotate_keys", c.RotateKeys, "no VIP's connections carry cookies, so there is nothing that keys are for", "remove it")
	}
}
