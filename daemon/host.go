package daemon

import (
	"errors"
	"log/slog"

	"github.com/fairlead/fairlead/config"
)

// openHost is replaced as soon as package host is there.
func openHost(self, *config.Config, Options, *slog.Logger) (plane, error) {
	return nil, errors.New("the host agent is not part of this build")
}
