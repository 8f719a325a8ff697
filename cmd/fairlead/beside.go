//go:build !ctl

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
)

// besideRest is how long a controller that ended rests before it is started again.
const besideRest = time.Second

// beside runs a balancer's or switch's daemon, and beside it the file's controller:
// where the command line asks for that, or the file names none.
func (f *daemonFlags) beside(ctx context.Context, asked bool, run func(context.Context, member.Options) error) error {
	// What is wrong in the file, the daemon says.
	if cfg, err := config.Load(f.options.File); !asked && (err != nil || !cfg.Implied()) {
		return run(ctx, f.options)
	}
	args := []string{"-f", f.options.File, "--state-dir", f.options.StateDir, "--log", f.log, "--log-level", f.level.String()}
	return withController(ctx, f.options.Log, args, func(ctx context.Context) error { return run(ctx, f.options) })
}

// controllerFlag asks for it.
func controllerFlag(cmd *cobra.Command, controller *bool) {
	cmd.Flags().BoolVar(controller, "controller", false, "run the file's controller, too, which keeps the store (where the file names none, one runs anyway)")
}

// withController runs balance, and beside it `fairlead controller` with these
// arguments as a child: an etcd that finds its disk full ends its whole process,
// which must not be the balancer's. The balancer stops first, and says goodbye to
// the store.
func withController(ctx context.Context, log *slog.Logger, args []string, balance func(context.Context) error) error {
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		runtime.LockOSThread() // Pdeathsig is the death of the thread that started it
		for {
			err := keep(keeping, args)
			if keeping.Err() != nil {
				return
			}
			log.Error("the controller ended; the balancer goes on, and it is started again", "error", err)
			if !daemon.Sleep(keeping, besideRest) {
				return
			}
		}
	}()
	err := balance(ctx)
	stop()
	<-kept
	return err
}

// keep runs the controller once.
func keep(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"controller"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// The balancer alone tells the service manager.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") })
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	// In a group of its own, or a terminal's Ctrl-C would stop it first; killed with
	// the balancer, whatever kills that.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	err = cmd.Run()
	if err == nil {
		err = errors.New("nobody told it to")
	}
	return err
}
