package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab/clockstep"
	"github.com/fairlead/fairlead/lab/netspace"
)

// What scenarios in packages of their own do to a lab: to its processes, their disks,
// the ways between them, and by commands.

// Process is a daemon or a controller of the lab.
type Process struct {
	// Name is of its log and number in the lab's folder; a daemon's is its machine's.
	Name    string
	Machine string
}

// Daemons are the lab's, fronts first.
func (l *Lab) Daemons() (all []Process) {
	for _, m := range append(l.fronts(), l.servers()...) {
		all = append(all, Process{m, m})
	}
	return all
}

// ControllerProcesses are the lab's controllers.
func (l *Lab) ControllerProcesses() (all []Process) {
	for _, c := range l.controllers() {
		all = append(all, Process{c.name, c.machine})
	}
	return all
}

// Start starts a process that does not run, without waiting for it.
func (l *Lab) Start(p Process) error {
	if i := slices.IndexFunc(l.controllers(), func(c controller) bool { return c.name == p.Name }); i >= 0 {
		return l.startController(l.controllers()[i])
	}
	return l.launch(p.Machine)
}

// program is what a process of that name runs.
func (l *Lab) program(name string) string {
	if l.From == "" || l.renewed[name] {
		return l.Program
	}
	return l.From
}

// Renew has a process run the lab's Program when it is started next.
func (l *Lab) Renew(p Process) {
	if l.renewed == nil {
		l.renewed = map[string]bool{}
	}
	l.renewed[p.Name] = true
}

// Running is the program's file that a process runs.
func (l *Lab) Running(p Process) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/exe", l.pid(p.Machine, p.Name)))
}

// AddControllers writes controllers into the file of a lab of before there was a store,
// makes their certificates and starts them, of the lab's Program.
func (l *Lab) AddControllers(ctx context.Context) error {
	l.Before = false
	for _, p := range l.ControllerProcesses() {
		l.Renew(p)
	}
	l.Renew(Process{}) // who makes certificates
	if err := errors.Join(l.save(), l.writeConfig(), l.certify(ctx)); err != nil {
		return err
	}
	return l.startControllers()
}

// Await waits until a daemon that was started answers, and a front may be used.
func (l *Lab) Await(ctx context.Context, p Process) error {
	if err := l.awaitDaemon(ctx, p.Machine); err != nil || !l.isFront(p.Machine) {
		return err
	}
	return l.awaitReady(ctx, p.Machine)
}

// Runs says whether it does; one that is stopped by a signal does.
func (l *Lab) Runs(p Process) bool { return l.pid(p.Machine, p.Name) != 0 }

// Signal sends a signal to a process that runs. After SIGKILL it is gone.
func (l *Lab) Signal(p Process, s syscall.Signal) error {
	if s == syscall.SIGKILL {
		return l.kill(p.Machine, p.Name)
	}
	pid := l.pid(p.Machine, p.Name)
	if pid == 0 {
		return fmt.Errorf("%s is not running", p.Name)
	}
	return syscall.Kill(pid, s)
}

// StepClock sets a controller's wall clock off the machine's (Options.Clocks), until it
// is started again.
func (l *Lab) StepClock(p Process, by time.Duration) error {
	if l.clocks == nil {
		return fmt.Errorf("lab %s has no clocks of its own", l.Name)
	}
	clock, ok := l.clocks.Load(p.Name)
	if !ok {
		return fmt.Errorf("%s has no clock of its own", p.Name)
	}
	return clock.(*clockstep.Clock).Step(by)
}

// StateOf is the folder in which a process keeps what it knows.
func (l *Lab) StateOf(p Process) string { return filepath.Join(l.path("state"), l.daemonName(p.Name)) }

// Sizes of disks, in megabytes. A store takes two files of 64 before it begins.
const daemonDisk, controllerDisk = 4, 384

// mountDisks gives every process a disk for its state. Down takes them away.
func (l *Lab) mountDisks() error {
	if !l.Disks {
		return nil
	}
	for _, p := range append(l.Daemons(), l.ControllerProcesses()...) {
		size := daemonDisk
		if l.isController(p.Name) {
			size = controllerDisk
		}
		folder := l.StateOf(p)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("fairlead-lab", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", size)); err != nil {
			return fmt.Errorf("mount a disk at %s: %w", folder, err)
		}
	}
	return nil
}

// unmount takes away the disks below the lab's folder.
func unmount(dir string) error {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", fields[1], err))
			}
		}
	}
	return errors.Join(errs...)
}

// Port is where something of a lab that is exposed listens.
type Port uint16

const (
	APIPort   Port = exposedPort // a daemon's
	StorePort Port = storePort   // a controller's, for daemons
	PeerPort  Port = peerPort    // a controller's, for the others

	ControlPort Port = controlPort // a controller's, for commands, where the lab is Remote
)

// Cut takes from a machine the way to another's port, both directions, or gives it
// back. To take it twice is an error.
func (l *Lab) Cut(machine, other string, port Port, cut bool) error {
	for _, side := range []struct {
		at, to string
		own    bool
	}{{machine, other, false}, {other, machine, true}} {
		err := netspace.In(l.namespace(side.at), func() error {
			return lose(l.exposedAt(side.to).Addr(), uint16(port), side.own, cut)
		})
		if err != nil {
			return fmt.Errorf("part %s from %s: %w", machine, other, err)
		}
	}
	return nil
}

// StatusOf asks a daemon how it is, from its own machine.
func (l *Lab) StatusOf(ctx context.Context, machine string) (*fairleadv1.GetStatusResponse, error) {
	return l.daemonStatus(ctx, machine)
}

// TakesNoNew names an active server that a front gives no new connections to by its
// status, and says why; empty: there is none.
func TakesNoNew(s *fairleadv1.GetStatusResponse) string { return without(s) }

// StoreAnswers says why a controller's member of the store does not, nil: it is one of a
// majority, and answers.
func (l *Lab) StoreAnswers(ctx context.Context, p Process) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	settings, err := l.certificate(p.Machine)
	if err != nil {
		return err
	}
	return netspace.In(l.namespace(p.Machine), func() error {
		// It listens before, and shakes hands only then. The thread is this one.
		at := net.JoinHostPort(l.exposedAt(p.Machine).Addr().String(), fmt.Sprint(storePort))
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		return tls.Client(conn, settings).HandshakeContext(ctx)
	})
}

// Command runs the program of a machine's daemon there, with that machine's certificate, and
// gives what it says. extra are variables of its environment.
func (l *Lab) Command(ctx context.Context, machine string, extra []string, args ...string) (stdout, stderr string, err error) {
	return l.commandOf(ctx, l.program(machine), machine, extra, args)
}

// Ctl is Command of fairleadctl, which is beside the lab's program.
func (l *Lab) Ctl(ctx context.Context, machine string, args ...string) (stdout, stderr string, err error) {
	return l.commandOf(ctx, filepath.Join(filepath.Dir(l.Program), "fairleadctl"), machine, nil, args)
}

func (l *Lab) commandOf(ctx context.Context, program, machine string, extra, args []string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, program, l.there(machine, args)...)
	cmd.Dir = l.Dir()
	if l.Exposed {
		cmd.Dir = l.certificates(machine)
	}
	cmd.Env = slices.Concat(os.Environ(), l.asUser(), extra) // the last one stands
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = netspace.Start(l.namespace(machine), cmd); err == nil {
		err = cmd.Wait()
	}
	return out.String(), strings.TrimSpace(said.String()), err
}

// DaemonName is a machine's name in the configuration.
func (l *Lab) DaemonName(machine string) string { return l.daemonName(machine) }

// Secret is the deployment's.
func (l *Lab) Secret() string { return l.secret }

// Log is what a process has said.
func (l *Lab) Log(p Process) ([]byte, error) { return os.ReadFile(l.path(p.Name + ".log")) }

// Traffic is connections of the lab's client to its VIPs.
type Traffic struct{ client *loadClient }

// StartTraffic starts the plan; a plan without targets is for all VIPs. RSTs are
// captured where its Device is Uplink.
func (l *Lab) StartTraffic(ctx context.Context, plan LoadPlan) (*Traffic, error) {
	if plan.Targets == nil {
		for _, v := range l.VIPs {
			plan.Targets = append(plan.Targets, Target{v.Name, v.Endpoint()})
		}
	}
	c, err := l.startLoad(ctx, plan)
	if err != nil {
		return nil, err
	}
	return &Traffic{c}, nil
}

// Uplink is a machine's first device.
const Uplink = uplink

// Tell sends a notice.
func (t *Traffic) Tell(n LoadNotice) error { return t.client.tell(n) }

// Report is the latest.
func (t *Traffic) Report() LoadReport { return t.client.report() }

// Stop ends it at once.
func (t *Traffic) Stop() { t.client.stop() }

// Wait waits for its end, and gives the last report with all failures.
func (t *Traffic) Wait() (LoadReport, error) { return t.client.wait() }
