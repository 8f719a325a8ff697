//go:build ctl

package main

import (
	"maps"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
)

// What is fairleadctl's alone.
const (
	program = cli.Ctl
	inShort = "Look at and change a deployment of Fairlead"
	long    = `The commands of fairlead that take a file and talk to daemons, without the daemons: for
people's own machines and for scripts. It starts in a third of the time. Where messages say
'fairlead drain', 'fairleadctl drain' does the same.

Exit status: 0 done, 1 refused or failed (one line on stderr says why and
what to do), 2 wrong usage.`
)

// begin has the collector rest: commands are short.
func begin() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(400)
	}
}

// wholes are the commands that only fairlead has.
var wholes = slices.Concat([]string{"lb", "host", "switch", "controller", "router", "mptcp", "doctor", "trace", "path", "unload"},
	slices.Sorted(maps.Keys(cli.Experiments)))

// addMore has who types one of these told where it is.
func addMore(root *cobra.Command) {
	for _, name := range wholes {
		root.AddCommand(&cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("%s has no command %q: it is about the machine that it runs on; use `%s %s` there", cli.Ctl, name, cli.Product, name)
		}})
	}
}
