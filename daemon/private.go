package daemon

import (
	"cmp"
	"fmt"

	"github.com/fairlead/fairlead/kernel"
)

// Lasting refuses pins that would go with this process's mount namespace, unless
// somebody wants them so (allowed): then it warns of what that means.
func (d *Daemon) Lasting(pinDir string, allowed bool) error {
	err := kernel.Lasting(cmp.Or(pinDir, kernel.Dir(d.Name)))
	switch {
	case err == nil:
		return nil
	case !allowed:
		return fmt.Errorf("%w; or start the daemon with --private-pins, if its programs may end with it", err)
	}
	d.private = "private pins: " + err.Error()
	d.Log.Warn(d.private)
	return nil
}
