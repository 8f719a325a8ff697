package fattree

import (
	"fmt"

	"github.com/fairlead/fairlead/sim"
)

// What the paper's text reports; its bars have no numbers.
const (
	reportedBelow = "total network utilization below 50 % (Raiciu et al., SIGCOMM 2011, whose figure 2 the paper repeats)"
	reportedOne   = "improvements are considerable"
	reportedTwo   = "much closer to the optimum"
	reportedFewer = "fewer subflows than with a probabilistic approach"
)

// checks hold what the paper's text says, and what issue 6 of the project sets,
// as far as their points were run.
func (o *Options) checks(all outcomes) []sim.Check {
	var checks []sim.Check
	for _, k := range append([]int{o.K}, o.Larger...) {
		checks = append(checks, o.checksOf(all, k)...)
	}
	return append(checks, o.overloadChecks(all)...)
}

func (o *Options) checksOf(all outcomes, k int) (checks []sim.Check) {
	at := func(subflows int, w way) point { return point{matrix{k, permuted}, subflows, w} }
	in := fmt.Sprintf(", k = %d", k)
	if one := at(1, hashed); all[one] != nil {
		c := sim.NewCheck("ecmp with 1 subflow of the optimum"+in, "%", all.over(one, throughput).Mean, 0, 50, reportedBelow)
		checks = append(checks, c, sim.NewCheck("cflb over ecmp, 1 subflow"+in, "×", all.ratio(at(1, way(o.Rounds)), one), 1.5, sim.Unbounded, reportedOne))
	}
	two := at(2, way(o.Rounds))
	if all[two] == nil {
		return checks
	}
	ours := all.over(two, throughput).Mean
	c := sim.NewCheck("cflb with 2 subflows of the optimum"+in, "%", ours, 95, 100, reportedTwo)
	c.Why = fmt.Sprintf("subflows that are placed once reach %.1f %%; figure rounds shows what placing them again gives", all.over(at(2, 0), throughput).Mean)
	hash := all.over(at(2, hashed), throughput).Mean
	checks = append(checks, c)
	checks = append(checks, lackChecks(in, hash, ours)...)
	if most := at(8, hashed); all[most] != nil {
		checks = append(checks, sim.NewCheck("cflb with 2 subflows over ecmp with 8"+in, "×", all.ratio(two, most), 1, sim.Unbounded, reportedFewer))
	}
	return checks
}

// leastLack is the least that a way lacks of the optimum or of fairness, in %,
// so that it can be told from none.
const leastLack = 0.01

// lackChecks hold what is left to the optimum under both ways, whose throughputs
// are in % of it. Where nothing is left to cflb, it counts as leastLack; where
// nothing is left to ecmp either, there is nothing to compare.
func lackChecks(in string, hash, ours float64) []sim.Check {
	if 100-hash < leastLack && 100-ours < leastLack {
		return nil
	}
	c := sim.NewCheck("what ecmp lacks of the optimum over what cflb lacks, 2 subflows"+in, "×", (100-hash)/max(100-ours, leastLack), 2, sim.Unbounded, reportedTwo)
	if 100-ours < leastLack {
		c.Why = fmt.Sprintf("cflb lacks less than %g %%, and is taken to lack that", leastLack)
	}
	return []sim.Check{c}
}

// overloadChecks: "offers more fairness amongst the different connections".
func (o *Options) overloadChecks(all outcomes) (checks []sim.Check) {
	for _, each := range o.Connections {
		for _, n := range []int{1, 2} {
			m := matrix{o.K, each}
			a, b := point{m, n, way(o.Rounds)}, point{m, n, hashed}
			if all[a] == nil {
				continue
			}
			unfair := func(p point) float64 { return 100 - all.over(p, fairness).Mean }
			if unfair(a) < leastLack && unfair(b) < leastLack {
				continue // both are fair
			}
			what := fmt.Sprintf("what Jain's index lacks under cflb over ecmp, %s, %s a host", subflowsText(n), connectionsText(each))
			checks = append(checks, sim.NewCheck(what, "×", unfair(a)/max(unfair(b), leastLack), 0, 0.9, "more fairness"))
		}
	}
	return checks
}

func connectionsText(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}
