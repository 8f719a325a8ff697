// Package diversity is scenario path-diversity: how many shortest paths there
// are between the servers of data centres' topologies, and how many next hops
// their routers have (CFLB, §2.2, figures 1 and 2).
//
//	diversity   the options
//	models      topologies and their sizes
//	count       shortest paths and next hops of a fabric
//	result      run and figures; checks
package diversity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

// Kinds is the scenario of this package.
var Kinds = []sim.Kind{{
	Name:  "path-diversity",
	Short: "Shortest paths between servers, and next hops of routers, in data centres' topologies (CFLB Figs 1, 2)",
	Long: `Counts, between all pairs of servers of a topology, the paths of least hops, and
for every router and every server, the next hops on such paths: what equal-cost
multipath can use. Switches count as routers, as in the paper; the servers of
BCube, which pass on others' packets, too.

The paper's models are fat-tree, VL2 and BCube with about 600 servers; it gives no
sizes. Beside them are a leaf-spine and Jellyfish, and the other sizes of VL2 and
BCube that have about as many servers.`,
	Example: `  fairlead sim path-diversity
  fairlead sim path-diversity --bcube 8,2 --vl2 10,12,20
  fairlead sim path-diversity --models fat-tree,jellyfish --jellyfish 245,11,3 --plot paths.svg`,
	Seeds: 3,
	New:   func() sim.Scenario { return New() },
}}

// Options of the scenario: the sizes of each model, as its generator in
// fabric/topology takes them.
type Options struct {
	Models                           []string
	FatTree                          int
	VL2, BCube, LeafSpine, Jellyfish []int
}

// New are models of about 600 servers.
func New() *Options {
	return &Options{
		Models:  slices.Clone(names),
		FatTree: 14, VL2: []int{20, 6, 20}, BCube: []int{5, 3}, LeafSpine: []int{15, 8, 40}, Jellyfish: []int{150, 10, 4},
	}
}

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("models", &o.Models, "topologies")
	f.Add(nameFatTree, &o.FatTree, "ports of a switch; k³/4 servers")
	f.Add(nameVL2, &o.VL2, "ports of an aggregation and of an intermediate switch, servers of a rack")
	f.Add(nameBCube, &o.BCube, "n and k; n^(k+1) servers")
	f.Add(nameLeafSpine, &o.LeafSpine, "leaves, spines, servers of a leaf")
	f.Add(nameJellyfish, &o.Jellyfish, "switches, links of each to others, servers of each")
}

// maxHosts bounds the work, which grows with their square.
const maxHosts = 5000

// Check says which option is wrong.
func (o *Options) Check() error {
	if len(o.Models) == 0 {
		return fmt.Errorf("--models: give at least one of %s", strings.Join(names, ", "))
	}
	for i, name := range o.Models {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--models %s: there is no such topology; there are %s", name, strings.Join(names, ", "))
		}
		if slices.Contains(o.Models[:i], name) {
			return fmt.Errorf("--models %s: is given twice", name)
		}
		m, err := o.model(name)
		if err != nil {
			return err
		}
		if m.hosts > maxHosts {
			return fmt.Errorf("--%s %s: %s", name, m.size(), m.tooLarge())
		}
		if _, err := m.fabric(sim.Stream(0, "check")); err != nil {
			return fmt.Errorf("--%s %s: %w", name, m.size(), err)
		}
	}
	return nil
}
