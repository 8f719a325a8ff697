package proof

import (
	"math/bits"
	"slices"
)

// A balancer with memory that all its connections share: R connections, each
// begun under a set of one server, have k^R pasts, and each packet must find
// the server that the past says. In one state of its memory a balancer is a
// decoder (connection, cookie) → server, which leads a connection to at most c
// servers, one a cookie: with the right cookies it serves the pasts of a box,
// at most c servers for the first connection × at most c for the second × ….
// The states must cover all pasts by such boxes.

// States is the least number of memory states with which a balancer keeps so
// many connections at once through a change to the full set: all covers are
// tried. There is no bound on how the state is found, so a real balancer needs
// at least as many. servers^connections is at most 64.
func States(servers, cookies, connections int) int {
	all := boxes(servers, cookies, connections)
	pasts := int(power(servers, connections))
	everything := ^uint64(0) >> (64 - pasts)
	for n := 1; ; n++ {
		if covers(all, everything, n) {
			return n
		}
	}
}

// covers: n boxes cover what is left. One of them must cover the first of it.
func covers(all []uint64, left uint64, n int) bool {
	if left == 0 {
		return true
	}
	if bits.OnesCount64(left) > n*bits.OnesCount64(all[0]) { // all are of one size
		return false
	}
	first := left & -left
	return slices.ContainsFunc(all, func(b uint64) bool { return b&first != 0 && covers(all, left&^b, n-1) })
}

// boxes are the sets of pasts that one memory state can serve, the largest
// only: bit p is the past whose digits in base servers are the connections'
// servers.
func boxes(servers, cookies, connections int) []uint64 {
	var sides [][]int // what one connection's cookies can name
	for _, s := range subsets(servers) {
		if len(s) == min(cookies, servers) {
			sides = append(sides, s)
		}
	}
	var all []uint64
	for pick := range sequences(connections, len(sides)) {
		var box uint64
		for choice := range sequences(connections, len(sides[0])) {
			past := 0
			for r := range connections {
				past = past*servers + sides[pick[r]][choice[r]]
			}
			box |= 1 << past
		}
		all = append(all, box)
	}
	return all
}
