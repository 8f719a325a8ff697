package lab

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// webName is the process of a server's service.
func webName(machine string) string { return machine + "-web" }

// startWeb starts a server's service; n is its number.
func (l *Lab) startWeb(machine string, n int) error {
	args := []string{l.Program, "lab", "serve", "--name", machine}
	if l.offloads() {
		args = append(args, "--plain-tcp")
	}
	for _, a := range append(l.vipAddresses(), l.serverAddresses(n)...) {
		args = append(args, "--address", a.String())
	}
	return l.spawn(machine, webName(machine), args...)
}

// KillServices kills the services of all servers, as the kernel's memory killer would,
// and returns when it did.
func (l *Lab) KillServices() (at time.Time, err error) {
	pids := map[string]int{}
	for _, m := range l.servers() {
		if pids[m] = l.pid(m, webName(m)); pids[m] == 0 {
			return at, errors.New("the service of " + m + " does not run")
		}
	}
	at = time.Now()
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	for m := range pids {
		if !netspace.WaitFor(killWait, func() bool { return l.pid(m, webName(m)) == 0 }) {
			err = errors.Join(err, errors.New("the service of "+m+" survives SIGKILL"))
		}
	}
	return at, err
}

// StartServices starts them again.
func (l *Lab) StartServices(ctx context.Context) error {
	for n, m := range l.servers() {
		if err := l.startWeb(m, n+1); err != nil {
			return err
		}
	}
	for _, m := range l.servers() {
		if err := l.awaitServer(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// KillService kills the service of one server. The traffic is told before that its
// connections are lost, so that it knows when they end.
func (l *Lab) KillService(machine string, t *Traffic) error {
	if err := t.Tell(LoadNotice{Crashed: machine, From: time.Now()}); err != nil {
		return err
	}
	return l.kill(machine, webName(machine))
}

// StartService starts it again, and tells the traffic that it answers.
func (l *Lab) StartService(ctx context.Context, machine string, t *Traffic) error {
	n := LoadNotice{Back: machine, From: time.Now()}
	err := l.startWeb(machine, slices.Index(l.servers(), machine)+1)
	if err == nil {
		err = l.awaitServer(ctx, machine)
	}
	n.To = time.Now()
	return errors.Join(err, t.Tell(n))
}

// CutServer ends a server as a loss of power does, with all that runs there. The traffic is
// told before, too.
func (l *Lab) CutServer(machine string, t *Traffic) error {
	if err := t.Tell(LoadNotice{Crashed: machine, From: time.Now()}); err != nil {
		return err
	}
	return l.CutPower(machine)
}

// BootServer gives it power again: its service runs, and its daemons shall be started.
func (l *Lab) BootServer(ctx context.Context, machine string, t *Traffic) error {
	return errors.Join(l.setLink(machine, true), l.StartService(ctx, machine, t))
}
