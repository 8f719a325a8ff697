// Package scenarios is the list of all scenarios of the simulator.
package scenarios

import (
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/datacentre"
	"github.com/fairlead/fairlead/sim/fct"
	"github.com/fairlead/fairlead/sim/imbalance"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/proof"
	"github.com/fairlead/fairlead/sim/threshold"
	"github.com/fairlead/fairlead/sim/tracking"
)

// order in which scenarios are shown: those of the papers first, then what no
// paper has.
var order = []string{
	"dip-updates", "imbalance", "threshold", "fct", "scaling", "jet", "small-cookies",
	"balancer-churn", "datacentre", "proof",
}

// All are the scenarios in their order.
func All() []sim.Kind {
	kinds := slices.Concat(
		[]sim.Kind{pcc.DIPUpdatesKind},
		imbalance.Kinds,
		fct.Kinds,
		threshold.Kinds,
		[]sim.Kind{pcc.ScalingKind},
		tracking.Kinds,
		[]sim.Kind{pcc.SmallCookiesKind},
		[]sim.Kind{pcc.BalancerChurnKind},
		datacentre.Kinds,
		proof.Kinds,
	)
	slices.SortStableFunc(kinds, func(a, b sim.Kind) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	return kinds
}
