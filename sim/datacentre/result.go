package datacentre

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// outcome is what one seed comes to.
type outcome struct {
	tally
	// least, mean and most connections that a balancer has at the end.
	least, mean, most float64
	// live connections at the end.
	live int64
	// joins of balancers.
	joins int64
	// forgotten: see there.
	forgotten float64
}

// Run plays all VIPs of all seeds, the largest first.
func (d *Datacentre) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	seeds := c.SeedList()
	sites := make([]*site, len(seeds))
	for i, seed := range seeds {
		var err error
		if sites[i], err = newSite(d, seed); err != nil {
			return nil, err
		}
	}
	// Tables come and go by the gigabyte, while what lives is small: collecting
	// less often saves a quarter of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	tallies := make([]tally, len(seeds)*d.VIPs)
	err := c.Each(ctx, len(tallies), func(ctx context.Context, i int) error {
		v, err := newVIP(sites[i/d.VIPs], i%d.VIPs)
		if err == nil {
			err = v.play(ctx)
			tallies[i] = v.tally
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	outcomes := make([]*outcome, len(seeds))
	for i, s := range sites {
		outcomes[i] = s.outcome(tallies[i*d.VIPs : (i+1)*d.VIPs])
	}
	return d.result(seeds, outcomes)
}

// outcome sums the VIPs up, in their order.
func (s *site) outcome(vips []tally) *outcome {
	o := &outcome{tally: newTally(s)}
	for i := range vips {
		o.add(&vips[i], float64(s.Active)*s.share[i])
	}
	o.least, o.mean, o.most = spread(o.atEnd, s.eras[len(s.eras)-1].live)
	for _, n := range o.atEnd {
		o.live += n
	}
	for _, e := range s.eras {
		o.joins += int64(len(e.came))
	}
	o.forgotten = s.forgotten(s.seed, s.perBalancer())
	return o
}

// perBalancer is the mean number of connections at a balancer.
func (d *Datacentre) perBalancer() float64 { return float64(d.Active) / float64(d.Balancers) }

func (d *Datacentre) result(seeds []uint64, outcomes []*outcome) (*sim.Result, error) {
	r := &sim.Result{Scenario: name, Machine: sim.ThisMachine(), Seeds: seeds}
	var through int64
	count := func(what string, of func(o *outcome) int64) {
		s := sim.Sample{What: what}
		for _, o := range outcomes {
			s.Count += of(o)
		}
		r.Samples = append(r.Samples, s)
	}
	count("connections", func(o *outcome) int64 { return o.opened })
	count("of them drawn: they lived when something changed for their VIP", func(o *outcome) int64 { return o.drawn })
	count("connections at the end", func(o *outcome) int64 { return o.live })
	count("changes of VIPs", func(o *outcome) int64 { return o.control.changes })
	count("live connections at changes", func(o *outcome) int64 { through += o.through; return o.through })
	count("look-ups", func(o *outcome) int64 { return o.lookups })
	count("balancers that joined", func(o *outcome) int64 { return o.joins })
	count("connections that died with their server (cheetah)", func(o *outcome) int64 { return o.died[len(o.died)-1] })
	if through == 0 {
		return nil, sim.NothingToSee(name, "no connection lived when servers changed", "give more --changes or a greater --active")
	}
	r.Parameters = d.parameters(outcomes[0])
	r.Figures = d.figures(outcomes)
	var err error
	r.Checks, err = d.checks(outcomes)
	return r, err
}

func (d *Datacentre) parameters(o *outcome) []sim.Parameter {
	text := func(x float64, decimals int) string { return sim.Grouped(x, decimals) }
	size := sizes(d.Servers, d.VIPs, d.Skew)
	return []sim.Parameter{
		{Name: "servers", Value: text(float64(d.Servers), 0)},
		{Name: "VIPs", Value: fmt.Sprintf("%s, of %s to %s servers: 2 each, the others by 1/rank^%v", text(float64(d.VIPs), 0), text(float64(size[0]), 0), text(float64(size[len(size)-1]), 0), d.Skew)},
		{Name: "balancers", Value: fmt.Sprintf("%d behind ECMP (%s)", d.Balancers, d.ECMP)},
		{Name: "active connections", Value: text(float64(d.Active), 0) + ", over VIPs as servers are"},
		{Name: "lifetimes", Value: fmt.Sprintf("%s, mean %.2f s", d.Lifetimes.Name, d.Lifetimes.Mean()/float64(sim.Second))},
		{Name: "time", Value: fmt.Sprintf("%v h", d.Hours)},
		{Name: "upgrades", Value: fmt.Sprintf("%s servers, in waves of %v %% of a VIP's", text(float64(d.Changes), 0), d.Wave)},
		{Name: "failures", Value: text(float64(d.Failures), 0) + " in the mean"},
		{Name: "downtimes", Value: "downtime, of servers and balancers"},
		{Name: "drain", Value: d.Drain.String()},
		{Name: "balancers that leave", Value: text(float64(d.BalancerChanges), 0)},
		{Name: "stale", Value: "each balancer hears of each change within " + d.Stale.String()},
		{Name: "horizon of jet", Value: fmt.Sprintf("%v %% of a VIP's servers, and those that are away", d.Horizon)},
		{Name: "buckets of beamer", Value: fmt.Sprintf("%d a server, chain time %v s", d.Buckets, float64(pcc.DefaultChainTime)/float64(sim.Second))},
		{Name: "connections of a balancer at the end", Value: fmt.Sprintf("%s to %s, mean %s (%.2f %% of all)", text(o.least, 0), text(o.most, 0), text(o.mean, 0), 100*o.mean/float64(max(1, o.live)))},
		{Name: "flow tables", Value: fmt.Sprintf("a set of seven entries for each entry that lives; a full one of full-ct then has forgotten %.4f %%", 100*o.forgotten)},
		{Name: "memory of this run", Value: fmt.Sprintf("%s MiB a core at most, by its structures: the largest VIP", text(float64(o.bytes)/(1<<20), 0))},
	}
}

// schemeIndex is where a scheme stands in schemeNames.
func schemeIndex(name string) int { return slices.Index(schemeNames, name) }

// figures are all of them. In bars a point's place is its scheme's.
func (d *Datacentre) figures(outcomes []*outcome) []sim.Figure {
	b := bars{d, outcomes}
	return []sim.Figure{
		{
			Name: "memory", Title: "Memory of a balancer", Bars: true,
			X: sim.Axis{Label: "scheme"}, Y: sim.Axis{Label: "bytes a balancer", Unit: "bytes", Log: true},
			Series: []sim.Series{b.series("all", b.all), b.series("tables", b.tables), b.series("flow table", b.flows)},
			Note: fmt.Sprintf("One version of all VIPs' tables (the data plane has room for two) and the flow table; all: with %s bytes that are the same for all, a server line of %d bytes and a count of %d for each server (a processor) and %d bytes a VIP. beamer-1 is the same layout with one word a bucket, not two, for its chain (10 octets; the authors' has 12). full-ct is one balancer with all connections.",
				sim.Grouped(d.common(), 0), lineBytes, countBytes, vipBytes),
		},
		{
			Name: "control", Title: "Control traffic of a day, to all balancers", Bars: true,
			X: sim.Axis{Label: "scheme"}, Y: sim.Axis{Label: "bytes a day, to all balancers", Unit: "bytes", Log: true},
			Series: []sim.Series{b.series("changes", b.changes), b.series("tables sent, not made", b.sent), b.series("whole assignments to those that join", b.joins),
				b.series("whole assignments at each change", b.whole), b.series("shared flow entries", b.shared)},
			Note: "Changes: the records of the servers that changed, and for beamer what its tables became by them, as the controller encodes it. Tables sent, not made: the changed rows besides, which balancers need not be sent since a table follows from the servers. The product of today hands out whole assignments. Shared: each tracked connection told to all other balancers.",
		},
		{
			Name: "control-change", Title: "Control traffic of a change, to one balancer", Bars: true,
			X: sim.Axis{Label: "scheme"}, Y: sim.Axis{Label: "bytes a change", Unit: "bytes", Log: true},
			Series: []sim.Series{b.series("changes", b.perChange(b.changes)), b.series("tables sent, not made", b.perChange(b.sent))},
		},
		{
			Name: "broken", Title: "Broken connections", Bars: true,
			X: sim.Axis{Label: "scheme"}, Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 6},
			Series: []sim.Series{b.series("broken", func(o *outcome, k int) float64 { return o.share(k) })},
			Note:   "Of all connections of the day. Those that died with a server that failed do not count under any scheme. full-ct is one balancer that never leaves, full-ct-ecmp and all others are balancers that do.",
		},
		d.overTheDay(outcomes),
	}
}

// bars makes series of one bar a scheme.
type bars struct {
	*Datacentre
	outcomes []*outcome
}

func (b bars) series(name string, of func(o *outcome, scheme int) float64) sim.Series {
	s := sim.Series{Name: name, By: sim.Ours}
	for k, scheme := range schemeNames {
		y := sim.StatOf(b.outcomes, func(o *outcome) float64 { return of(o, k) })
		s.Points = append(s.Points, sim.Point{X: float64(k), Label: scheme, Y: y})
	}
	return s
}

func (b bars) tables(o *outcome, k int) float64 { return float64(o.memory[k]) }

func (b bars) flows(o *outcome, k int) float64 {
	return float64(flowBytes(schemeNames[k], o.most, o.tracked/float64(b.Active), float64(b.Active)))
}

func (b bars) all(o *outcome, k int) float64 { return b.tables(o, k) + b.flows(o, k) + b.common() }

// common is what every balancer holds, whatever the scheme.
func (d *Datacentre) common() float64 {
	return float64(d.Servers*(lineBytes+countBytes) + d.VIPs*vipBytes)
}

// changes is what a day's changes must cost.
func (b bars) changes(o *outcome, k int) float64 {
	n := o.control.records
	if isBeamer(k) {
		n += o.control.rows[k]
	}
	return float64(n) * b.receivers(k)
}

// receivers are the balancers that must be told: full-ct has one.
func (b bars) receivers(k int) float64 {
	if tracks[schemeNames[k]].one {
		return 1
	}
	return float64(b.Balancers)
}

func (b bars) sent(o *outcome, k int) float64 {
	return float64(o.control.records+o.control.rows[k]) * b.receivers(k)
}

func (b bars) joins(o *outcome, k int) float64 {
	if tracks[schemeNames[k]].one {
		return 0 // it never leaves
	}
	return float64(o.full[k]) * float64(o.joins)
}

func (b bars) whole(o *outcome, k int) float64 {
	return float64(o.full[k]) * float64(o.control.changes+o.control.settles) * b.receivers(k)
}

func (b bars) shared(o *outcome, k int) float64 {
	share := 0.0
	switch t, ok := tracks[schemeNames[k]]; {
	case !ok || t.one:
	case t.all:
		share = 1
	default:
		share = o.tracked / float64(b.Active)
	}
	return float64(o.opened) * share * shareBytes * float64(b.Balancers-1)
}

func (b bars) perChange(day func(o *outcome, k int) float64) func(o *outcome, k int) float64 {
	return func(o *outcome, k int) float64 {
		return day(o, k) / b.receivers(k) / float64(max(1, o.control.changes))
	}
}

func isBeamer(k int) bool { return schemeNames[k] == pcc.Beamer1 || schemeNames[k] == pcc.Beamer3 }

// overTheDay is what broke in each hour, in percent of a day's connections over
// the number of hours.
func (d *Datacentre) overTheDay(outcomes []*outcome) sim.Figure {
	f := sim.Figure{
		Name: "hours", Title: "Broken connections over the day",
		X: sim.Axis{Label: "hour", Unit: "h"}, Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 6},
		Note: "Of the connections of an hour, in the mean.",
	}
	for k, scheme := range schemeNames {
		s := sim.Series{Name: scheme, By: sim.Ours}
		for h := range d.hours() {
			y := sim.StatOf(outcomes, func(o *outcome) float64 { return 100 * float64(o.broken[k][h]) / (float64(max(1, o.opened)) / d.Hours) })
			s.Points = append(s.Points, sim.Point{X: float64(h + 1), Label: strconv.Itoa(h + 1), Y: y})
		}
		f.Series = append(f.Series, s)
	}
	return f
}

// growth is what a balancer is sent of one table of buckets for all servers
// when half of them are added to the other half.
func (d *Datacentre) growth() (octets, moved int, err error) {
	servers := make([]buckets.Server, d.Servers)
	for i := range servers {
		servers[i] = buckets.Server{Number: uint16(i), Weight: 1}
	}
	o := buckets.Options{Now: 1, ChainTime: uint32(pcc.DefaultChainTime / sim.Second)}
	t := buckets.New(d.Buckets*d.Servers, servers[:d.Servers/2])
	moves := t.Assign(servers, o)
	next, _ := t.Apply(moves, o)
	delta, err := buckets.Delta(t, next)
	return len(delta), len(moves), err
}
