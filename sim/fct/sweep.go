package fct

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// sweep is the runs behind one figure: all policies at each of its points.
type sweep struct {
	name     string
	policies []string
	points   []point
	// deaf are policies that hear nothing of what the points differ in: drawn
	// as they were at a point of another sweep.
	deaf   []string
	deafAt struct {
		*sweep
		point int
	}
	// outcomes by point, seed, run and policy.
	outcomes [][][][]outcome
}

// point is one place on a figure's x axis.
type point struct {
	x float64
	setting
	rate    float64 // a second and server
	service workload.Service
}

// Names of the sweeps, which are those of their figures.
const (
	byLoad    = "load"
	bySize    = "variance"
	byBimodal = "bimodal"
	byReports = "reports"
	byDelay   = "report-delay"
)

// What the figures of the reports go through.
var (
	reportRates  = []int{1, 2, 5, 10, 20, 50, 100} // a second
	reportDelays = []int{1, 3, 10, 30, 100, 300}   // ms
)

// sweeps are those that the options ask for.
func (o *Options) sweeps() (all []*sweep) {
	if slices.Contains(o.Figures, 6) {
		s := &sweep{name: byLoad, policies: o.Policies}
		for _, rate := range o.Rates {
			s.points = append(s.points, point{rate, o.alone(o.Servers), rate, workload.Gamma{Time: sim.Time(o.Work), Variation: o.Variation}})
		}
		all = append(all, s)
	}
	if slices.Contains(o.Figures, 7) {
		s := &sweep{name: bySize, policies: o.Policies}
		for _, n := range o.Sizes {
			s.points = append(s.points, point{float64(n), o.alone(n), o.Rate, workload.Gamma{Time: sim.Time(o.LoadWork), Variation: o.LoadVariation}})
		}
		all = append(all, s)
	}
	if slices.Contains(o.Figures, 8) {
		all = append(all, o.bimodal()...)
	}
	return all
}

// toCompare are what stands beside choosers that go by reports.
var toCompare = []string{nameHash, policy.P2C}

// bimodal is figure 8, and with its most servers what reports do.
func (o *Options) bimodal() []*sweep {
	at := func(x float64, n int) point {
		p := point{x, o.alone(n), o.BimodalRate, workload.Figure8}
		p.cores, p.slowed = o.Cores, o.Slowed
		return p
	}
	all := []*sweep{{name: byBimodal, policies: o.Policies}}
	for _, n := range o.Sizes {
		all[0].points = append(all[0].points, at(float64(n), n))
	}
	most := slices.Max(o.Sizes)
	var listeners, deaf []string
	for _, p := range o.Policies {
		if listens(p) {
			listeners = append(listeners, p)
		} else if slices.Contains(toCompare, p) {
			deaf = append(deaf, p)
		}
	}
	if len(listeners) == 0 {
		return all
	}
	rates, delays := &sweep{name: byReports, policies: listeners, deaf: deaf}, &sweep{name: byDelay, policies: listeners, deaf: deaf}
	for _, s := range []*sweep{rates, delays} {
		s.deafAt.sweep, s.deafAt.point = all[0], slices.Index(o.Sizes, most)
	}
	for _, r := range reportRates {
		p := at(float64(r), most)
		p.report = sim.Second / sim.Time(r)
		rates.points = append(rates.points, p)
	}
	for _, d := range reportDelays {
		p := at(float64(d), most)
		p.delay = sim.Time(d) * sim.Millisecond
		delays.points = append(delays.points, p)
	}
	return append(all, rates, delays)
}

// alone is so many servers that share no core.
func (o *Options) alone(n int) setting {
	end := sim.Time(o.Seconds) * sim.Second
	return setting{
		servers: n, cores: n, slowed: 1, end: end, window: sim.Time(o.Window),
		report: sim.Time(max(o.Report, time.Nanosecond)), delay: sim.Time(o.Delay), probeDelay: sim.Time(o.ProbeDelay),
	}
}

// carryOut carries out all sweeps: a job is one run of one point, in which all
// policies get the same requests.
func carryOut(ctx context.Context, c sim.Common, all []*sweep, o *Options) error {
	type job struct {
		s                *sweep
		point, seed, run int
	}
	var jobs []job
	for _, s := range all {
		s.outcomes = make([][][][]outcome, len(s.points))
		for p := range s.points {
			s.outcomes[p] = make([][][]outcome, c.Seeds)
			for seed := range c.Seeds {
				s.outcomes[p][seed] = make([][]outcome, o.Runs)
				for run := range o.Runs {
					jobs = append(jobs, job{s, p, seed, run})
				}
			}
		}
	}
	seeds := c.SeedList()
	return c.Each(ctx, len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		p := j.s.points[j.point]
		seed := sim.SplitMix(sim.SplitMix(seeds[j.seed]) + uint64(j.run))
		q := drawRequests(seed, p.rate*float64(p.servers), p.service, o.Clients, p.end)
		found := make([]outcome, len(j.s.policies))
		for k, name := range j.s.policies {
			var err error
			if found[k], err = play(ctx, name, seed, p.setting, q); err != nil {
				return err
			}
		}
		j.s.outcomes[j.point][j.seed][j.run] = found
		return nil
	})
}

// stat of a policy at a point over the seeds, each the mean over its runs.
func (s *sweep) stat(at, policy int, of func(outcome) float64) sim.Stat {
	var bySeed []float64
	for _, runs := range s.outcomes[at] {
		sum := 0.0
		for _, outcomes := range runs {
			sum += of(outcomes[policy])
		}
		bySeed = append(bySeed, sum/float64(len(runs)))
	}
	return sim.NewStat(bySeed)
}

// curves are our series.
func (s *sweep) curves(of func(outcome) float64) (series []sim.Series) {
	for _, name := range s.deaf {
		c, from := sim.Series{Name: name, By: sim.Ours}, s.deafAt
		y := from.stat(from.point, slices.Index(from.policies, name), of)
		for _, p := range s.points {
			c.Points = append(c.Points, sim.Point{X: p.x, Y: y})
		}
		series = append(series, c)
	}
	for k, name := range s.policies {
		c := sim.Series{Name: name, By: sim.Ours}
		for i, p := range s.points {
			c.Points = append(c.Points, sim.Point{X: p.x, Y: s.stat(i, k, of)})
		}
		series = append(series, c)
	}
	return series
}

func p99(o outcome) float64      { return float64(o.p99) / float64(sim.Millisecond) }
func variance(o outcome) float64 { return o.variance }
