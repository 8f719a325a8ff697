package fabrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/lab/netspace"
)

// readyWait bounds how long a router's daemon may take to answer.
const readyWait = 60 * time.Second

// Process is one that runs in a node until it is killed or the fabric is down.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Spawn starts a command in a node. Its output goes to NAME.log in Dir.
func (f *Fabric) Spawn(node, name string, args ...string) (*Process, error) {
	p := &Process{log: filepath.Join(f.Dir(), name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir = f.Dir()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Its own session, so that an interrupt of the terminal is ours alone.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := netspace.Start(f.Namespace(node), p.cmd); err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", args[0], node, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Ended tells whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process as the kernel's memory killer would, and waits.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop ends the process in good order, and kills it if it takes more than ten seconds.
func (p *Process) Stop() {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Log is what the process printed.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// startRouters starts `fairlead router` everywhere and waits until all answer.
func (f *Fabric) startRouters(ctx context.Context) error {
	processes := map[string]*Process{}
	for _, n := range f.topology.Nodes {
		if n.Host || n.Plain {
			continue
		}
		p, err := f.StartRouter(n.Name)
		if err != nil {
			return err
		}
		processes[n.Name] = p
	}
	for name, p := range processes {
		if err := f.AwaitRouter(ctx, name, p); err != nil {
			return err
		}
	}
	return nil
}

// StartRouter starts a router's daemon, which must not run, and does not wait.
func (f *Fabric) StartRouter(node string) (*Process, error) {
	name := f.topology.Nodes[f.Node(node)].Name
	return f.Spawn(node, name, f.Program, "router", "-f", f.Path(), "--name", name, "--state-dir", filepath.Join(f.Dir(), "state"), "--private-pins")
}

// Socket is where a node's daemon answers the API.
func (f *Fabric) Socket(node string) string {
	return filepath.Join(f.Dir(), f.topology.Nodes[f.Node(node)].Name+".sock")
}

// AwaitRouter waits until a router's daemon answers and forwards.
func (f *Fabric) AwaitRouter(ctx context.Context, node string, p *Process) error {
	c, err := api.Dial("unix:"+f.Socket(node), config.TLS{})
	if err != nil {
		return err
	}
	var last error
	netspace.WaitFor(readyWait, func() bool {
		status, err := c.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
		last = err
		if err == nil && len(status.Msg.NotReady) > 0 {
			last = errors.New(strings.Join(status.Msg.NotReady, "; "))
		}
		return last == nil || ctx.Err() != nil || p.Ended()
	})
	if last != nil {
		return fmt.Errorf("`fairlead router` of %s is not ready: %w; its log:\n%s", node, last, p.Log())
	}
	return nil
}

// forget removes what a `fairlead mptcp` that was killed has left of a namespace:
// another one may get its number.
func forget(namespace string) {
	if number, ok := netspace.Number(namespace); ok {
		_ = os.Remove(mptcp.RunFile(number))
	}
}

// unpin removes what a daemon pinned, which detaches its programs: no process of
// the namespace is left that holds them.
func unpin(name string) error { return os.RemoveAll(kernel.Dir(name)) }
