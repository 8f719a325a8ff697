package pcc

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Base is the options that scenarios of this package share: the pool, the
// load, the schemes and their sizes.
type Base struct {
	// Servers that work at the start, and Standby ones besides.
	Servers, Standby int
	// Active is the mean number of live connections.
	Active int
	// Seconds in which connections begin that are counted. As long as the
	// longest of them may live is simulated before, so that the pool has been
	// changing for as long, and behind, so that all of them end.
	Seconds   int
	Lifetimes workload.Flag
	// Flows has the connections instead, and how long they last; nil: none.
	Flows workload.RecordFlag
	// Even: the same time between any two updates of the pool.
	Even    bool
	Schemes []string
	// Buckets, ChainSeconds and Entries are Setup's.
	Buckets, ChainSeconds int
	Entries               float64
}

// NewBase is Cheetah's pool and load (§2.1) with as many standby servers as
// JET's horizon, for the schemes.
func NewBase(schemes ...string) Base {
	return Base{
		Servers: 468, Standby: 47, Active: 70_000, Seconds: 600,
		Lifetimes: workload.Flag{Distribution: workload.WebServer}, Schemes: schemes,
		Buckets: DefaultBuckets, ChainSeconds: int(DefaultChainTime / sim.Second), Entries: DefaultEntries,
	}
}

// Flags adds the options.
func (b *Base) Flags(f *sim.Flags) {
	f.Add("servers", &b.Servers, "servers that work at the start")
	f.Add("standby", &b.Standby, "servers on standby at the start; JET's horizon")
	f.Add("active", &b.Active, "live connections in the mean")
	f.Add("seconds", &b.Seconds, secondsUsage)
	f.Add("lifetimes", &b.Lifetimes, workload.LifetimesUsage)
	f.Add("flows", &b.Flows, workload.FlowsUsage).Instead = []string{"active", "seconds", "lifetimes"}
	f.Add("even", &b.Even, "the same time between any two updates of the pool, instead of a Poisson process")
	f.Add("schemes", &b.Schemes, "schemes to compare")
	f.Add("buckets", &b.Buckets, "buckets of beamer and faild for each server")
	f.Add("chain-time", &b.ChainSeconds, "seconds for which beamer's servers pass packets on after a bucket's move")
	f.Add("entries", &b.Entries, "entries of a flow table (jet, full-ct) for each connection that it is to hold")
}

// Limits of the options.
const (
	maxActive  = 10_000_000
	maxSeconds = 86_400
	maxEntries = 1000
	// Connections that begin in a second, which all live at once in a run's
	// step.
	maxArrivals = 10_000_000
)

// Check says which option is wrong.
func (b *Base) Check() error {
	switch {
	case b.Servers < 2:
		return fmt.Errorf("--servers %d: at least 2, so that a connection can be at the wrong one", b.Servers)
	case b.Standby < 1:
		return fmt.Errorf("--standby %d: at least 1, so that a server can be added", b.Standby)
	case b.Servers > MaxServers-b.Standby:
		return fmt.Errorf("--servers %d and --standby %d: a cookie names %d servers at most; take fewer", b.Servers, b.Standby, MaxServers)
	case b.Active < 1 || b.Active > maxActive:
		return fmt.Errorf("--active %d: must be 1 to %d", b.Active, maxActive)
	case b.Seconds < 1 || b.Seconds > maxSeconds:
		return fmt.Errorf("--seconds %d: must be 1 to %d", b.Seconds, maxSeconds)
	case b.Buckets < 1 || b.Buckets > buckets.Max/b.Servers:
		return fmt.Errorf("--buckets %d for each of %d servers: must be 1 or more, and %d together at most", b.Buckets, b.Servers, buckets.Max)
	case b.ChainSeconds < 0 || b.ChainSeconds > maxSeconds:
		return fmt.Errorf("--chain-time %d: must be 0 to %d", b.ChainSeconds, maxSeconds)
	case !(b.Entries > 0 && b.Entries <= maxEntries):
		return fmt.Errorf("--entries %v: must be above 0, %d at most", b.Entries, maxEntries)
	case len(b.Schemes) == 0:
		return fmt.Errorf("--schemes: name one at least, of %v", Names())
	}
	if err := b.checkLoad(); err != nil {
		return err
	}
	for i, name := range b.Schemes {
		if slices.Contains(b.Schemes[:i], name) {
			return fmt.Errorf("--schemes: %s is there twice; name each once", name)
		}
		if _, err := New(name, b.setup(0)); err != nil {
			return fmt.Errorf("--schemes: %w", err)
		}
	}
	return nil
}

// checkLoad refuses options that a record leaves nothing to say for, and more
// connections than a run can hold.
func (b *Base) checkLoad() error {
	if b.Flows.Record == nil {
		if a := float64(b.Active) / b.Lifetimes.Mean() * float64(sim.Second); a > maxArrivals {
			return fmt.Errorf("--active %d: with lifetimes %s that is %.3g connections a second, at most %d can begin in one; take fewer, or longer --lifetimes",
				b.Active, b.Lifetimes.Name, a, maxArrivals)
		}
	}
	return nil
}

// checkRates says what is wrong with --rates of updates.
func checkRates(rates []float64) error {
	if len(rates) == 0 {
		return fmt.Errorf("--rates: name one at least, such as 80")
	}
	for _, rate := range rates {
		if err := (workload.Updates{PerMinute: rate}).Check(); err != nil || rate == 0 {
			return fmt.Errorf("--rates %v: each must be above 0, %d at most", rate, workload.MaxPerMinute)
		}
	}
	return twice("rates", rates)
}

// twice refuses a list that has a value twice.
func twice[T comparable](flag string, list []T) error {
	for i, x := range list {
		if slices.Contains(list[:i], x) {
			return fmt.Errorf("--%s: %v is there twice; name each once", flag, x)
		}
	}
	return nil
}

func (b *Base) setup(seed uint64) Setup {
	return Setup{
		Working: b.Servers, Standby: b.Standby, Seed: seed, Buckets: b.Buckets,
		ChainTime: sim.Time(b.ChainSeconds) * sim.Second, Entries: b.Entries,
	}
}

// isPaper: pool, load and tables are the defaults, so that the paper's figures
// can be compared.
func (b *Base) isPaper() bool {
	d := NewBase()
	return b.Servers == d.Servers && b.Standby == d.Standby && b.Active == d.Active && b.Seconds == d.Seconds && !b.Even &&
		b.Lifetimes.Distribution == d.Lifetimes.Distribution && b.Flows.Record == nil &&
		b.Buckets == d.Buckets && b.ChainSeconds == d.ChainSeconds && b.Entries == d.Entries
}

// end of a run.
func (b *Base) end() sim.Time {
	if b.Flows.Record != nil {
		return b.Flows.Span()
	}
	return sim.Time(b.Seconds)*sim.Second + 2*b.edge()
}

// edge is how long a run is simulated before the connections that it counts,
// and behind them.
func (b *Base) edge() sim.Time {
	if b.Flows.Record != nil {
		return 0 // a record begins and ends as it does
	}
	return b.Lifetimes.Longest()
}

func (b *Base) arrivals(seed uint64) workload.Arrivals {
	if b.Flows.Record != nil {
		return b.Flows.Arrivals(seed)
	}
	return workload.NewPoisson(seed, float64(b.Active), b.Lifetimes.Distribution)
}

// room is the most connections of a record that live at a time, by which
// tables are sized; 0 of drawn ones, which are about as many all the time.
// Each counts for a second at least, a run's step.
func (b *Base) room() float64 {
	if b.Flows.Record == nil {
		return 0
	}
	ends := make([]sim.Time, len(b.Flows.Flows))
	for i, f := range b.Flows.Flows {
		ends[i] = f.Start + max(f.Duration, sim.Second)
	}
	slices.Sort(ends)
	most, over := 0, 0
	for i, f := range b.Flows.Flows { // in the order of their start
		for ends[over] < f.Start {
			over++
		}
		most = max(most, i+1-over)
	}
	return float64(most)
}

// run is a run under a seed at a rate of updates, without contenders.
// Which connections come does not depend on the rate.
func (b *Base) run(seed uint64, updates workload.Updates) *Run {
	updates.Even = updates.Even || b.Even
	drawn := updates.Draw(sim.Stream(seed, "updates"), b.end())
	r := &Run{
		Room:     b.room(),
		Arrivals: b.arrivals(seed),
		Working:  b.Servers, Standby: b.Standby,
		Changes: Changes(seed, b.Servers, b.Standby, drawn),
		End:     b.end(),
	}
	if edge := b.edge(); edge > 0 {
		r.From, r.Until = edge, r.End-edge
	}
	return r
}

const secondsUsage = "seconds in which the counted connections begin; the longest lifetime is simulated before and behind"

// spanParameter says what time is simulated.
func (b *Base) spanParameter() sim.Parameter {
	return sim.Parameter{Name: "time", Value: fmt.Sprintf("%d s, and %.1f s before and behind", b.Seconds, float64(b.edge())/float64(sim.Second))}
}

// parameters are the shared options as text.
func (b *Base) parameters() []sim.Parameter {
	load := []sim.Parameter{
		{Name: "active connections", Value: sim.Grouped(float64(b.Active), 0)},
		{Name: "lifetimes", Value: fmt.Sprintf("%s, mean %.1f s", b.Lifetimes.Name, b.Lifetimes.Mean()/float64(sim.Second))},
		b.spanParameter(),
	}
	if b.Flows.Record != nil {
		load = []sim.Parameter{
			{Name: "connections of", Value: b.Flows.Name},
			{Name: "time", Value: fmt.Sprintf("%.1f s", float64(b.end())/float64(sim.Second))},
		}
	}
	return slices.Concat([]sim.Parameter{
		{Name: "servers", Value: strconv.Itoa(b.Servers)},
		{Name: "standby servers", Value: strconv.Itoa(b.Standby)},
	}, load, []sim.Parameter{
		{Name: "time between updates", Value: map[bool]string{false: "exponential", true: "even"}[b.Even]},
		{Name: "buckets a server", Value: strconv.Itoa(b.Buckets)},
		{Name: "chain time", Value: fmt.Sprintf("%d s", b.ChainSeconds)},
		{Name: "flow table's entries a connection", Value: strconv.FormatFloat(b.Entries, 'g', -1, 64)},
	})
}

// samples are what runs counted together.
func samples(tallies []*Tally) []sim.Sample {
	var connections, changes, lookups int64
	for _, t := range tallies {
		connections += t.Connections
		changes += t.Changes
		for _, s := range t.Schemes {
			lookups += s.Lookups
		}
	}
	return []sim.Sample{
		{What: "connections", Count: connections},
		{What: "updates of the pool", Count: changes},
		{What: "look-ups of live connections", Count: lookups},
	}
}

// nobodyThrough: no connection of any run lived through a change.
func nobodyThrough(tallies []*Tally) bool {
	return !slices.ContainsFunc(tallies, func(t *Tally) bool { return t.Through > 0 })
}
