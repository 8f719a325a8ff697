package diversity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

// What §2.2 says.
const (
	paperPairs     = 80 // % of pairs have two paths or more: more than that
	paperSeveral   = 70 // % of destinations are reached over two next hops or more, on average
	paperMostPaths = 64 // of a pair in BCube
	paperMostHops  = 10 // of any router
)

func (f *found) checks() (checks []sim.Check) {
	for i, m := range f.models {
		if slices.Contains(paperNames, m.name) {
			checks = append(checks, sim.NewCheck("pairs with two paths or more, "+m.name, "%", f.over(i, pairsShare).Mean, paperPairs, 100, "more than 80 %"))
		}
	}
	if f.isPaper() {
		c := sim.NewCheck("destinations that a router reaches over two next hops or more, mean of the three", "%", f.paperMean(severalShare).Mean, paperSeveral-10, paperSeveral+10, "70 % on average")
		c.Why = "it depends on the models' sizes, which the paper does not give, and on what counts as a router: here all switches, and the servers of BCube"
		checks = append(checks, c, f.hopsCheck())
	}
	if i := slices.Index(f.o.Models, nameBCube); i >= 0 {
		checks = append(checks, f.bcubeCheck(i))
	}
	return checks
}

func (f *found) hopsCheck() sim.Check {
	most := 0.0
	for _, n := range paperNames {
		most = max(most, f.over(slices.Index(f.o.Models, n), mostHops).Max)
	}
	c := sim.NewCheck("most next hops of any router of the three", "", most, paperMostHops, paperMostHops, "10")
	var fit []string
	for i, m := range f.variants {
		if f.variant[i].mostHops() == paperMostHops {
			fit = append(fit, m.String())
		}
	}
	c.Why = fmt.Sprintf("of all sizes in figure sizes-most, %s has so many; VL2's size is chosen by it", strings.Join(fit, " and "))
	return c
}

func (f *found) bcubeCheck(model int) sim.Check {
	c := sim.NewCheck("most paths of any pair in BCube", "", f.over(model, mostPaths).Mean, paperMostPaths, paperMostPaths, "64")
	var numbers []string
	for i, m := range f.variants {
		if n := sim.Grouped(mostPaths(f.variant[i]), 0); m.name == nameBCube && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	c.Why = fmt.Sprintf("servers whose numbers differ in h digits have h! shortest paths, one for each order in which the digits are set right; BCubes of 500 to 750 servers (figure sizes-most) have at most %s, never 64: the paper must have counted otherwise, and does not say how", strings.Join(numbers, ", "))
	return c
}
