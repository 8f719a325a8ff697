//go:build !ctl

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/paths"
)

func newPathServeCommand() *cobra.Command {
	var d daemonFlags
	var o paths.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the path service",
		Long: `Run the path service: it answers what the other commands ask, for programs that
speak its API (JSON over HTTP; examples/paths.py), and gives elephants the
least loaded paths ('fairlead path schedule'). It listens where the file says
(paths.api, unix:/run/fairlead/paths.sock if it is silent), and with --http in
the clear on the loopback, too.

Placed flows are kept on disk and outlast a restart. SIGHUP reads the file
again. Routers ('fairlead router') that can be reached are asked every few
seconds what their links carry.`,
		Example: `  fairlead path serve -f fabric.yaml
  fairlead path serve -f fabric.yaml --http 127.0.0.1:7475`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Measure != 0 && o.Measure < 100*time.Millisecond {
				return cli.Usagef("--measure %s: must be 100ms or more, or 0 for never", o.Measure)
			}
			if err := d.complete(cmd); err != nil {
				return err
			}
			o.Log = d.options.Log
			return paths.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "file", "f", defaultFabric, "the fabric's file")
	flags.StringVar(&o.HTTP, "http", "", "answer at this address of the loopback, too, such as 127.0.0.1:7475")
	flags.DurationVar(&o.Measure, "measure", 2*time.Second, "how often routers are asked what their links carry; 0: never")
	flags.StringVar(&o.StateDir, "state-dir", daemon.DefaultStateDir, "where placed flows are kept, in the folder path-service")
	d.addLog(cmd)
	return cmd
}
