package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/netspace"
)

// Where a lab agrees: one controller beside the router, whose store all daemons
// reach at a socket; or, in a lab that is exposed, three on machines of daemons,
// which reach each other over the Ethernet.

const (
	storePort   = 2379
	peerPort    = 2380
	controlPort = 7444
)

// controller is one of the lab's. Its API is a socket, as operators work on its machine, but
// where the lab is Remote.
type controller struct {
	name    string // of its process, and, behind the lab's, in the configuration
	machine string
	store   string
	peer    string // "": there is no other
}

func (l *Lab) controlSocket(name string) string { return l.path(name + "-api.sock") }

func (l *Lab) controllers() (all []controller) {
	if l.Before {
		return nil
	}
	if !l.Exposed {
		return []controller{{name: "ctl1", machine: "router", store: "unix:" + l.path("ctl1-store.sock")}}
	}
	machines := []string{"server1"}
	if l.Controllers == 3 {
		machines = []string{l.fronts()[0], "server1", l.fronts()[1]}
	}
	for i, machine := range machines {
		address := l.exposedAt(machine).Addr().String()
		all = append(all, controller{name: fmt.Sprint("ctl", i+1), machine: machine,
			store: "https://" + net.JoinHostPort(address, fmt.Sprint(storePort)), peer: "https://" + net.JoinHostPort(address, fmt.Sprint(peerPort))})
	}
	if len(all) == 1 {
		all[0].peer = ""
	}
	return all
}

func (l *Lab) configControllers(p func(string, ...any)) {
	p("controllers:")
	for _, c := range l.controllers() {
		p("  - name: %s", l.daemonName(c.name))
		at := "unix:" + l.controlSocket(c.name)
		if l.Remote {
			at = "https://" + net.JoinHostPort(l.exposedAt(c.machine).Addr().String(), fmt.Sprint(controlPort))
		}
		p("    api: %s", at)
		p("    store: %s", c.store)
		if c.peer != "" {
			p("    peer: %s", c.peer)
		}
	}
}

// isController: a process of this name is one.
func (l *Lab) isController(name string) bool {
	return slices.ContainsFunc(l.controllers(), func(c controller) bool { return c.name == name })
}

// startControllers starts all, without waiting for any.
func (l *Lab) startControllers() error {
	for _, c := range l.controllers() {
		if err := l.startController(c); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) startController(c controller) error {
	return l.spawn(c.machine, c.name, l.program(c.name), "controller", "-f", l.fileOf(c.name), "--name", l.daemonName(c.name), "--state-dir", l.path("state"))
}

// firstVersion brings the configuration's assignment into the store: until then
// daemons wait. Those that have not been started shall not be waited for.
func (l *Lab) firstVersion(ctx context.Context) error {
	if l.Before {
		return nil
	}
	args := []string{"apply", "-f", l.ConfigPath()}
	for _, m := range l.fronts()[l.ActiveLBs:] {
		args = append(args, "--without", l.daemonName(m))
	}
	var said string
	var err error
	done := netspace.WaitFor(readyWait, func() bool {
		said, err = l.command(ctx, "server1", args...)
		return err == nil || ctx.Err() != nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !done:
		return fmt.Errorf("there is no first version: %w: %s", err, said)
	}
	return nil
}

// command runs the lab's program on a machine, and gives what it says.
func (l *Lab) command(ctx context.Context, machine string, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, l.Program, l.there(machine, args)...)
	cmd.Dir = l.Dir()
	if l.Exposed {
		cmd.Dir = l.certificates(machine)
	}
	cmd.Env = append(os.Environ(), l.asUser()...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = netspace.In(l.namespace(machine), cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return strings.TrimSpace(out.String()), err
}

// checkControllers: three need machines that reach each other.
func (o *Options) checkControllers() error {
	switch {
	case o.Controllers != 1 && o.Controllers != 3:
		return fmt.Errorf("controllers %d: must be 1 or 3", o.Controllers)
	case o.Controllers == 3 && (!o.Exposed || o.LBs < 2):
		return errors.New("3 controllers: need a lab that is exposed, with two balancers")
	}
	return nil
}
