// Package threshold repeats Cheetah's figure 2c (NSDI'20, §2.1): Beamer that
// takes servers out of its table when they have too many connections, which
// balances better and breaks connections, beside Cheetah, which does not.
//
//	timeline   the connections, in the order of time
//	servers    their connections, who is out, the imbalance
//	table      buckets, changed in place as controller/buckets changes them
//	bucketed   Beamer (or Cheetah's cookie) over that table
//	chosen     Cheetah with a policy that knows the loads
//	sweep      all runs; result  the figures and checks
package threshold

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Kinds is the scenario of this package.
var Kinds = []sim.Kind{{
	Name:  "threshold",
	Short: "Beamer that takes overloaded servers out of its table, against Cheetah (Cheetah Fig 2c)",
	Long: `A server whose connections exceed the mean by more than a threshold leaves the
bucket table, and returns when they are below the mean. Each change moves
buckets, and connections whose bucket moved more often than packets are passed
on break. Beside it are Cheetah over the same table, and Cheetah with policies
that know the load and need no threshold. How often servers are judged, which
buckets a server gets that returns, whether the system begins empty, and whether
broken connections still count, is not in the paper: all of it is swept. Buckets
remember their last three servers for the whole run.`,
	Example: `  fairlead sim threshold
  fairlead sim threshold --thresholds 10,40 --seconds 100 --plot threshold.svg`,
	Seeds: 3,
	New:   func() sim.Scenario { return DefaultOptions() },
}}

// Options of the scenario.
type Options struct {
	// Active connections in the mean, Servers, Buckets of each server.
	Active, Servers, Buckets int
	// Seconds of simulated time.
	Seconds int
	// Thresholds in percent above the mean.
	Thresholds []float64
	// Every is how often servers are judged; 0: at each start and end of a
	// connection. Intervals are those of one figure.
	Every     time.Duration
	Intervals []time.Duration
	Lifetimes workload.Flag
}

// DefaultOptions are the paper's pool, load and thresholds; seconds, buckets and
// how often servers are judged, which it does not state, fit its two points.
func DefaultOptions() *Options {
	return &Options{
		Active: 70_000, Servers: 468, Buckets: 100, Seconds: 500,
		Thresholds: []float64{5, 10, 15, 20, 25, 30, 40, 50},
		Every:      200 * time.Millisecond,
		Intervals:  []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, time.Second, 10 * time.Second},
		Lifetimes:  workload.Flag{Distribution: workload.WebServer},
	}
}

// sampleEvery is how often the imbalance is sampled, and the shortest interval.
const sampleEvery = 100 * sim.Millisecond

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("active", &o.Active, "connections that live at a time, in the mean")
	f.Add("servers", &o.Servers, "servers")
	f.Add("buckets", &o.Buckets, "buckets of each server")
	f.Add("seconds", &o.Seconds, "simulated time")
	f.Add("thresholds", &o.Thresholds, "how many percent above the mean a server leaves")
	f.Add("every", &o.Every, "how often servers are judged; 0s: at each start and end of a connection")
	f.Add("intervals", &o.Intervals, "how often, in the figure that compares that")
	f.Add("lifetimes", &o.Lifetimes, workload.LifetimesUsage)
}

// Limits of the options.
const (
	maxActive     = 1_000_000
	maxSeconds    = 10_000
	maxThreshold  = 1000
	maxServers    = 8192
	maxConnection = 50_000_000
)

// Check says which option is wrong.
func (o *Options) Check() error {
	switch {
	case o.Active < 1 || o.Active > maxActive:
		return fmt.Errorf("--active %d: must be 1 to %d connections", o.Active, maxActive)
	case o.Servers < 2 || o.Servers > maxServers:
		return fmt.Errorf("--servers %d: must be 2 to %d", o.Servers, maxServers)
	case o.Buckets < 1 || o.Buckets > buckets.Max/o.Servers:
		return fmt.Errorf("--buckets %d: must be 1 to %d with %d servers", o.Buckets, buckets.Max/o.Servers, o.Servers)
	case o.Seconds < 1 || o.Seconds > maxSeconds:
		return fmt.Errorf("--seconds %d: must be 1 to %d", o.Seconds, maxSeconds)
	case len(o.Thresholds) == 0:
		return errors.New("--thresholds: give at least one")
	}
	for i, t := range o.Thresholds {
		if slices.Contains(o.Thresholds[:i], t) {
			return fmt.Errorf("--thresholds %g: is given twice", t)
		}
		if !(t > 0 && t <= maxThreshold) {
			return fmt.Errorf("--thresholds %g: must be above 0 and at most %d percent", t, maxThreshold)
		}
	}
	if err := checkInterval("--every", o.Every); err != nil {
		return err
	}
	for _, i := range o.Intervals {
		if err := checkInterval("--intervals", i); err != nil {
			return err
		}
	}
	if n := float64(o.Active) * (1 + float64(o.Seconds)*float64(sim.Second)/o.Lifetimes.Mean()); n > maxConnection {
		return fmt.Errorf("--seconds %d: with --active %d that is %.0f connections, %d are the limit; take less of either", o.Seconds, o.Active, n, maxConnection)
	}
	return nil
}

func checkInterval(flag string, i time.Duration) error {
	if i < 0 || sim.Time(i)%sampleEvery != 0 {
		return fmt.Errorf("%s %v: must be a multiple of %v, or 0s for each start and end", flag, i, time.Duration(sampleEvery))
	}
	return nil
}
