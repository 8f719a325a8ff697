package fattree

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/sim"
)

// Run simulates all points.
func (o *Packets) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	all, err := o.runAll(ctx, c)
	if err != nil {
		return nil, err
	}
	if all.counts.Lost == 0 {
		return nil, sim.NothingToSee(packetsKind.Name, "no queue was ever full", "take more --seconds or a smaller --buffer")
	}
	return &sim.Result{
		Scenario: packetsKind.Name, Source: source, Machine: sim.ThisMachine(), Seeds: c.SeedList(),
		Parameters: []sim.Parameter{
			{Name: "fat-tree", Value: describe(o.K)},
			{Name: "rounds of the scheduler", Value: fmt.Sprint(o.Rounds)},
			{Name: "simulated", Value: fmt.Sprintf("%g s", o.Seconds)},
			{Name: "links", Value: fmt.Sprintf("%d Mbit/s, propagation %v, queues of %d packets", o.Rate, o.Delay, o.Buffer)},
			{Name: "least retransmission timeout", Value: o.MinRTO.String()},
		},
		Samples: []sim.Sample{
			{What: "segments sent", Count: all.counts.Segments},
			{What: "of them again", Count: all.counts.Again},
			{What: "packets lost", Count: all.counts.Lost},
			{What: "timeouts", Count: all.counts.Timeouts},
		},
		Figures: []sim.Figure{
			{Name: "throughput", Title: fmt.Sprintf("Permutation matrix, k = %d, packet by packet: what all connections get", o.K), X: subflowsAxis, Y: optimumAxis,
				Series: append(o.series(all, throughput, false), o.series(all, throughput, true)...),
				Note:   "Fluids: max-min fair rates on the same paths."},
			{Name: "least", Title: "The same: the connection that gets the least", X: subflowsAxis, Y: leastAxis, Series: o.series(all, least, false)},
			{Name: "fairness", Title: "The same: how even connections are", X: subflowsAxis, Y: fairnessAxis, Series: o.series(all, fairness, false)},
		},
		Checks: o.checks(all),
	}, nil
}

func (o *Packets) series(all packetOutcomes, of func(outcome) float64, fluid bool) []sim.Series {
	var series []sim.Series
	for _, c := range []curve{{nameECMP, hashed}, {nameCFLB, way(o.Rounds)}} {
		if fluid {
			c.name += ", fluid"
		}
		series = append(series, sim.Curve(c.name, o.Subflows, func(n int) sim.Stat { return all.over(packetPoint{n, c.way, fluid}, of) }))
	}
	return series
}

func (all packetOutcomes) over(p packetPoint, of func(outcome) float64) sim.Stat {
	return statistic(all.of[p], of)
}

// checks are those of the fluids, packet by packet.
func (o *Packets) checks(all packetOutcomes) (checks []sim.Check) {
	at := func(subflows int, w way) (float64, bool) {
		p := packetPoint{subflows, w, false}
		return all.over(p, throughput).Mean, all.of[p] != nil
	}
	hashOne, ok := at(1, hashed)
	if ok {
		ours, _ := at(1, way(o.Rounds))
		checks = append(checks,
			sim.NewCheck("ecmp with 1 subflow of the optimum", "%", hashOne, 0, 50, reportedBelow),
			sim.NewCheck("cflb over ecmp, 1 subflow", "×", ours/hashOne, 1.5, sim.Unbounded, reportedOne))
	}
	two, ok := at(2, way(o.Rounds))
	if !ok {
		return checks
	}
	hashTwo, _ := at(2, hashed)
	c := sim.NewCheck("cflb with 2 subflows of the optimum", "%", two, 95, 100, reportedTwo)
	fluid := all.over(packetPoint{2, way(o.Rounds), true}, throughput).Mean
	c.Why = fmt.Sprintf("on the same paths fluids reach %.1f %%", fluid)
	checks = append(checks, c)
	checks = append(checks, lackChecks("", hashTwo, two)...)
	if most, ok := at(8, hashed); ok {
		checks = append(checks, sim.NewCheck("cflb with 2 subflows over ecmp with 8", "×", two/most, 1, sim.Unbounded, reportedFewer))
	}
	return checks
}
