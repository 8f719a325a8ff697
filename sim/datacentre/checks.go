package datacentre

import (
	"math"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// checks are what must be: what schemes promise, and Beamer's one figure about
// this size.
func (d *Datacentre) checks(outcomes []*outcome) ([]sim.Check, error) {
	mean := func(of func(o *outcome, k int) float64, scheme string) float64 {
		sum := 0.0
		for _, o := range outcomes {
			sum += of(o, schemeIndex(scheme)) / float64(len(outcomes))
		}
		return sum
	}
	share := func(o *outcome, k int) float64 { return o.share(k) }
	ratio := func(a, b float64) float64 {
		if a == 0 && b == 0 {
			return 1
		}
		return min(a/b, math.MaxFloat64)
	}
	broken := func(a, b string) float64 { return ratio(mean(share, a), mean(share, b)) }
	b := bars{d, outcomes}
	jet := sim.NewCheck("broken, jet over full-ct-ecmp", "times", broken(pcc.JET, pcc.FullCTECMP), 0, 3, "")
	jet.Why = "what comes while a server drains is tracked at its balancer alone, and another one takes it for older; at a hundredth of the size --drain 1m instead of 3m brings it from 1.5 to 0.9"
	checks := []sim.Check{
		sim.NewCheck("broken under cheetah", "%", mean(share, pcc.Cheetah), 0, 0, "none"),
		sim.NewCheck("broken under full-ct, one balancer", "%", mean(share, pcc.FullCT), 0, 0, ""),
		sim.NewCheck("broken, hash over table-hrw", "times", broken(pcc.Hash, "table-hrw"), 1.5, sim.Unbounded, ""),
		sim.NewCheck("broken, maglev over table-hrw", "times", broken("maglev", "table-hrw"), 1, sim.Unbounded, ""),
		sim.NewCheck("broken, beamer-1 over table-hrw", "times", broken(pcc.Beamer1, "table-hrw"), 0, 0.5, ""),
		sim.NewCheck("broken, beamer-3 over beamer-1", "times", broken(pcc.Beamer3, pcc.Beamer1), 0, 1, ""),
		sim.NewCheck("broken, full-ct-ecmp over anchor", "times", broken(pcc.FullCTECMP, "anchor"), 0, 0.8, ""),
		sim.NewCheck("broken, jet over anchor", "times", broken(pcc.JET, "anchor"), 0, 0.8, ""),
		jet,
		sim.NewCheck("flow table, jet over full-ct-ecmp", "times", ratio(mean(b.flows, pcc.JET), mean(b.flows, pcc.FullCTECMP)), 0, 0.5, "about |H|/(|W|+|H|)"),
		sim.NewCheck("memory, beamer-3 over cheetah", "times", ratio(mean(b.all, pcc.Beamer3), mean(b.all, pcc.Cheetah)), 1, sim.Unbounded, ""),
	}
	if d.Servers != 64_000 || d.Buckets*d.Servers > buckets.Max {
		return checks, nil
	}
	bytes, err := d.growth()
	if err != nil {
		return nil, err
	}
	c := sim.NewCheck("beamer, 32,000 servers added to 32,000, 6.4 M buckets: sent to a balancer", "MB", float64(bytes)/1e6, 3, 11, "10 MB (Beamer, NSDI'18)")
	c.Why = "3.2 M buckets move: two octets each, and a bit for every bucket; the paper does not say how it encodes them"
	return append(checks, c), nil
}
