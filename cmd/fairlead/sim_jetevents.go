package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim/tracking"
)

func newSimJetEvents() *cobra.Command {
	var output, hash string
	o := tracking.DefaultJetEvents()
	c := &cobra.Command{
		Use:   "jet-events",
		Short: "JET's event simulation: connections broken by failing servers",
		Long: `JET's event simulation ("PCC Violations" of its slides): connections arrive and
end, servers fail and come back, and the tracking table has room for a share of
the active connections. A connection is broken when a packet of it goes to
another server than its first: looked for after every change and at its end.
Connections of the failed server itself do not count.

Which entry gives way when the table is full (--evict): "rank" asks the hash.
Entries that it says nothing new with go first, then those that only a standby
server would take, then those that a failed server would take when it is back;
entries that alone hold a connection never go, and none goes for an entry of
its own rank. "state" is the program's own flow table, which knows no ranks:
what fades or is new goes, a confirmed connection never. "lru" takes the one
used longest ago.`,
		Example: `  fairlead sim jet-events
  fairlead sim jet-events --scheme full-ct --seeds 7 -o json
  fairlead sim jet-events --kills 40 --ratio 0.25 --active 100000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Hash = chash.Kind(hash)
			if err := checkOutput(output); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			done := func() {}
			if terminal(os.Stderr) {
				o.Progress = func(run, runs int, share float64) {
					fmt.Fprintf(os.Stderr, "\r\033[Krun %d of %d: %.0f %%", run, runs, 100*share)
				}
				done = func() { fmt.Fprint(os.Stderr, "\r\033[K") }
			}
			r, err := tracking.JetEvents(cmd.Context(), o)
			done()
			if err != nil {
				return interrupted(err)
			}
			return printAs(cmd.OutOrStdout(), output, r, r.Print)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Scheme, "scheme", o.Scheme, "jet, full-ct or stateless")
	f.StringVar(&hash, "hash", string(o.Hash), "consistent hash: "+strings.Join(kindNames(chash.Kinds()), ", "))
	f.IntVar(&o.Servers, "servers", o.Servers, "servers that work at first")
	f.IntVar(&o.Horizon, "horizon", o.Horizon, "servers in the horizon")
	f.IntVar(&o.Seconds, "seconds", o.Seconds, "simulated seconds")
	f.IntVar(&o.Active, "active", o.Active, "connections that live at a time in the mean")
	f.Float64Var(&o.Kills, "kills", o.Kills, "servers that fail a minute, in the mean")
	f.Float64Var(&o.Ratio, "ratio", o.Ratio, "entries of the tracking table for each active connection")
	f.StringVar(&o.Evict, "evict", "", "what gives way when the table is full: rank (default of jet), state or lru (default of full-ct)")
	f.IntVar(&o.WarmUp, "warm-up", o.WarmUp, "seconds that a server is in the horizon before it works, if it had fallen out")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "how many seeds, from --seed on")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "first seed")
	outputFlag(c, &output)
	return c
}
