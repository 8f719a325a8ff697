package datacentre

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// checks are what must be: what schemes promise, and Beamer's one figure about
// this size.
func (d *Datacentre) checks(outcomes []*outcome) ([]sim.Check, error) {
	mean := func(of func(o *outcome, k int) float64, scheme string) float64 {
		return sim.StatOf(outcomes, func(o *outcome) float64 { return of(o, schemeIndex(scheme)) }).Mean
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
	jet.Why = "what comes while a server drains is tracked at its balancer alone, and another one takes it for older: --drain 1m shows how much of it is that"
	cheetah := sim.NewCheck("broken under cheetah", "%", mean(share, pcc.Cheetah), 0, 0, "none")
	cheetah.Why = "follows from what is assumed: each server keeps its slot all day, and all balancers know all slots, as the controller has it; what runs is scheme/cheetah's encoding and decoding"
	checks := []sim.Check{
		cheetah,
		sim.NewCheck("broken, hash over table-hrw", "times", broken(pcc.Hash, "table-hrw"), 1.5, sim.Unbounded, ""),
		sim.NewCheck("broken, maglev over table-hrw", "times", broken("maglev", "table-hrw"), 1, sim.Unbounded, ""),
		sim.NewCheck("broken, beamer-1 over table-hrw", "times", broken(pcc.Beamer1, "table-hrw"), 0, 0.5, ""),
		sim.NewCheck("broken, full-ct-ecmp over anchor-table", "times", broken(pcc.FullCTECMP, pcc.AnchorTable), 0, 0.8, ""),
		sim.NewCheck("broken, jet over anchor-table", "times", broken(pcc.JET, pcc.AnchorTable), 0, 0.8, ""),
		jet,
		sim.NewCheck("flow table, jet over full-ct-ecmp", "times", ratio(mean(b.flows, pcc.JET), mean(b.flows, pcc.FullCTECMP)), 0, 0.5, "about |H|/(|W|+|H|)"),
	}
	if d.Servers != paperServers || d.Buckets != pcc.DefaultBuckets {
		return checks, nil
	}
	bytes, moved, err := d.growth()
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("beamer, %s servers added to %s, %s buckets: sent to a balancer",
		sim.Grouped(float64(d.Servers/2), 0), sim.Grouped(float64(d.Servers-d.Servers/2), 0), sim.Grouped(float64(d.Buckets*d.Servers), 0))
	c := sim.NewCheck(what, "MB", float64(bytes)/1e6, 3, 11, "10 MB (Beamer, NSDI'18)")
	c.Why = fmt.Sprintf("%s buckets move, and a move takes %.2f octets; the paper does not say how it encodes them", sim.Grouped(float64(moved), 0), float64(bytes)/float64(max(1, moved)))
	return append(checks, c), nil
}

// paperServers is the size of which Beamer's paper tells what growing costs.
const paperServers = 64_000
