package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/controller"
)

// Stopped is a series that not every daemon took.
type Stopped struct {
	Step    *controller.Assignment // the last that any daemon may have
	Daemons []*Daemon
}

func (s *Stopped) Error() string {
	var failed []string
	byVersion := map[uint64][]string{}
	var versions []uint64
	for _, d := range s.Daemons {
		if d.Err != nil {
			failed = append(failed, d.Name+": "+api.ErrorText(d.Err))
		}
		if d.Held != nil {
			if byVersion[d.Held.Version] == nil {
				versions = append(versions, d.Held.Version)
			}
			byVersion[d.Held.Version] = append(byVersion[d.Held.Version], d.Name)
		}
	}
	slices.Sort(versions)
	var have []string
	for _, v := range versions {
		have = append(have, fmt.Sprintf("version %d: %s", v, strings.Join(byVersion[v], ", ")))
	}
	return fmt.Sprintf("stopped at version %d, no connection breaks: %s (%s); put that right and run it again, it goes on from there",
		s.Step.Version, strings.Join(failed, "; "), strings.Join(have, "; "))
}

// Unwrap is the daemons' own errors, so that their codes can be told.
func (s *Stopped) Unwrap() (errs []error) {
	for _, d := range s.Daemons {
		if d.Err != nil {
			errs = append(errs, d.Err)
		}
	}
	return errs
}
