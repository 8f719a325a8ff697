package diversity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/sim"
)

// Names of the models, and of their options.
const (
	nameFatTree   = "fat-tree"
	nameVL2       = "vl2"
	nameBCube     = "bcube"
	nameLeafSpine = "leaf-spine"
	nameJellyfish = "jellyfish"
)

var (
	names = []string{nameFatTree, nameVL2, nameBCube, nameLeafSpine, nameJellyfish}
	// paperNames are the paper's three.
	paperNames = names[:3]
)

// model is a topology of one size.
type model struct {
	name    string
	numbers []int
	hosts   int
}

// size as in its option.
func (m model) size() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(m.numbers), " ", ","), "[]")
}

// String names a model with its size.
func (m model) String() string { return m.name + " " + m.size() }

// model has the numbers of its option; how many hosts it has is what they say
// if they are good.
func (o *Options) model(name string) (model, error) {
	m := model{name: name}
	wanted := 3
	switch name {
	case nameFatTree:
		m.numbers, wanted = []int{o.FatTree}, 1
	case nameVL2:
		m.numbers = o.VL2
	case nameBCube:
		m.numbers, wanted = o.BCube, 2
	case nameLeafSpine:
		m.numbers = o.LeafSpine
	case nameJellyfish:
		m.numbers = o.Jellyfish
	}
	if len(m.numbers) != wanted {
		return m, fmt.Errorf("--%s %s: must be %d numbers", name, m.size(), wanted)
	}
	m.hosts = m.count()
	return m, nil
}

// manyHosts is where count stops.
const manyHosts = 8 * maxHosts

// tooLarge says so of a model with more than maxHosts, and what would not be.
func (m model) tooLarge() string {
	servers := fmt.Sprintf("%d servers", m.hosts)
	if m.hosts >= manyHosts/4 { // of a product that was cut
		servers = "too many servers"
	}
	smaller := model{name: m.name, numbers: slices.Clone(m.numbers)}
	n := &smaller.numbers[0]
	for *n = min(*n, manyHosts); *n > 1; *n-- {
		if smaller.count() > maxHosts {
			continue
		}
		if _, err := smaller.fabric(sim.Stream(0, "check")); err == nil {
			return fmt.Sprintf("%s, %d are the limit; %s has %d", servers, maxHosts, smaller.size(), smaller.count())
		}
	}
	return fmt.Sprintf("%s, %d are the limit; write smaller numbers", servers, maxHosts)
}

// count is how many hosts there are, exact up to maxHosts at least.
func (m model) count() int {
	product := func(factors ...int) int {
		p := 1
		for _, f := range factors {
			if p *= f; p > manyHosts || p < 0 {
				return manyHosts
			}
		}
		return p
	}
	x := m.numbers
	switch m.name {
	case nameFatTree:
		return product(x[0], x[0], x[0]) / 4
	case nameVL2:
		return product(x[0], x[1], x[2]) / 4
	case nameBCube:
		p := x[0]
		for range min(x[1], 32) {
			p = product(p, x[0])
		}
		return p
	case nameLeafSpine:
		return product(x[0], x[2])
	}
	return product(x[0], x[2])
}

// drawn tells whether it is another fabric under every seed.
func (m model) drawn() bool { return m.name == nameJellyfish }

// fabric draws it.
func (m model) fabric(random *rand.Rand) (*topology.Fabric, error) {
	x := m.numbers
	switch m.name {
	case nameFatTree:
		return topology.FatTree(x[0])
	case nameVL2:
		return topology.VL2(x[0], x[1], x[2])
	case nameBCube:
		return topology.BCube(x[0], x[1])
	case nameLeafSpine:
		return topology.LeafSpine(x[0], x[1], x[2])
	}
	return topology.Jellyfish(x[0], x[1], x[2], random)
}

// variants are all sizes of VL2 with 20 servers a rack, and of BCube, that have
// about 600 servers.
func variants() (all []model) {
	const racks, least, most = 30, 500, 750
	for down := 4; down <= 4*racks/2; down += 2 {
		if mid := 4 * racks / down; down*mid == 4*racks && mid%2 == 0 {
			all = append(all, model{nameVL2, []int{down, mid, 20}, 600})
		}
	}
	for k := 1; k <= 7; k++ {
		for n := 2; n < 64; n++ {
			if m := (model{name: nameBCube, numbers: []int{n, k}}); m.count() >= least && m.count() <= most {
				m.hosts = m.count()
				all = append(all, m)
			}
		}
	}
	return all
}
