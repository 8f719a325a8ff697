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
	best, least := math.Inf(1), math.Inf(1) // imbalance; what beamer-3 saves
	for _, percent := range o.Thresholds {
		of := r[cell{o.usual(), percent}]
		best = min(best, mean(of, imbalanceOf))
		least = min(least, mean(of, broken(beamer1))-mean(of, broken(beamer3)))
	}
	all = append(all, sim.NewCheck("broken under beamer-1 less beamer-3, least of all thresholds", "%", least, 0, sim.Unbounded, ""))
	for _, p := range []string{policy.P2C, policy.LeastConn} {
		ratio := mean(r[cell{chosenBy(p), never}], imbalanceOf) / best
		all = append(all, sim.NewCheck(fmt.Sprintf("imbalance of cheetah with %s over the best with a threshold", p), "", ratio, 0, 1, ""))
	}
	return all
}

// isPaper: the pool and the load are the paper's.
func (o *Options) isPaper() bool {
	d := DefaultOptions()
	return o.Active == d.Active && o.Servers == d.Servers && o.Lifetimes == d.Lifetimes
}

// paperChecks are the two points that the text gives.
func (o *Options) paperChecks(r outcomes) (all []sim.Check) {
	if !o.isPaper() {
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
	c.Why = "in the steady state Poisson arrivals put no server 40 % above the mean, which is five deviations: what breaks is broken while few connections are there"
	return append(all, sim.NewCheck("broken under beamer-1 at a threshold of 40 %", "%", mean(of, broken(beamer1)), 0.05, 0.2, "0.1 %"), c)
}

func imbalanceOf(r outcome) float64 { return r.imbalance }

func mean(of []outcome, y func(outcome) float64) float64 { return over(of, y).Mean }
