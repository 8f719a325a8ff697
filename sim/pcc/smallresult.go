package pcc

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// smallResult is what all runs of small-cookies came to.
type smallResult struct {
	o              *SmallCookies
	c              sim.Common
	rates          []float64
	configurations []int
	runs           []smallRun  // by rate, seed
	even           [][]float64 // by seed, level
}

func (r *smallResult) result() *sim.Result {
	var connections, changes, through, named int64
	for _, run := range r.runs {
		connections, changes, through = connections+run.Connections, changes+run.Changes, through+run.Through
		for _, c := range run.counts {
			named += c.Named
		}
	}
	o := r.o
	return &sim.Result{
		Scenario: "small-cookies", Source: "Cheetah (NSDI'20), App. B", Machine: sim.ThisMachine(), Seeds: r.c.SeedList(),
		Parameters: []sim.Parameter{
			{Name: "servers", Value: strconv.Itoa(o.Servers)},
			{Name: "standby servers", Value: strconv.Itoa(o.Standby)},
			{Name: "active connections", Value: sim.Grouped(float64(o.Active), 0)},
			{Name: "lifetimes", Value: o.Lifetimes.Name},
			o.spanParameter(),
		},
		Samples: []sim.Sample{
			{What: "connections", Count: connections}, {What: "updates of the pool", Count: changes},
			{What: "live connections at updates", Count: through}, {What: "tags of a remembered configuration read", Count: named},
		},
		Figures: r.figures(),
		Checks:  r.checks(),
	}
}

// contender is the place of a variant with the i-th number of configurations
// at the rate-th rate.
func (r *smallResult) contender(v, i, rate int) int {
	n := 0
	for _, before := range variants[:v] {
		if before.all() || rate == len(r.rates)-1 {
			n += len(r.configurations)
		}
	}
	return n + i
}

// at are the runs of a rate.
func (r *smallResult) at(rate int) []smallRun {
	return r.runs[rate*r.c.Seeds : (rate+1)*r.c.Seeds]
}

// broken is the share of a contender at a rate, in percent.
func (r *smallResult) broken(rate, contender int) sim.Stat {
	return sim.StatOf(r.at(rate), func(run smallRun) float64 { return run.Share(contender) })
}

func (r *smallResult) curve(name string, v, rate int) sim.Series {
	s := sim.Series{Name: name, By: sim.Ours}
	for i, n := range r.configurations {
		s.Points = append(s.Points, sim.Point{X: float64(n), Y: r.broken(rate, r.contender(v, i, rate))})
	}
	return s
}

func (r *smallResult) cheetah() sim.Series {
	last := len(r.rates) - 1
	return sim.Curve(Cheetah, r.configurations, func(int) sim.Stat { return r.broken(last, r.contender(len(variants), 0, last)) })
}

func (r *smallResult) figures() []sim.Figure {
	x := sim.Axis{Label: "configurations remembered", Log: true}
	y := sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4}
	last := len(r.rates) - 1
	tags := sim.Figure{Name: "tags", Title: fmt.Sprintf("Tags of a configuration, at %g updates a minute", r.rates[last]), X: x, Y: y,
		Note: fmt.Sprintf("The tag has log2 of so many bits; with one configuration there is none. hash: key modulo servers. fresher: tags are replaced by the newest configuration's where that gives the same server. 2 hashes: the less loaded of two, a bit more. cheetah names the server: %d bits.", bits.Len(uint(r.o.Servers+r.o.Standby-1)))}
	for v := range variants {
		tags.Series = append(tags.Series, r.curve(variants[v].name, v, last))
	}
	tags.Series = append(tags.Series, r.cheetah())
	byRate := func(name, title string, v int) sim.Figure {
		f := sim.Figure{Name: name, Title: title, X: x, Y: y}
		for i, rate := range r.rates {
			f.Series = append(f.Series, r.curve(fmt.Sprintf("%g updates a minute", rate), v, i))
		}
		return f
	}
	balance := sim.Figure{Name: "balance", Title: "Imbalance of a pool that does not change", Bars: true, Y: sim.Axis{Label: "max/mean − 1", Unit: "%", Decimals: 1},
		Note: "2 hashes: the less loaded of the servers that two hashes name, one bit; 4 hashes: two bits; p2c: the less loaded of any two, all bits that name a server."}
	for l, level := range levels {
		balance.Series = append(balance.Series, sim.Series{Name: level.name, By: sim.Ours, Points: []sim.Point{{Label: "imbalance", Y: r.imbalance(l)}}})
	}
	return []sim.Figure{
		tags, byRate("hash-tags", "Tags over hash", tagOfHash), byRate("fresher-tags", "Fresher tags over anchor-table, a consistent hash", tagOfAnchor), balance,
	}
}

func (r *smallResult) imbalance(level int) sim.Stat {
	return sim.StatOf(r.even, func(levels []float64) float64 { return levels[level] })
}

func (r *smallResult) checks() []sim.Check {
	var all TagCounts
	var cheetah int64
	var present, broken [2]int64 // of tags over hash, of fresher ones over anchor-table
	for i, run := range r.runs {
		rate := i / r.c.Seeds
		cheetah += run.Schemes[len(run.Schemes)-1].Broken
		for _, c := range run.counts {
			all.Named, all.Lost = all.Named+c.Named, all.Lost+c.Lost
			all.Drained, all.Kept = all.Drained+c.Drained, all.Kept+c.Kept
		}
		for n := range r.configurations {
			for i, v := range []int{tagOfHash, tagOfAnchor} {
				at := r.contender(v, n, rate)
				present[i], broken[i] = present[i]+run.counts[at].Present, broken[i]+run.counts[at].Gone
			}
		}
	}
	of := func(i int) float64 { return 100 * ratio(float64(present[i]), float64(broken[i])) }
	says := sim.NewCheck("of the connections broken under fresher tags over anchor-table, those whose server was in one of the last n configurations", "%", of(1), 0, 0, "0")
	says.Why = fmt.Sprintf("the server alone is not enough, it must be the configuration's that the tag names: a server that is added takes keys of the hash from servers that stay, and their connections' tags age (without fresher tags, over hash, where all tags age: %.0f %%)", of(0))
	never := sim.NewCheck("broken under cheetah", "", float64(cheetah), 0, 0, "0")
	never.Why = cookiesWhy
	checks := []sim.Check{never}
	// Nothing is said of what there was none of.
	if all.Named > 0 {
		checks = append(checks, sim.NewCheck(fmt.Sprintf("of %s look-ups with a tag of one of the last n configurations, broken", sim.Grouped(float64(all.Named), 0)), "", float64(all.Lost), 0, 0, "0"))
	}
	if broken[1] > 0 {
		checks = append(checks, says)
	}
	if all.Drained > 0 {
		checks = append(checks, sim.NewCheck(fmt.Sprintf("of %s connections whose server was in none of the last n configurations, unbroken", sim.Grouped(float64(all.Drained), 0)), "", float64(all.Kept), 0, 0, "0: all are broken after n changes"))
	}
	last := len(r.rates) - 1
	for v, x := range variants {
		if c := r.curve(x.name, v, last).Points; len(c) > 1 && c[0].Y.Mean > 0 {
			name := fmt.Sprintf("broken with a tag for %d configurations over a tag for %d, %s", r.configurations[len(c)-1], r.configurations[0], x.name)
			checks = append(checks, sim.NewCheck(name, "", ratio(c[len(c)-1].Y.Mean, c[0].Y.Mean), 0, 1, ""))
		}
	}
	hash, bit, p2c := r.imbalance(0).Mean, r.imbalance(1).Mean, r.imbalance(len(levels)-1).Mean
	return append(checks,
		sim.NewCheck("imbalance of hash over "+twoHashes, "", ratio(hash, bit), 2, sim.Unbounded, ""),
		sim.NewCheck(fmt.Sprintf("imbalance of %s over %s", twoHashes, policy.P2C), "", ratio(bit, p2c), 0.5, 2, ""))
}

// ratio of two figures; 0 where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
