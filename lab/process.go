package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/clockstep"
	"github.com/fairlead/fairlead/lab/netspace"
)

// readyWait bounds how long a daemon or server may take to answer. A machine
// of two processors starts ten of them at a time, each loading programs.
const readyWait = 60 * time.Second

// balancerNice is the priority of balancers' daemons; 0 is everybody's.
const balancerNice = -15

// spawn starts a process of the lab in a machine, in a session of its own so
// that it outlives the terminal. Its output goes to NAME.log, its number to
// NAME.pid in the lab's folder.
func (l *Lab) spawn(machine, name string, args ...string) error {
	log, err := os.OpenFile(l.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = l.Dir()
	if l.Exposed && (name == machine || l.isController(name)) { // a daemon: some builds look for its certificates there
		cmd.Dir = l.certificates(name)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = netspace.In(l.namespace(machine), func() error {
		if l.isFront(machine) {
			// A balancer has a machine of its own; here it shares few CPUs
			// with all clients and servers. What its daemon tells its peers
			// must not wait for these. The thread ends with this function;
			// the process inherits.
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, balancerNice)
		}
		if l.clocks != nil && l.isController(name) {
			clock, err := clockstep.Start(cmd) // on this thread, which is locked
			l.clocks.Store(name, clock)
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", args[0], machine, err)
	}
	if l.Exposed && name == machine {
		few := &unix.Rlimit{Cur: exposedDescriptors, Max: exposedDescriptors}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, few, nil); err != nil {
			return fmt.Errorf("limit descriptors of %s: %w", name, err)
		}
	}
	// Whoever made the lab may stay for long; its children must not become
	// zombies then.
	go cmd.Wait()
	return os.WriteFile(l.path(name+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// pid is the number of a process that spawn started, 0 if it is gone. A
// number that another process has by now is told by its namespace.
func (l *Lab) pid(machine, name string) int {
	data, err := os.ReadFile(l.path(name + ".pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(string(data))
	if slices.Contains(netspace.Processes(l.namespace(machine)), pid) && !netspace.IsZombie(pid) {
		return pid
	}
	return 0
}

// StartDaemon starts `fairlead lb`, `switch` or `host` in a machine and waits
// until it answers. One that runs is an error: a second would fail, but leave
// its own number in the place of the first one's.
func (l *Lab) StartDaemon(ctx context.Context, machine string) error {
	if pid := l.pid(machine, machine); pid != 0 {
		return fmt.Errorf("the daemon of %s runs already (process %d): stop it with `fairlead lab kill --lab %s %s` first", machine, pid, l.Name, machine)
	}
	if err := l.launch(machine); err != nil {
		return err
	}
	if err := l.awaitDaemon(ctx, machine); err != nil || !l.isFront(machine) {
		return err
	}
	return l.awaitReady(ctx, machine)
}

// awaitReady waits until a balancer or switch says that a router may use it.
func (l *Lab) awaitReady(ctx context.Context, machine string) error {
	var missing string
	ready := netspace.WaitFor(readyWait, func() bool {
		status, err := l.daemonStatus(ctx, machine)
		if err != nil {
			missing = err.Error()
			return ctx.Err() != nil
		}
		missing = strings.Join(status.NotReady, "; ")
		// A switch that drains is as ready as it wants to be.
		return missing == "" || status.Switch.GetDrained() && len(status.NotReady) == 1
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !ready {
		return fmt.Errorf("%s is not ready after %v: %s", machine, readyWait, missing)
	}
	return nil
}

func (l *Lab) launch(machine string) error {
	verb := "host"
	if l.isFront(machine) {
		verb = l.frontKind()
	}
	args := []string{l.program(machine), verb, "-f", l.fileOf(machine), "--name", l.daemonName(machine), "--state-dir", l.path("state")}
	if verb != "switch" { // which pins nothing
		// A lab in a container lives no longer than that.
		args = append(args, "--private-pins")
	}
	if l.Unguarded {
		args = append(args, "--without-guards")
	}
	return l.spawn(machine, machine, args...)
}

func (l *Lab) awaitDaemon(ctx context.Context, machine string) error {
	var last error
	ready := netspace.WaitFor(readyWait, func() bool {
		if ctx.Err() != nil {
			return true
		}
		_, last = l.daemonStatus(ctx, machine)
		return last == nil || l.pid(machine, machine) == 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !ready || last != nil {
		return fmt.Errorf("daemon of %s does not answer: %w; the end of its log, %s:\n%s", machine, last, l.path(machine+".log"), l.logEnd(machine))
	}
	return nil
}

// logEnd is the last kilobyte of a process's log.
func (l *Lab) logEnd(name string) string {
	data, err := os.ReadFile(l.path(name + ".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-1024):]))
}

// KillDaemon kills a machine's daemon as the kernel's memory killer would.
func (l *Lab) KillDaemon(machine string) error { return l.kill(machine, machine) }

func (l *Lab) kill(machine, name string) error {
	pid := l.pid(machine, name)
	if pid == 0 {
		return fmt.Errorf("%s is not running", name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if !netspace.WaitFor(killWait, func() bool { return l.pid(machine, name) == 0 }) {
		return fmt.Errorf("process %d (%s) survives SIGKILL", pid, name)
	}
	return nil
}

// startServers starts the services of every server, and iperf3 where it is
// installed.
func (l *Lab) startServers(ctx context.Context) error {
	iperf, iperfErr := exec.LookPath("iperf3")
	for n, m := range l.servers() {
		if err := l.startWeb(m, n+1); err != nil {
			return err
		}
		for _, v := range l.VIPs {
			// One for each address: a UDP answer of iperf3 leaves from the
			// VIP only if its socket is bound to it.
			if v.Port != iperfPort || v.Protocol != "tcp" || iperfErr != nil {
				continue
			}
			if err := l.spawn(m, m+"-"+v.Name, iperf, "-s", "-B", v.Address.String()); err != nil {
				return err
			}
		}
	}
	for _, m := range l.servers() {
		if err := l.awaitServer(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// awaitServer waits until a server's web service accepts connections.
func (l *Lab) awaitServer(ctx context.Context, machine string) error {
	ready := netspace.WaitFor(readyWait, func() bool {
		if ctx.Err() != nil || l.pid(machine, webName(machine)) == 0 {
			return true
		}
		return netspace.In(l.namespace(machine), func() error {
			c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", httpPort), time.Second)
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !ready || l.pid(machine, webName(machine)) == 0 {
		return fmt.Errorf("server of %s does not answer:\n%s", machine, l.logEnd(webName(machine)))
	}
	return nil
}

// crash ends a machine as a loss of power does: first nothing of it reaches
// the network any more, then its processes are gone.
func (l *Lab) crash(machine string) error {
	return errors.Join(l.setLink(machine, false), netspace.Kill(l.namespace(machine)))
}
