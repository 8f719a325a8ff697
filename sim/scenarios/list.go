// Package scenarios is the list of all scenarios of the simulator.
package scenarios

import "github.com/fairlead/fairlead/sim"

// All are the scenarios in the order in which they are shown: those of the
// papers first, then what no paper has.
func All() []sim.Kind {
	return []sim.Kind{
		// dip-updates, imbalance, threshold, fct, scaling, jet, small-cookies,
		// balancer-churn, datacentre, proof: a line each, in this order.
	}
}
