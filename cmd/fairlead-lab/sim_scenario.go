package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/show"
)

// newSimScenario is the command of one scenario.
func newSimScenario(k sim.Kind) *cobra.Command {
	var output, plot string
	common := sim.Common{Seed: 1, Seeds: k.Seeds}
	scenario := k.New()
	var flags sim.Flags
	c := &cobra.Command{
		Use:     k.Name,
		Short:   k.Short,
		Long:    k.Long,
		Example: k.Example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cli.CheckOutput(output), cli.CheckPlot(plot), checkCommon(common)); err != nil {
				return err
			}
			if err := errors.Join(checkInstead(cmd.Flags(), flags), scenario.Check()); err != nil {
				return cli.Usage(err)
			}
			progress, done := simProgress(k.Name)
			common.Progress = progress
			r, err := scenario.Run(cmd.Context(), common)
			done()
			if err != nil {
				return interrupted(err)
			}
			table := func(w io.Writer) error { return show.Table(w, r) }
			draw := func(w io.Writer) error { return show.Plot(w, r) }
			return errors.Join(cli.PrintAs(cmd.OutOrStdout(), output, r, table), cli.WritePlot(plot, draw))
		},
	}
	scenario.Flags(&flags)
	addFlags(c.Flags(), flags)
	c.Flags().VisitAll(plainList)
	commonFlags(c.Flags(), &common)
	c.Flags().StringVar(&plot, "plot", "", "draw the figures to this file, an SVG")
	cli.OutputFlag(c, &output)
	return c
}

// commonFlags are those of all scenarios.
func commonFlags(f *pflag.FlagSet, c *sim.Common) {
	f.Uint64Var(&c.Seed, "seed", c.Seed, "first seed")
	f.IntVar(&c.Seeds, "seeds", c.Seeds, "how many seeds, from --seed on")
	f.IntVar(&c.Workers, "workers", 0, "cores to use, 0: all; the figures do not depend on it")
}

func checkCommon(c sim.Common) error {
	const most = 10_000
	if c.Seeds < 1 || c.Seeds > most {
		return cli.Usagef("--seeds %d: must be 1 to 10,000", c.Seeds)
	}
	if c.Workers < 0 || c.Workers > most {
		return cli.Usagef("--workers %d: must be 1 to 10,000, or 0 for all cores", c.Workers)
	}
	return nil
}

// simProgress shows the share done and the time on a terminal; done says there
// what it took.
func simProgress(what string) (progress func(share float64), done func()) {
	if !cli.Terminal(os.Stderr) {
		return nil, func() {}
	}
	var mu sync.Mutex
	start, share, over := time.Now(), 0.0, false
	show := func() {
		if over {
			return
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %.0f %% · %s", what, 100*share, time.Since(start).Truncate(time.Second))
	}
	// The clock runs on where a step takes long.
	ticker, end := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				mu.Lock()
				show()
				mu.Unlock()
			case <-end:
				return
			}
		}
	}()
	progress = func(s float64) {
		mu.Lock()
		defer mu.Unlock()
		if changed := int(100*s) != int(100*share); changed {
			share = s
			show()
		}
	}
	done = sync.OnceFunc(func() {
		ticker.Stop()
		close(end)
		mu.Lock()
		defer mu.Unlock()
		over = true
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %s, %s of memory at most\n", what, time.Since(start).Round(100*time.Millisecond), peakMemory())
	})
	return progress, done
}

// peakMemory of the process so far.
func peakMemory() string {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return "an unknown amount"
	}
	const unit = 1 << 10 // Linux counts KiB
	if u.Maxrss < unit*unit {
		return fmt.Sprintf("%d MiB", u.Maxrss/unit)
	}
	return fmt.Sprintf("%.1f GiB", float64(u.Maxrss)/(unit*unit))
}
