// Package imbalance is scenario `imbalance`: how evenly hashes and policies
// spread open connections over servers (Cheetah, NSDI'20, figure 2b).
//
//	imbalance   the options and the run
//	choosers    hashes and policies that place new connections
//	replay      connections' starts and ends, measured in time
//	levels      the most and the least loaded server at any moment
//	result      the figures
//	checks      what the paper says of them
package imbalance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Kinds are the scenarios of this package.
var Kinds = []sim.Kind{{
	Name:  "imbalance",
	Short: "Connections of the most loaded server over the mean, by hash and by policy (Cheetah Fig 2b)",
	Long: `How many connections the most loaded server has, divided by the mean of all
servers, against the number of connections that live at a time (Cheetah,
NSDI'20, figure 2b). All hashes and policies place the same connections. The
pool does not change, and one balancer places all.

As in the paper, the imbalance of a run is its mean over the whole run, which
begins without any connection. Figures of the steady state, behind the longest
lifetime, stand beside it if the run lasts longer than that (--seconds).

With --flows, the connections of a flow file or of a capture of yours are
placed instead (fairlead sim workloads FILE shows what is in it).`,
	Example: `  fairlead sim imbalance
  fairlead sim imbalance --servers 100 --active 5000,50000 --lifetimes hadoop --seconds 1500
  fairlead sim imbalance --servers 8 --flows flows.csv --plot imbalance.svg`,
	Seeds: 3,
	New:   func() sim.Scenario { return New() },
}}

// Options of scenario imbalance.
type Options struct {
	// Servers in the pool, 2 to MaxServers.
	Servers int
	// Active is the numbers of connections that live at a time, in the mean.
	Active []int
	// Lifetimes of connections.
	Lifetimes workload.Flag
	// Seconds that a run takes.
	Seconds int
	// Points of a server on the ring.
	Points int
	// Report is the time between two tables of awrr.
	Report time.Duration
	// Flows has connections to place instead; nil: none.
	Flows workload.RecordFlag
	// Schemes are the hashes and policies.
	Schemes []string
}

// Limits of the options.
const (
	// MaxServers is bounded by the data plane's slots.
	MaxServers = chash.MaxSlots
	maxActive  = 10_000_000
	maxSeconds = 1_000_000
	maxPoints  = 10_000
	// maxConnections of a run: a quarter of an hour or so for all schemes.
	maxConnections = 1_000_000_000
)

// New has the paper's parameters. It does not give the seconds (figure
// run-length shows from which on what its text says fits), nor the points of
// the ring, which are fitted to its "2 × worse" (figure ring-points).
func New() *Options {
	return &Options{
		Servers:   468,
		Active:    []int{paperLeast, 40_000, paperDetail, 100_000, 140_000, paperMost},
		Lifetimes: workload.Flag{Distribution: workload.WebServer},
		Seconds:   500,
		Points:    50,
		Report:    100 * time.Millisecond,
		Schemes:   slices.Concat(hashNames, policyNames),
	}
}

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("servers", &o.Servers, "servers in the pool")
	f.Add("active", &o.Active, "`numbers` of connections that live at a time in the mean, comma-separated")
	f.Add("lifetimes", &o.Lifetimes, workload.LifetimesUsage)
	f.Add("seconds", &o.Seconds, "simulated seconds")
	f.Add("points", &o.Points, "points that a server has on the ring")
	f.Add("report", &o.Report, "time between two reports of the servers' loads to awrr")
	f.Add("flows", &o.Flows, workload.FlowsUsage)
	f.Add("schemes", &o.Schemes, "hashes and policies, `comma-separated`")
}

// Check says which option is wrong.
func (o *Options) Check() error {
	switch {
	case o.Servers < 2 || o.Servers > MaxServers:
		return fmt.Errorf("--servers %d: must be 2 to %d", o.Servers, MaxServers)
	case len(o.Active) == 0:
		return fmt.Errorf("--active: none is given; give one number of connections or more")
	case o.Seconds < 1 || o.Seconds > maxSeconds:
		return fmt.Errorf("--seconds %d: must be 1 to %d", o.Seconds, maxSeconds)
	case o.Points < 1 || o.Points > maxPoints:
		return fmt.Errorf("--points %d: must be 1 to %d", o.Points, maxPoints)
	case o.Report < time.Millisecond || o.Report > time.Hour:
		return fmt.Errorf("--report %s: must be 1ms to 1h", o.Report)
	case len(o.Schemes) == 0:
		return fmt.Errorf("--schemes: none is given; there are %s", strings.Join(slices.Concat(hashNames, policyNames), ", "))
	}
	for i, a := range o.Active {
		if a < 1 || a > maxActive {
			return fmt.Errorf("--active %d: must be 1 to %d", a, maxActive)
		}
		if slices.Contains(o.Active[:i], a) {
			return fmt.Errorf("--active %d: is given twice", a)
		}
		if n := float64(a) * float64(o.Seconds) * float64(sim.Second) / o.Lifetimes.Mean(); n > maxConnections && o.Flows.Record == nil {
			return fmt.Errorf("--seconds %d: with --active %d that is %.0f connections, %d are the limit; take less of either", o.Seconds, a, n, maxConnections)
		}
	}
	for i, s := range o.Schemes {
		if !slices.Contains(slices.Concat(hashNames, policyNames), s) {
			return fmt.Errorf("--schemes %q: must be one of %s", s, strings.Join(slices.Concat(hashNames, policyNames), ", "))
		}
		if slices.Contains(o.Schemes[:i], s) {
			return fmt.Errorf("--schemes %q: is given twice", s)
		}
	}
	return nil
}

// load is one of the numbers of connections that live at a time.
type load struct {
	active float64
	// extra: the experiments with the ring's points and with tables are made
	// here.
	extra bool
}

// loads in the order in which they are shown.
func (o *Options) loads() []load {
	if o.Flows.Record != nil {
		return []load{{active: o.Flows.Active()}}
	}
	active := slices.Sorted(slices.Values(o.Active))
	detail := active[len(active)/2]
	if slices.Contains(active, paperDetail) {
		detail = paperDetail
	}
	var loads []load
	for _, a := range active {
		loads = append(loads, load{float64(a), a == detail})
	}
	return loads
}

// Cheetah's loads: its range, and where it goes into detail (figure 2c and its
// text).
const (
	paperLeast  = 20_000
	paperDetail = 70_000
	paperMost   = 200_000
)

// arrivals are the same for all contenders.
func (o *Options) arrivals(l load, seed uint64) workload.Arrivals {
	if o.Flows.Record != nil {
		return o.Flows.Arrivals(seed)
	}
	return workload.NewPoisson(seed, l.active, o.Lifetimes.Distribution).FromEmpty()
}

// marks of a run: its eighths.
const marks = 8

// bounds are the moments up to which the sums are wanted: the marks, of which
// the last one is the end, and late, when the later part of the run begins that
// is shown by itself. That is the steady state, in which all of the first
// connections are gone; late is none if the run is no longer than the longest
// lifetime. Of own connections, of which nobody knows whether they are ever
// steady, it is the second half.
func (o *Options) bounds() (bounds []sim.Time, late, end int) {
	total := sim.Time(o.Seconds) * sim.Second
	settled := o.Lifetimes.Longest()
	if o.Flows.Record != nil {
		// Behind the last start the pool only runs empty.
		if total = o.Flows.LastStart() + 1; total < marks {
			total = max(marks, o.Flows.Span())
		}
		settled = total / 2
	}
	for i := 1; i <= marks; i++ {
		bounds = append(bounds, total*sim.Time(i)/marks)
	}
	if settled >= total {
		return bounds, none, len(bounds) - 1
	}
	late, _ = slices.BinarySearch(bounds, settled)
	bounds = slices.Insert(bounds, late, settled)
	return bounds, late, len(bounds) - 1
}

// none is no place in a list.
const none = -1

// Run places all connections by all schemes.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	seeds, loads := c.SeedList(), o.loads()
	bounds, late, end := o.bounds()
	runs := make([][]run, len(loads))
	for i := range runs {
		runs[i] = make([]run, len(seeds))
	}
	// The longest first, so that no core waits for one at the end.
	n := len(loads) * len(seeds)
	err := c.Each(ctx, n, func(ctx context.Context, i int) error {
		l, s := len(loads)-1-i/len(seeds), i%len(seeds)
		contenders, err := o.contenders(loads[l], seeds[s])
		if err != nil {
			return err
		}
		placed, err := replay(ctx, o.arrivals(loads[l], seeds[s]), contenders, bounds)
		runs[l][s] = newRun(contenders, placed, late, end)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := &found{o: o, seeds: seeds, loads: loads, runs: runs, bounds: bounds}
	if f.nobody() {
		return nil, sim.NothingToSee("imbalance", "no server ever had a connection that lasted", "give a longer --seconds or other --flows")
	}
	return f.result(), nil
}

// Names of the contenders of the experiments.
func ringName(points int) string       { return fmt.Sprintf("ring of %d points", points) }
func tableName(kind chash.Kind) string { return "table of " + string(kind) }

// tablePoints is how many points chash.Compile gives a server.
const tablePoints = 256

// ringPoints are the points that the experiment tries; tables the hashes that
// the data plane compiles into rows.
var (
	ringPoints = []int{10, 20, 50, 100, tablePoints, 1000}
	tables     = []chash.Kind{chash.KindRing, chash.KindTableHRW, chash.KindMaglev, chash.KindHRW, chash.KindDx}
)

// contenders of one run.
func (o *Options) contenders(l load, seed uint64) ([]*contender, error) {
	p := pool{o.Servers, seed, o.Points, sim.Time(o.Report)}
	var list []*contender
	var failed error
	add := func(name string, l *levels, c chooser, err error) {
		if failed == nil {
			failed = err
		}
		list = append(list, newContender(name, c, l))
	}
	for _, name := range o.Schemes {
		l := newLevels(o.Servers)
		c, err := p.newChooser(name, l)
		add(name, l, c, err)
	}
	if !l.extra {
		return list, failed
	}
	for _, points := range ringPoints {
		if slices.Contains(o.Schemes, string(chash.KindRing)) {
			p.points = points
			c, err := p.consistent(chash.KindRing)
			add(ringName(points), newLevels(o.Servers), c, err)
		}
	}
	for _, kind := range tables {
		if slices.Contains(o.Schemes, string(kind)) {
			c, err := p.compiled(kind)
			add(tableName(kind), newLevels(o.Servers), c, err)
		}
	}
	return list, failed
}
