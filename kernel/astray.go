package kernel

import (
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Anybody with the rights may detach a program, remove a pin, delete a device or
// take addresses and routes away, and most of that nobody is told of. So each daemon
// looks: what is missing is put back from what it holds open, which breaks nobody's;
// what stands in the way of it is told.

// TendEvery is how long something can be missing before it is put back.
const TendEvery = 500 * time.Millisecond

// PinsEvery is the same of pins, which are for the daemon after this one.
const PinsEvery = 2 * time.Second

// Astray is what is not as it should be and could not be put back: by what it is,
// why.
type Astray map[string]string

// Look looks once: tend puts back, and notes what it cannot. An error that is noted
// again is logged once. nil is no error.
func (a *Astray) Look(log *slog.Logger, tend func(note func(what string, err error))) {
	now := Astray{}
	tend(func(what string, err error) {
		if err == nil {
			return
		}
		now[what] = err.Error()
		if (*a)[what] != err.Error() {
			log.Error("cannot be put back; trying on", "what", what, "error", err)
		}
	})
	*a = now
}

// List is why, in the order of what.
func (a Astray) List() []string {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(a)) {
		list = append(list, a[what])
	}
	return list
}
