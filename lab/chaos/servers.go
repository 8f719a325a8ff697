package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/lab"
)

// Servers that die, and come back. Their connections end with them, and nobody else's do.

// server draws one.
func (w *world) server() string { return fmt.Sprint("server", 1+w.random.IntN(servers)) }

// serviceDies kills a server's service, whose kernel then refuses who comes.
func (w *world) serviceDies() fault {
	m := w.server()
	return fault{kind: "service", text: "the service of " + m + " is killed", dies: true, begin: func(ctx context.Context) (func() error, error) {
		return func() error { return w.lab.StartService(ctx, m, w.traffic) }, w.lab.KillService(m, w.traffic)
	}}
}

// on are a machine's processes.
func (w *world) on(machine string) []lab.Process {
	return slices.DeleteFunc(w.processes(), func(p lab.Process) bool { return p.Machine != machine })
}

// losesPower ends a server with all that runs on it, of which its disks alone are left.
func (w *world) losesPower() fault {
	m := w.server()
	processes := w.on(m)
	return fault{kind: "power", text: m + " loses its power", dies: true, touches: len(processes) > 1, begin: func(ctx context.Context) (func() error, error) {
		w.starting.Lock()
		defer w.starting.Unlock()
		for _, p := range processes {
			w.hold(p, 1)
			w.touch(p, shaken)
		}
		return func() error {
			err := w.lab.BootServer(ctx, m, w.traffic)
			for _, p := range processes {
				err = errors.Join(err, w.release(p))
			}
			return err
		}, w.lab.CutServer(m, w.traffic)
	}}
}
