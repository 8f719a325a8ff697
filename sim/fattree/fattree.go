// Package fattree repeats CFLB's simulations of MultiPath TCP in a fat-tree
// (Detal et al., Computer Networks 2013, §4.2.1): every host sends one
// elephant, whose subflows are put on paths by a hash (ECMP) or by a scheduler
// that keeps the subflows of every link few, which CFLB can steer them to.
//
//	tree       links and paths of a fat-tree by numbers
//	matrix     who sends to whom
//	place      subflows on paths: by a hash, by the scheduler
//	fluid      max-min fair rates
//	fattree    scenario fat-tree: the options; run, result, checks
//	packets    scenario fat-tree-packets: the same points packet by packet, on
//	           sim/packets; packetsresult
package fattree

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// Kinds are the scenarios of this package.
var Kinds = []sim.Kind{fluidKind, packetsKind}

var fluidKind = sim.Kind{
	Name:  "fat-tree",
	Short: "Elephants in a fat-tree: ECMP against subflows that CFLB steers, as fluids (CFLB §4.2.1)",
	Long: `Every host of a fat-tree sends one elephant to another host, and none receives
two (a permutation matrix). An elephant has one subflow or several, each on one
of the shortest paths: the one that a hash chooses (ecmp), or the one that the
central scheduler chooses (cflb), which keeps the number of subflows of every
link small and has CFLB steer them there. Subflows are fluids that share links
max-min fairly. What all get together is divided by the optimum, which nothing
but the hosts' links bounds.

The scheduler gives each subflow the path whose most loaded link has the fewest
subflows, of equal ones that with the fewest in all. Once all are placed it goes
through them again, as often as --rounds says: takes one off its links and
places it anew. MultiPath TCP opens a new subflow before it ends the old one.

Beside the paper's fat-tree (k = 8) are larger ones, and matrices that overload
the hosts: each opens several connections to any others.`,
	Example: `  fairlead sim fat-tree
  fairlead sim fat-tree --rounds 0 --subflows 1,2,4,8 --plot fat-tree.svg
  fairlead sim fat-tree --k 16 --larger 48 --seeds 1`,
	Seeds: 10,
	New:   func() sim.Scenario { return New() },
}

// Options of scenario fat-tree.
type Options struct {
	// K is the ports of a switch; Larger, those of the fat-trees that are run for
	// scale.
	K      int
	Larger []int
	// Subflows of a connection; Connections of a host, in matrices that
	// overload it.
	Subflows, Connections []int
	Rounds                int
}

// New are the paper's options, and sizes and loads beyond it.
func New() *Options {
	return &Options{
		K: 8, Larger: []int{16, 32},
		Subflows: []int{1, 2, 3, 4, 5, 6, 7, 8}, Connections: []int{1, 2, 4, 8},
		Rounds: defaultRounds,
	}
}

// defaultRounds of both scenarios: figure `rounds` shows what more would give.
const defaultRounds = 30

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("k", &o.K, "ports of a switch; k³/4 hosts")
	f.Add("larger", &o.Larger, "ports of a switch of the fat-trees in the figure of sizes")
	f.Add("subflows", &o.Subflows, subflowsUsage)
	f.Add("connections", &o.Connections, "connections of a host in the matrices that overload it")
	f.Add("rounds", &o.Rounds, roundsUsage)
}

const (
	subflowsUsage = "subflows of a connection"
	roundsUsage   = "how often the scheduler places every subflow again; 0: it is placed once"
)

// Limits of the options.
const (
	maxK           = 64
	maxSubflows    = 64
	maxConnections = 64
	maxRounds      = 1000
	maxPlaced      = 1 << 22 // subflows of one run
)

// Check says which option is wrong.
func (o *Options) Check() error {
	if err := cmp.Or(checkK("--k", o.K), checkRounds(o.Rounds)); err != nil {
		return err
	}
	for _, k := range o.Larger {
		if err := checkK("--larger", k); err != nil {
			return err
		}
		if k == o.K {
			return fmt.Errorf("--larger %d: is --k already", k)
		}
	}
	if err := checkList("--larger", o.Larger, 1, maxK); err != nil {
		return err
	}
	for _, l := range []struct {
		flag string
		list []int
		most int
	}{{"--subflows", o.Subflows, maxSubflows}, {"--connections", o.Connections, maxConnections}} {
		if len(l.list) == 0 {
			return fmt.Errorf("%s: give at least one", l.flag)
		}
		if err := checkList(l.flag, l.list, 1, l.most); err != nil {
			return err
		}
	}
	most := slices.Max(o.Subflows)
	if n := newTree(slices.Max(append([]int{o.K}, o.Larger...))).hosts * most; n > maxPlaced {
		return fmt.Errorf("--subflows %d: %d subflows in the largest fat-tree, %d are the limit; take fewer or a smaller fat-tree", most, n, maxPlaced)
	}
	if each := slices.Max(o.Connections); newTree(o.K).hosts*most*each > maxPlaced {
		return fmt.Errorf("--connections %d: %d subflows at --k %d, %d are the limit; take fewer", each, newTree(o.K).hosts*most*each, o.K, maxPlaced)
	}
	return nil
}

func checkK(flag string, k int) error {
	if k < 4 || k > maxK || k%2 != 0 {
		return fmt.Errorf("%s %d: must be even, 4 to %d", flag, k, maxK)
	}
	return nil
}

func checkRounds(rounds int) error {
	if rounds < 0 || rounds > maxRounds {
		return fmt.Errorf("--rounds %d: must be 0 to %d", rounds, maxRounds)
	}
	return nil
}

func checkList(flag string, list []int, low, high int) error {
	for i, n := range list {
		if n < low || n > high {
			return fmt.Errorf("%s %d: must be %d to %d", flag, n, low, high)
		}
		if slices.Contains(list[:i], n) {
			return fmt.Errorf("%s %d: is given twice", flag, n)
		}
	}
	return nil
}
