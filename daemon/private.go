package daemon

import (
	"fmt"
	"log/slog"

	"github.com/fairlead/fairlead/kernel"
)

// Lasting refuses pins that would go with this process's mount namespace, unless
// somebody wants them so (allowed): then warning says what that means.
func Lasting(pinDir, name string, allowed bool, log *slog.Logger) (warning string, err error) {
	if pinDir == "" {
		pinDir = kernel.Dir(name)
	}
	err = kernel.Lasting(pinDir)
	switch {
	case err == nil:
		return "", nil
	case !allowed:
		return "", fmt.Errorf("%w; or start the daemon with --private-pins, if its programs may end with it", err)
	}
	warning = "private pins: " + err.Error()
	log.Warn(warning)
	return warning, nil
}
