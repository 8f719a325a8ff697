// Package scenarios is the list of all scenarios of the simulator.
package scenarios

import (
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/datacentre"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/balance"
	"github.com/fairlead/fairlead/sim/proof"
	"github.com/fairlead/fairlead/sim/threshold"
	"github.com/fairlead/fairlead/sim/tracking"
)

// All are the scenarios in the order in which they are shown: those of the
// papers first, then what no paper has.
func All() []sim.Kind {
	return slices.Concat(
		// dip-updates, imbalance, threshold, fct, scaling, jet, small-cookies,
		// balancer-churn, datacentre, proof: a line each, in this order.
		[]sim.Kind{pcc.DIPUpdatesKind},
		balance.Kinds,
		threshold.Kinds,
		[]sim.Kind{pcc.ScalingKind},
		tracking.Kinds,
		[]sim.Kind{pcc.BalancerChurnKind},
		datacentre.Kinds,
		proof.Kinds,
	)
}
