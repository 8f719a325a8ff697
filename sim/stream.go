// Package sim is the simulator's engine: integer time, events in order, a named
// random stream for each purpose, runs over seeds on all cores, and results
// with figures beside what the papers report. It is a pure function of options
// and seed: same seed, same bytes.
//
//	workload    how long connections live, when servers change, who asks
//	pcc         connections that must not break while everything changes:
//	            dip-updates, scaling, small-cookies, balancer-churn
//	choose      what places connections: hashes and policies, one of each
//	imbalance   how evenly connections are spread
//	threshold   Beamer that takes overloaded servers out
//	fct         what requests wait, and how even load is
//	tracking    JET's experiments: jet, jet-trace
//	datacentre  a whole site for a day
//	proof       Theorem 1 by counting
//	diversity   how many paths fabrics have: path-diversity
//	spread      how evenly flows that nobody steers spread: path-spread
//	fattree     elephants on steered paths: fat-tree, fat-tree-packets
//	packets     links and MultiPath TCP packet by packet
//	scenarios   the list of all, and a run of all
//	show        results as tables, plots and the page of all
//
// It imports scheme, policy, chash, wire and the pure parts of controller and
// fabric (pathsel, topology, paths), never what touches the kernel.
package sim

import (
	"hash/fnv"
	"math/rand/v2"
)

// Stream is a random source of its own for one purpose, so that a change of
// one (how servers fail, say) leaves what the others draw as it was.
func Stream(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// SplitMix is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators): a bijection of 64 bits.
func SplitMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
