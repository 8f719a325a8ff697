package proof

import (
	"context"
	"math"
	"slices"
)

// A balancer without memory of connections knows two things of a packet that
// is not a connection's first: its cookie and the active set. So for one
// connection identifier it is two functions:
//
//	encoder   the server that had to take the first packet → cookie
//	decoder   cookie, active set → server
//
// What a decoder says under one active set does not bind it under another, so
// decoders are enumerated for one set at a time (a test enumerates whole ones
// and counts the same). Identifiers do not bind each other either.

// Count is what enumeration found for a number of servers and of cookie values.
type Count struct {
	Servers, Cookies int
	// Encoders and Decoders (under one active set) that there are.
	Encoders, Decoders int64
	// Survivors are the pairs of an encoder and a decoder under the full set
	// that keep the connection on its server, whichever of the sets of one
	// server it began under.
	Survivors int64
	// FullSet are the encoders that have a decoder which does so under the
	// full set, EverySet those that have one under each active set, where
	// decoders name active servers and connections of active servers must
	// last. (If servers that left the set keep what they have, each set asks
	// what the full one asks.)
	FullSet, EverySet int64
	// Best is how many of the servers keep the connection under the full set
	// with the best pair of all.
	Best int
}

// Assignments is the number of pairs of an encoder and a decoder under the
// full set.
func (c Count) Assignments() int64 { return c.Encoders * c.Decoders }

// NewCount enumerates all encoders and all decoders. Encoders that differ only
// in the names of their cookies are counted together. Its error is ctx's.
func NewCount(ctx context.Context, servers, cookies int) (Count, error) {
	n := Count{Servers: servers, Cookies: cookies, Encoders: power(cookies, servers), Decoders: power(servers, cookies)}
	all := numbers(servers)
	for _, c := range classes(servers, cookies) {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		survivors, best := decoders(c.encoder, cookies, servers)
		n.Best = max(n.Best, best)
		if survivors == 0 {
			continue // under the full set: so not under each set either
		}
		n.Survivors += c.size * survivors
		n.FullSet += c.size
		if everySet(c.encoder, cookies, all) {
			n.EverySet += c.size
		}
	}
	return n, nil
}

// Needed is the least number of cookie values with which some encoder and some
// decoder keep the connection, whichever of the servers in among it began on,
// with memory states of the balancer's that are this connection's own: found
// by trying 1, 2, 3 … values.
func Needed(among []int, servers, states int) int {
	all := numbers(servers)
	for c := 1; ; c++ {
		// An encoder hands out a cookie and a state; a decoder sees both.
		symbols := c * states
		// The encoders with the most different symbols first: if any
		// survives, those do, and the search ends.
		for _, class := range slices.Backward(classes(len(among), symbols)) {
			if survives(class.encoder, symbols, among, all) {
				return c
			}
		}
	}
}

// everySet: for each active set of servers the encoder has a decoder.
func everySet(encoder []int, cookies int, servers []int) bool {
	for _, set := range subsets(len(servers)) {
		e := make([]int, len(set))
		for i, s := range set {
			e[i] = encoder[s]
		}
		if !survives(e, cookies, set, set) {
			return false
		}
	}
	return true
}

// decoders enumerates all decoders under the full set: how many keep the
// connection whichever server it began on, and from how many of the servers
// the best of them does.
func decoders(encoder []int, cookies, servers int) (survivors int64, best int) {
	for d := range sequences(cookies, servers) {
		kept := 0
		for server, cookie := range encoder {
			if d[cookie] == server {
				kept++
			}
		}
		if kept == servers {
			survivors++
		}
		best = max(best, kept)
	}
	return survivors, best
}

// survives: one of all decoders, cookies → one of servers, keeps a connection
// that began on any of wanted, whose cookies encoder has in the same order. It
// ends with the first that does.
func survives(encoder []int, cookies int, wanted, servers []int) bool {
next:
	for d := range sequences(cookies, len(servers)) {
		for i, cookie := range encoder {
			if servers[d[cookie]] != wanted[i] {
				continue next
			}
		}
		return true
	}
	return false
}

// class is an encoder and how many there are that differ from it only in the
// names of the cookies.
type class struct {
	encoder []int
	size    int64
}

// classes of encoders: server i's cookie is one that a server before it has,
// or the next new one. The least different cookies come first.
func classes(servers, cookies int) []class {
	var all []class
	e := make([]int, servers)
	var next func(i, used int, size int64)
	next = func(i, used int, size int64) {
		if i == servers {
			all = append(all, class{slices.Clone(e), size})
			return
		}
		for c := range used {
			e[i] = c
			next(i+1, used, size)
		}
		if used < cookies {
			e[i] = used
			next(i+1, used+1, size*int64(cookies-used))
		}
	}
	next(0, 0, 1)
	return all
}

// sequences are all sequences of length numbers from 0 to base-1. The slice is
// the same each time.
func sequences(length, base int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		d := make([]int, length)
		for yield(d) {
			i := 0
			for i < length && d[i] == base-1 {
				d[i] = 0
				i++
			}
			if i == length {
				return
			}
			d[i]++
		}
	}
}

// subsets of 0 to n-1 that are not empty.
func subsets(n int) [][]int {
	var all [][]int
	for mask := 1; mask < 1<<n; mask++ {
		var set []int
		for i := range n {
			if mask>>i&1 != 0 {
				set = append(set, i)
			}
		}
		all = append(all, set)
	}
	return all
}

// numbers 0 to n-1.
func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// power is base to the n. Options keep it far below 2^53.
func power(base, n int) int64 { return int64(math.Pow(float64(base), float64(n))) }
