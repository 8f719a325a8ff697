// Package scenarios is the list of all scenarios of the simulator.
package scenarios

import (
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/datacentre"
	"github.com/fairlead/fairlead/sim/diversity"
	"github.com/fairlead/fairlead/sim/fattree"
	"github.com/fairlead/fairlead/sim/fct"
	"github.com/fairlead/fairlead/sim/imbalance"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/proof"
	"github.com/fairlead/fairlead/sim/spread"
	"github.com/fairlead/fairlead/sim/threshold"
	"github.com/fairlead/fairlead/sim/tracking"
)

// All are the scenarios in the order in which they are shown: those of the
// papers first, then what no paper has.
func All() []sim.Kind {
	return slices.Concat(
		[]sim.Kind{pcc.DIPUpdatesKind},
		imbalance.Kinds,
		threshold.Kinds,
		fct.Kinds,
		[]sim.Kind{pcc.ScalingKind},
		tracking.Kinds,
		[]sim.Kind{pcc.SmallCookiesKind, pcc.BalancerChurnKind},
		diversity.Kinds,
		spread.Kinds,
		fattree.Kinds,
		datacentre.Kinds,
		proof.Kinds,
	)
}
