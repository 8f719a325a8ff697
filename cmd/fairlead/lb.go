//go:build !ctl

package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/lb"
	"github.com/fairlead/fairlead/daemon/member"
)

// daemonFlags are what the daemons have in common.
type daemonFlags struct {
	options member.Options
	log     string
	level   slog.Level
}

func (f *daemonFlags) add(cmd *cobra.Command) {
	f.addCommon(cmd)
	f.addPinDir(cmd)
	f.addUnguarded(cmd)
}

// addUnguarded adds what `fairlead lab run attack --without-guards` starts
// daemons with. Nobody else is to find it.
func (f *daemonFlags) addUnguarded(cmd *cobra.Command) {
	const name = "without-guards"
	cmd.Flags().BoolVar(&f.options.Unguarded, name, false, "laboratory only: leave out what holds attackers off")
	_ = cmd.Flags().MarkHidden(name)
}

func (f *daemonFlags) addPinDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.options.PinDir, "pin-dir", "", "folder of bpffs for programs and maps (default /sys/fs/bpf/fairlead/NAME)")
	cmd.Flags().BoolVar(&f.options.PrivatePins, "private-pins", false, "start though the bpffs is of this mount namespace alone (ip netns exec, a container), so that programs end with it")
}

// addCommon adds what a daemon without programs has, too.
func (f *daemonFlags) addCommon(cmd *cobra.Command) {
	fileFlag(cmd, &f.options.File)
	f.addOwn(cmd)
}

// addOwn adds what a daemon with a file of another kind has, too.
func (f *daemonFlags) addOwn(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.options.Name, "name", "", "which entry of the file this machine is (default: the only one, else the host name)")
	flags.StringVar(&f.options.StateDir, "state-dir", daemon.DefaultStateDir, "where the daemon keeps what outlives it, in a folder of its name")
	f.addLog(cmd)
}

// addLog adds how a daemon logs.
func (f *daemonFlags) addLog(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.log, "log", "text", "form of the log on stderr: text or json")
	flags.TextVar(&f.level, "log-level", slog.LevelInfo, "least level that is logged: debug, info, warn or error")
}

// complete makes the logger.
func (f *daemonFlags) complete(cmd *cobra.Command) error {
	settings := &slog.HandlerOptions{Level: f.level}
	switch f.log {
	case "text":
		f.options.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), settings))
	case "json":
		f.options.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), settings))
	default:
		return cli.Usagef("--log %q: must be text or json", f.log)
	}
	if f.options.Unguarded {
		f.options.Log.Warn("guards are off (--without-guards): anybody who can send packets can break connections; for the laboratory only")
	}
	return nil
}

// run is the command of a daemon that goes by these flags alone.
func (f *daemonFlags) run(daemon func(context.Context, member.Options) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := f.complete(cmd); err != nil {
			return err
		}
		return daemon(cmd.Context(), f.options)
	}
}

func newLBCommand() *cobra.Command {
	var f daemonFlags
	var controller bool
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "Run the load balancer's daemon on this machine",
		Long: `Run the load balancer's daemon: load the XDP program on the interfaces that the
file gives this balancer, or take over what an earlier daemon left running,
and keep its tables right. Needs root.

Packets do not pass through the daemon. Stopping or killing it stops no
packet: programs and maps stay pinned and go on forwarding until
'fairlead unload' takes them out. SIGHUP reads the file again.

With --controller the file's only controller runs beside it, as a child: one
machine, one unit. So it does where this is the file's only balancer, and the
file names no controller.`,
		Example: "  fairlead lb -f fairlead.yaml --name lb1\n  fairlead lb --controller",
		Args:    cobra.NoArgs,
		RunE:    f.run(func(ctx context.Context, _ member.Options) error { return f.beside(ctx, controller, lb.Run) }),
	}
	f.add(cmd)
	controllerFlag(cmd, &controller)
	return cmd
}
