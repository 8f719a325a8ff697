package threshold

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// checks hold what §2.1 says, as far as the thresholds were swept.
func (o *Options) checks(r outcomes) []sim.Check {
	all := o.paperChecks(r)
	cheetahBroken, lookups := 0.0, int64(0)
	for _, x := range o.cells() {
		for _, of := range r[x] {
			cheetahBroken += float64(of.Broken[cookie])
			lookups += of.Lookups
		}
	}
	all = append(all, sim.NewCheck(fmt.Sprintf("broken under cheetah in all runs, %s look-ups", sim.Grouped(float64(lookups), 0)), "", cheetahBroken, 0, 0, "0"))
	best := math.Inf(1)
	for _, percent := range o.Thresholds {
		best = min(best, mean(r[cell{o.usual(), percent}], imbalanceOf))
	}
	if best == 0 {
		return all // nothing is balanced better than evenly
	}
	for _, p := range []string{policy.P2C, policy.LeastConn} {
		ratio := mean(r[cell{chosenBy(p), never}], imbalanceOf) / best
		all = append(all, sim.NewCheck(fmt.Sprintf("imbalance of cheetah with %s over the best with a threshold", p), "", ratio, 0, 1, ""))
	}
	return all
}

// isPaper: the pool and the load are the paper's. Its points stand beside ours.
func (o *Options) isPaper() bool {
	d := DefaultOptions()
	return o.Active == d.Active && o.Servers == d.Servers && o.Lifetimes == d.Lifetimes
}

// isFitted: what the paper does not state is as it fits the paper's points.
func (o *Options) isFitted() bool {
	d := DefaultOptions()
	return o.Seconds == d.Seconds && o.Buckets == d.Buckets && o.Every == d.Every
}

// deviation of a server's connections under a uniform hash in the steady state,
// in percent of their mean: they are Poisson distributed.
func (o *Options) deviation() float64 {
	return 100 / math.Sqrt(float64(o.Active)/float64(o.Servers))
}

// paperChecks are the two points that the text gives.
func (o *Options) paperChecks(r outcomes) (all []sim.Check) {
	if !o.isPaper() || !o.isFitted() {
		return nil
	}
	hash := r[cell{o.usual(), never}]
	all = append(all, sim.NewCheck("imbalance without a threshold", "%", mean(hash, imbalanceOf), 22.5, 37.5, "30 %"))
	if of := r[cell{o.usual(), 10}]; of != nil {
		all = append(all,
			sim.NewCheck("broken under beamer-1 at a threshold of 10 %", "%", mean(of, broken(beamer1)), 1.5, 6, "3 %"),
			sim.NewCheck("broken under beamer-1 at a threshold of 10 % in a system that begins steady", "%", mean(r[cell{o.steady(), 10}], broken(beamer1)), 1.5, 6, "3 %"),
			sim.NewCheck("imbalance at a threshold of 10 % in a system that begins steady", "%", mean(r[cell{o.steady(), 10}], imbalanceOf), 5, 15, "at most 10 %"))
	}
	of, steady := r[cell{o.usual(), 40}], r[cell{o.steady(), 40}]
	if of == nil {
		return all
	}
	c := sim.NewCheck("broken under beamer-1 at a threshold of 40 % in a system that begins steady", "%", mean(steady, broken(beamer1)), 0, 0.01, "")
	c.Why = fmt.Sprintf("40 %% above the mean is %.1f deviations of the steady state, which hardly any server ever reaches: what breaks is broken while few connections are there", 40/o.deviation())
	return append(all, sim.NewCheck("broken under beamer-1 at a threshold of 40 %", "%", mean(of, broken(beamer1)), 0.05, 0.2, "0.1 %"), c)
}

func imbalanceOf(r outcome) float64 { return r.imbalance }

func mean(of []outcome, y func(outcome) float64) float64 { return sim.StatOf(of, y).Mean }
