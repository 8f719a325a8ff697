// Package choose has the hashes and policies that scenarios place connections
// or requests with, at one balancer that sees all of them: one meaning for each
// name. It runs policy and chash as the data plane does; what only a simulation
// can have (exact knowledge of all loads) is here.
//
//	choose   names, modulo, policies with a table
//	awrr     tables that follow the servers' loads
//	hashes   consistent hashes
package choose

import "github.com/fairlead/fairlead/policy"

// Names that package policy does not have, or means otherwise there.
const (
	// Hash is Modulo.
	Hash = "hash"
	// LeastLoaded knows at every moment which server has the least.
	LeastLoaded = "least-loaded"
)

// Modulo is what plain ECMP does, and how a paper's "uniform hash" is: every
// one of n servers has the same share of all keys.
func Modulo(key uint64, n int) uint16 { return uint16(uint32(key>>32) % uint32(n)) }

// Table is the data plane's table of a policy over servers 0 to n-1, all alike.
// Policy hash-bit has that of p2c.
func Table(name string, n int, serverName func(server int) string) []uint32 {
	members := make([]policy.Member, n)
	for i := range members {
		members[i] = policy.Member{Slot: uint16(i), Weight: 1, Name: serverName(i)}
	}
	if name == policy.HashBit {
		name = policy.P2C
	}
	return policy.Table(name, members)
}

// Policy is rr, p2c or least-conn as the data plane has them, at a balancer of
// one CPU, which so knows of all connections.
type Policy struct {
	name  string
	table []uint32
	state policy.State
	open  func(server uint16) int32
}

// NewPolicy walks a table; open is how much a server has.
func NewPolicy(name string, table []uint32, state policy.State, open func(server uint16) int32) *Policy {
	return &Policy{name, table, state, open}
}

// Choose is the server of a new connection.
func (p *Policy) Choose() uint16 {
	e, _ := policy.Choose(p.name, p.table, &p.state, p.open)
	return policy.EntrySlot(e)
}

// HashBit is p2c between the two servers that a connection's hash names.
type HashBit struct {
	table []uint32
	open  func(server uint16) int32
}

// NewHashBit goes by Table's table of hash-bit.
func NewHashBit(table []uint32, open func(server uint16) int32) *HashBit {
	return &HashBit{table, open}
}

// Choose is the server of a new connection. What its cookie's bit says finds it
// again (policy.HashBitEntry).
func (h *HashBit) Choose(hash uint64) uint16 {
	e, _, _ := policy.ChooseHashBit(hash, h.table, h.open)
	return policy.EntrySlot(e)
}
